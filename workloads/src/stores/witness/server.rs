//! The witness's server: one state, many pipelined connections.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::state::{Rules, State};
use super::wire::{Ask, Told, put};
use crate::protocol::MAX_LINE;

struct Inner {
    state: State,
    log: File,
    lines: Vec<u8>,
}

/// The one register-and-set store of a run, and its log.
pub struct Witness {
    inner: Mutex<Inner>,
    began: Instant,
}

impl Witness {
    pub fn new(rules: Rules, log: File) -> Self {
        let inner = Inner {
            state: State::new(rules),
            log,
            lines: Vec::new(),
        };
        Witness {
            inner: Mutex::new(inner),
            began: Instant::now(),
        }
    }

    /// Applies every whole line of `input` and appends the answers; tells how
    /// many bytes were used. The log reaches the OS before any answer does.
    fn batch(&self, input: &[u8], answers: &mut Vec<u8>) -> io::Result<usize> {
        let mut used = 0;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { state, log, lines } = &mut *inner;
        lines.clear();
        while let Some(len) = input[used..].iter().position(|b| *b == b'\n') {
            let line = &input[used..used + len];
            used += len + 1;
            let told = match serde_json::from_slice::<Ask>(line) {
                Ok(ask) => state.apply(&ask, self.began.elapsed().as_nanos() as u64, lines),
                Err(e) => Told {
                    error: Some(e.to_string()),
                    ..Told::default()
                },
            };
            put(&told, answers);
        }
        log.write_all(lines)?;
        Ok(used)
    }
}

/// Serves connections until accepting fails.
///
/// # Errors
/// The listener's error.
pub async fn serve(listener: TcpListener, witness: Witness) -> io::Result<()> {
    let witness = Arc::new(witness);
    loop {
        let (socket, _) = listener.accept().await?;
        let witness = witness.clone();
        tokio::spawn(async move {
            if let Err(e) = connection(socket, &witness).await
                && e.kind() != io::ErrorKind::ConnectionReset
            {
                eprintln!("witness: connection: {e}");
            }
        });
    }
}

async fn connection(mut socket: TcpStream, witness: &Witness) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut input, mut answers) = (Vec::with_capacity(64 * 1024), Vec::new());
    while socket.read_buf(&mut input).await? > 0 {
        let used = witness.batch(&input, &mut answers)?;
        input.drain(..used);
        if input.len() > MAX_LINE {
            return Err(io::Error::other(format!(
                "a line is longer than {MAX_LINE} bytes"
            )));
        }
        socket.write_all(&answers).await?;
        answers.clear();
    }
    Ok(())
}
