//! The command line: one file a subcommand.

mod check;
mod doctor;
mod heal;
mod images;
mod list;
mod matrix;
mod node;
mod progress;
mod report;
mod run;
mod show;
mod witness;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fencepost_checker::exit;

const AFTER: &str = "\
Examples:
  fencepost run kleppmann-pause                              the main scenario, nothing to install
  fencepost run kleppmann-pause --system redis --on docker   the same on a Redis in a container
  fencepost run my.toml --worker \"python3 my_lock.py\"        your own lock under your own scenario
  fencepost check runs/latest                                judge a run again

The exit code says how the verdicts compare with what the scenario expects: 0 as expected,
1 an unexpected violation, 2 usage, 3 harness failure, 4 fault not applied, 5 unknown,
6 malformed input, 7 an expected violation was not seen (docs/outcomes.md).";

/// Puts lock services under faults and says, with evidence, whether they kept their promise.
#[derive(Parser)]
#[command(name = "fencepost", version, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    Run(run::Args),
    Check(check::Args),
    Report(report::Args),
    List(list::Args),
    Matrix(matrix::Args),
    Images(images::Args),
    Doctor(doctor::Args),
    Heal(heal::Args),
    #[command(hide = true)]
    Worker(worker::Args),
    #[command(hide = true)]
    Witness(witness::Args),
    #[command(hide = true)]
    Node(node::Args),
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match cli.command {
        Cmd::Run(args) => run::main(args),
        Cmd::Check(args) => check::main(&args),
        Cmd::Report(args) => report::main(&args),
        Cmd::List(args) => list::main(&args),
        Cmd::Matrix(args) => matrix::main(&args),
        Cmd::Images(args) => images::main(args),
        Cmd::Doctor(args) => doctor::main(&args),
        Cmd::Heal(args) => heal::main(&args),
        Cmd::Worker(args) => worker::main(args),
        Cmd::Witness(args) => witness::main(args),
        Cmd::Node(args) => node::main(args),
    }
}

/// Says what went wrong in one line and gives the exit code.
fn fail(code: u8, error: impl std::fmt::Display) -> ExitCode {
    let text = error.to_string();
    eprintln!("error: {}", text.lines().next().unwrap_or("unknown"));
    ExitCode::from(code)
}

/// Runs a future to its end on a runtime of its own.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| fail(exit::HARNESS, format!("cannot start the runtime: {e}")))?;
    let out = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_exit_codes_in_the_help_are_the_documented_ones() {
        for (code, name, _) in exit::ALL.iter().filter(|(c, ..)| *c < 8) {
            assert!(AFTER.contains(&code.to_string()), "{name}");
        }
    }
}
