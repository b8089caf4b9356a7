//! Judges a run folder and prints its verdict and the time that it took:
//! `cargo run --release -p fencepost-checker --example judge_folder -- DIR`

mod peak;

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
                peak::megabytes()
            ),
            Err(e) => println!("{dir}: {e}"),
        }
    }
}
