//! `raftlock lock NAME -- COMMAND`: a command under a lock.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use raftlock_client::{Client, ClientOptions, Mode};

use super::Endpoints;

/// Run a command while holding a lock; kill it if the lock is lost
#[derive(Debug, clap::Args)]
pub struct LockArgs {
    /// The lock's name
    name: String,
    #[command(flatten)]
    at: Endpoints,
    /// Session TTL, ms
    #[arg(long, default_value_t = 15_000)]
    ttl_ms: u64,
    /// How long to wait for the lock, ms; 0 tries only
    #[arg(long, default_value_t = 60_000)]
    wait_ms: u64,
    /// The command; it finds the fencing token in RAFTLOCK_FENCE and the name in RAFTLOCK_NAME
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Exit code where the lock was not had.
const NOT_HELD: u8 = 75;
/// Exit code where it was lost and the command was killed.
const LOST: u8 = 76;

/// Runs it; the exit code is the command's, 75 without the lock, 76 if it was lost.
pub async fn run(args: LockArgs) -> anyhow::Result<ExitCode> {
    let options = ClientOptions {
        ttl: Duration::from_millis(args.ttl_ms),
        label: format!("raftlock lock, pid {}", std::process::id()),
        security: args.at.secure.security(),
        ..ClientOptions::default()
    };
    let client = Client::new(&args.at.endpoints, options)?;
    let guard = match client
        .lock(
            &args.name,
            Mode::Exclusive,
            Duration::from_millis(args.wait_ms),
        )
        .await
    {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("no lock on {}: {error}", args.name);
            return Ok(ExitCode::from(NOT_HELD));
        }
    };
    let mut child = tokio::process::Command::new(&args.command[0])
        .args(&args.command[1..])
        .env("RAFTLOCK_FENCE", guard.fence().to_string())
        .env("RAFTLOCK_NAME", &args.name)
        .stdin(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {:?}", args.command[0]))?;
    let status = tokio::select! {
        status = child.wait() => status?,
        () = guard.lost() => {
            // At the local deadline the lock may be another's at once: no time for a friendly signal.
            let _ = child.kill().await;
            eprintln!("the lock on {} was lost; killed the command", args.name);
            return Ok(ExitCode::from(LOST));
        }
    };
    let _ = guard.release().await;
    client.close().await;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    Ok(ExitCode::from(code as u8))
}
