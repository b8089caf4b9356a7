//! `fencepost report`.

use std::path::PathBuf;
use std::process::ExitCode;

use fencepost_checker::exit;

use super::{fail, show};

/// Write a run's report.html, summary.md and junit.xml again
#[derive(clap::Args)]
pub struct Args {
    /// A run folder
    #[arg(default_value = "runs/latest")]
    folder: PathBuf,
}

pub fn main(args: &Args) -> ExitCode {
    match fencepost_reports::render(&args.folder) {
        Ok(()) => {
            println!("{}", show::near(&args.folder.join("report.html")));
            ExitCode::SUCCESS
        }
        Err(e) => fail(exit::USAGE, e),
    }
}
