//! The `raftlock` program.

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
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match Cli::parse().command {
        Command::Serve(args) => raftlock::run_until_signal(args.into()).await?,
    }
    Ok(())
}
