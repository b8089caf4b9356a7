//! The `raftlock` program.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use raftlock::ServeArgs;
use tracing_subscriber::EnvFilter;

/// A lock service with sessions, FIFO waiters and fencing tokens
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node
    Serve(ServeArgs),
    Lock(cli::lock::LockArgs),
    Status(cli::look::StatusArgs),
    Locks(cli::look::LocksArgs),
    TransferLeader(cli::look::NodeArgs),
    /// Write snapshots of all groups of a node now
    Snapshot(cli::look::NodeArgs),
    Bench(cli::bench::BenchArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,openraft=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    run(Cli::parse().command).await.unwrap_or_else(|error| {
        eprintln!("raftlock: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => raftlock::run_until_signal(args.into()).await?,
        Command::Lock(args) => return cli::lock::run(args).await,
        Command::Status(args) => cli::look::status(args).await?,
        Command::Locks(args) => cli::look::locks(args).await?,
        Command::TransferLeader(args) => cli::look::admin(args, "transfer-leader").await?,
        Command::Snapshot(args) => cli::look::admin(args, "snapshot").await?,
        Command::Bench(args) => cli::bench::run(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}
