//! Judges a run folder and prints its verdict and the time that it took:
//! `cargo run --release -p fencepost-checker --example judge_folder -- DIR`

use std::path::Path;
use std::time::Instant;

fn main() {
    for dir in std::env::args().skip(1) {
        let started = Instant::now();
        match fencepost_checker::judge::judge(Path::new(&dir)) {
            Ok(v) => println!(
                "{}{dir}: {} events in {:.2} s, peak {} MB",
                v.to_json(),
                v.events,
                started.elapsed().as_secs_f64(),
                peak_mb()
            ),
            Err(e) => println!("{dir}: {e}"),
        }
    }
}

/// Peak memory of this process, where the system tells.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kb| kb / 1024)
}
