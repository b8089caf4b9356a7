//! `fencepost check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fencepost_checker::exit;
use fencepost_checker::judge::{JudgeError, judge};

use super::{fail, show};

/// Judge a run folder again
#[derive(clap::Args)]
pub struct Args {
    /// A run folder
    #[arg(default_value = "runs/latest")]
    path: PathBuf,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> ExitCode {
    folder(&args.path, args.json)
}

fn folder(dir: &Path, json: bool) -> ExitCode {
    let verdict = match judge(dir) {
        Ok(v) => v,
        Err(e @ JudgeError::Read { .. }) => return fail(exit::USAGE, e),
        Err(e) => return fail(exit::MALFORMED, e),
    };
    // A folder that cannot be written to can still be judged.
    if let Err(e) = std::fs::write(dir.join("verdict.json"), verdict.to_json()) {
        eprintln!("warning: verdict.json: {e}");
    }
    if json {
        print!("{}", verdict.to_json())
    } else {
        show::verdict(&verdict)
    }
    ExitCode::from(verdict.exit_code)
}
