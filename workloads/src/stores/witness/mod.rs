//! The witness: a fenced (or deliberately unfenced) register and set per key,
//! served over TCP by a process that no scenario faults unless it says so.
//!
//! It writes its own serial log (docs/history-format.md, `store.jsonl`): the
//! second evidence stream of a run.

mod client;
mod server;
mod state;
mod wire;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

pub use client::KIND;
pub use server::{Witness, serve};
pub use state::Rules;

/// Arguments of `fencepost witness`.
#[derive(Clone, Debug)]
pub struct WitnessArgs {
    /// Address to listen on; port 0 picks a free one.
    pub listen: String,
    /// The serial log, `store.jsonl`; appended to.
    pub log: PathBuf,
    /// Accept every fence.
    pub unfenced: bool,
    /// Check and raise the fence on writes only.
    pub no_raise_on_read: bool,
}

/// Serves until killed. Prints `{"listening":"HOST:PORT"}` once it accepts.
pub async fn witness_main(args: WitnessArgs) -> ExitCode {
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("witness: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: WitnessArgs) -> std::io::Result<()> {
    let at = |e: std::io::Error, what: &str| std::io::Error::new(e.kind(), format!("{what}: {e}"));
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&args.log)
        .map_err(|e| at(e, &args.log.display().to_string()))?;
    let listener = tokio::net::TcpListener::bind(&args.listen)
        .await
        .map_err(|e| at(e, &args.listen))?;
    let rules = Rules {
        fenced: !args.unfenced,
        raise_on_read: !args.no_raise_on_read,
    };
    println!("{{\"listening\":\"{}\"}}", listener.local_addr()?);
    std::io::stdout().flush()?;
    serve(listener, Witness::new(rules, log)).await
}
