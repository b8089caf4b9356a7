//! `fencepost worker`: carries lock clients and speaks the worker protocol on
//! standard input and output.

mod behaviour;
#[cfg(test)]
mod bench;
mod grants;
mod lines;
mod ops;
mod points;
mod session;
mod watchdog;

use std::process::ExitCode;

use crate::protocol::{MAX_LINE, ProtocolError, Request, ToWorker};
use lines::{Input, Out};
use session::Session;

/// Arguments of `fencepost worker`.
#[derive(Clone, Debug)]
pub struct WorkerArgs {
    /// Lock client to use, whatever the controller's `init` names.
    pub system: Option<String>,
}

/// Exit status after a line that does not keep to the protocol.
const EXIT_PROTOCOL: u8 = 3;

/// Runs a worker until its input ends, on a runtime of its own (one thread:
/// a worker is one small process among many).
pub fn worker_blocking(args: WorkerArgs) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let code = runtime.block_on(worker_main(args));
            runtime.shutdown_background();
            code
        }
        Err(e) => {
            eprintln!("worker: no runtime: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a worker until its input ends. At the end of input without `close` it
/// stops as if it had crashed: locks stay to their leases.
pub async fn worker_main(args: WorkerArgs) -> ExitCode {
    match Input::stdin() {
        Ok(input) => serve(args, input, Out::stdout()).await,
        Err(e) => {
            eprintln!("worker: cannot read standard input: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: WorkerArgs, mut input: Input, out: Out) -> ExitCode {
    let mut session = Session::new(args.system, out.clone());
    let code = loop {
        match input.fill().await {
            Ok(0) => break ExitCode::SUCCESS,
            Ok(_) => {}
            Err(e) => {
                eprintln!("worker: reading standard input: {e}");
                break ExitCode::FAILURE;
            }
        }
        if let Err(e) = take_lines(&mut input, &mut session) {
            eprintln!("worker: {e}");
            break ExitCode::from(EXIT_PROTOCOL);
        }
    };
    out.flush().await;
    code
}

fn take_lines(input: &mut Input, session: &mut Session) -> Result<(), ProtocolError> {
    while let Some(line) = input.next_line() {
        let parsed = ToWorker::parse(line).map_err(|e| quote(line, &e))?;
        match parsed {
            ToWorker::Go(id) => session.go(id),
            ToWorker::Request(Request { id, op }) => session.handle(id, op),
        }
    }
    if input.pending() > MAX_LINE {
        return Err(ProtocolError::Other(format!(
            "a line is longer than {MAX_LINE} bytes"
        )));
    }
    Ok(())
}

fn quote(line: &[u8], e: &ProtocolError) -> ProtocolError {
    let start: String = String::from_utf8_lossy(line).chars().take(200).collect();
    ProtocolError::Other(format!("{e}, in {start:?}"))
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
