//! `fencepost node`: servers that are part of this program.

use std::process::ExitCode;

use clap::Subcommand;
use fencepost_checker::exit;

use super::{block_on, fail};

/// Serve one node of a lock service that is part of this program
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    node: Node,
}

#[derive(Subcommand)]
enum Node {
    /// Our own lock service
    Raftlock(raftlock::ServeArgs),
}

pub fn main(args: Args) -> ExitCode {
    let Node::Raftlock(serve) = args.node;
    match block_on(raftlock::run_until_signal(serve)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e @ raftlock::ServeError::Config(_))) => fail(exit::USAGE, e),
        Ok(Err(e)) => fail(exit::HARNESS, e),
        Err(code) => code,
    }
}
