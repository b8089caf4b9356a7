//! `fencepost matrix`: services × faults, or scenarios × seeds, one run a cell.

mod cell;
mod gaps;
mod lost;
mod plan;
mod table;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use fencepost_checker::exit;
use fencepost_nemesis::schedule::Span;
use serde_json::{Value, json};

use super::{fail, show};
use crate::scenario::longest;

/// Run services × faults, or scenarios × seeds, and print what held, what broke and how fast it was
#[derive(clap::Args)]
pub struct Args {
    /// Services, separated by commas; all when not given (with --scenarios: each scenario's own)
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Columns, separated by commas: none, pause, cut, kill, packets, down, leader, partition; all when not given
    #[arg(long, value_delimiter = ',', conflicts_with = "scenarios")]
    faults: Vec<String>,
    /// Scenarios instead of columns, separated by commas; `all`, or `hold` for those that expect no violation
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Where the servers run
    #[arg(long, value_name = "HOST", default_value = "local", value_parser = ["local", "docker"])]
    on: String,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds each cell is run with
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Begin all over with the next seeds until so long has passed, such as 10m
    #[arg(long = "for", value_name = "TIME")]
    go_on: Option<Span>,
    /// Parameter of the system, as name=value; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// Folder of the runs and of matrix.json
    #[arg(long, value_name = "DIR", default_value = "runs/matrix")]
    out: PathBuf,
    /// Print matrix.json and nothing else
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> ExitCode {
    let cells = match plan::cells(args) {
        Ok(cells) => cells,
        Err(e) => return fail(exit::USAGE, e),
    };
    if args.out.join("matrix.json").exists() {
        return fail(
            exit::USAGE,
            format!(
                "{} already holds a matrix; name another --out",
                args.out.display()
            ),
        );
    }
    let until = args.go_on.as_ref().map(|span| {
        let second = Duration::from_secs(1);
        Instant::now() + longest(span, second)
    });
    let (mut rows, mut worst) = (Vec::new(), exit::OK);
    for round in 0.. {
        for cell in &cells {
            if round > 0 && until.is_none_or(|end| Instant::now() >= end) {
                return conclude(args, &rows, worst);
            }
            let cell = cell.in_round(round, args.seeds);
            let (row, code) = cell::run(args, &cell);
            if !args.json {
                eprintln!("{}", table::line(&row));
            }
            rows.push(row);
            // What a service does not offer is no failure.
            if code != exit::USAGE && (worst == exit::OK || code == exit::VIOLATED) {
                worst = code;
            }
            if let Err(e) = save(&args.out, &rows) {
                return fail(exit::HARNESS, format!("{}: {e}", args.out.display()));
            }
        }
    }
    conclude(args, &rows, worst)
}

fn conclude(args: &Args, rows: &[Value], worst: u8) -> ExitCode {
    if args.json {
        println!("{}", json!({ "format": 1, "rows": rows }));
    } else {
        println!("{}", table::table(rows));
        for line in lost::pooled(rows) {
            println!("{line}");
        }
        println!("{}", table::tally(rows));
        println!("matrix:  {}", show::near(&args.out.join("matrix.html")));
    }
    ExitCode::from(worst)
}

fn save(dir: &Path, rows: &[Value]) -> Result<(), String> {
    let text =
        serde_json::to_string_pretty(&json!({ "format": 1, "rows": rows })).unwrap_or_default();
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    std::fs::write(dir.join("matrix.json"), text).map_err(|e| e.to_string())?;
    fencepost_reports::render_matrix(dir).map_err(|e| e.to_string())
}
