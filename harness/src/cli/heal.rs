//! `fencepost heal`: cleaning up after controllers that were killed.

use std::process::ExitCode;

use fencepost_checker::exit;

use super::{block_on, fail};
use crate::heal::{self, Healed};

/// Remove what runs left behind whose controller was killed
///
/// Processes, containers, networks and firewall tables of those runs, and nothing else. The next run does
/// it by itself. A run whose controller lives is not touched.
#[derive(clap::Args)]
pub struct Args {
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> ExitCode {
    let healed = match block_on(heal::heal_all()) {
        Ok(Ok(healed)) => healed,
        Ok(Err(e)) => return fail(exit::HARNESS, e),
        Err(code) => return code,
    };
    if args.json {
        println!("{}", serde_json::json!(healed));
    } else {
        println!("{}", words(&healed));
    }
    match healed.failed.first() {
        None => ExitCode::SUCCESS,
        Some(failure) => fail(exit::HARNESS, failure),
    }
}

fn words(h: &Healed) -> String {
    if h.runs.is_empty() && h.containers == 0 && h.failed.is_empty() {
        return match h.alive.len() {
            0 => "nothing to clean up".into(),
            n => format!(
                "nothing to clean up; {n} under way and left alone: {}",
                h.alive.join(", ")
            ),
        };
    }
    format!(
        "cleaned up after {}: {} processes, {} containers, {} networks, {} interfaces, {} nft tables",
        if h.runs.is_empty() {
            "builds".into()
        } else {
            h.runs.join(", ")
        },
        h.processes,
        h.containers,
        h.networks,
        h.interfaces,
        h.nft_tables
    )
}
