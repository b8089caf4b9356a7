//! The `raftlock` program.

mod cli;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use raftlock::ServeArgs;
use tracing_subscriber::EnvFilter;

/// A lock service with sessions, FIFO waiters and fencing tokens
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// How logs are written to stderr
    #[arg(long, value_enum, default_value = "text", global = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node
    Serve(ServeArgs),
    Lock(cli::lock::LockArgs),
    Status(cli::look::StatusArgs),
    Locks(cli::look::LocksArgs),
    TransferLeader(cli::look::NodeArgs),
    Snapshot(cli::backup::SnapshotArgs),
    Restore(cli::backup::RestoreArgs),
    Bench(cli::bench::BenchArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // What the clients of a benchmark say at its end is no news.
    let default = match cli.command {
        Command::Bench(_) => "error",
        // openraft warns of an absent replica a hundred times a second, and of the end of its tasks when a node stops.
        _ => "info,openraft=error,openraft::raft::raft_inner=off",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
    if !matches!(cli.command, Command::Serve(_) | Command::Lock(_)) {
        // `raftlock status | head` ends with its reader.
        // SAFETY: the default action touches no memory of this program.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    run(cli.command).await.unwrap_or_else(|error| {
        match error.downcast_ref::<raftlock::ServeError>() {
            // It names its causes itself.
            Some(error) => eprintln!("raftlock: {error}"),
            None => eprintln!("raftlock: {error:#}"),
        }
        ExitCode::FAILURE
    })
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => raftlock::run_until_signal(args).await?,
        Command::Lock(args) => return cli::lock::run(args).await,
        Command::Status(args) => cli::look::status(args).await?,
        Command::Locks(args) => cli::look::locks(args).await?,
        Command::TransferLeader(args) => cli::look::admin(args, "transfer-leader").await?,
        Command::Snapshot(args) => cli::backup::snapshot(args).await?,
        Command::Restore(args) => cli::backup::restore(&args)?,
        Command::Bench(args) => cli::bench::run(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}
