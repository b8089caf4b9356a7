//! Checks one file of any size as a stream and prints the answer, the time from the first byte read, and peak memory:
//! `cargo run --release -p fencepost-checker --example check_file -- FILE MODEL [ENGINE]`

mod peak;

use std::path::Path;
use std::time::Instant;

use fencepost_checker::{Options, Outcome, check_records};
use fencepost_history::Reader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (file, model, engine) = match &args[..] {
        [file, model] => (file, model, "auto"),
        [file, model, engine] => (file, model, engine.as_str()),
        _ => return Err("give a file, a model, and perhaps an engine".into()),
    };
    let options = Options {
        engine: engine.parse()?,
        ..Options::default()
    };
    let started = Instant::now();
    let mut broken = None;
    let mut reader = Reader::open(Path::new(file))?;
    let records = std::iter::from_fn(|| reader.next()?.map_err(|e| broken = Some(e)).ok());
    let report = check_records(records, model, None, &options)?;
    if let Some(e) = broken {
        return Err(e.into());
    }
    let took = started.elapsed().as_secs_f64();
    let answer = match &report.outcome {
        Outcome::Linearizable => "linearizable".to_owned(),
        Outcome::Violated(why) => format!("violated: {}", why.summary),
        Outcome::Unknown(spent) => format!("unknown: {}", spent.reason),
    };
    println!(
        "{answer}; {} operations, {} unknown, by {}; {took:.2} s, peak {} MB",
        report.operations,
        report.unknown,
        report.decided_by,
        peak::megabytes()
    );
    Ok(())
}
