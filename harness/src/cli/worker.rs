//! `fencepost worker`: started by a run, speaks the worker protocol.

use std::process::ExitCode;

use fencepost_workloads::worker::{WorkerArgs, worker_blocking};

/// Carry lock clients for a controller (docs/worker-protocol.md)
#[derive(clap::Args)]
pub struct Args {
    /// Lock client to use, whatever the controller names
    #[arg(long)]
    system: Option<String>,
}

pub fn main(args: Args) -> ExitCode {
    worker_blocking(WorkerArgs {
        system: args.system,
    })
}
