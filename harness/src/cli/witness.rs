//! `fencepost witness`: the store of a run.

use std::path::PathBuf;
use std::process::ExitCode;

use fencepost_workloads::stores::witness::{WitnessArgs, witness_main};

use super::block_on;

/// Serve a fenced register and set, and keep their serial log
#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on; port 0 picks a free one
    #[arg(long)]
    listen: String,
    /// The serial log, store.jsonl
    #[arg(long)]
    log: PathBuf,
    /// Accept every fence
    #[arg(long)]
    unfenced: bool,
    /// Check and raise the fence on writes only
    #[arg(long)]
    no_raise_on_read: bool,
}

pub fn main(args: Args) -> ExitCode {
    let args = WitnessArgs {
        listen: args.listen,
        log: args.log,
        unfenced: args.unfenced,
        no_raise_on_read: args.no_raise_on_read,
    };
    block_on(witness_main(args)).unwrap_or_else(|code| code)
}
