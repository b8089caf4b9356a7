//! `fail_fast`: the checks look on while a run goes on, and end it at the first violation that is certain and that
//! the scenario does not allow.
//!
//! On a thread of its own, so that the core never waits for a check. What only the whole history, or a log that is
//! fetched at the end, can show is left to the end.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use fencepost_checker::checks::StoreOp;
use fencepost_checker::judge::facts::Facts;
use fencepost_checker::judge::{Certain, Live};
use fencepost_history::Event;
use fencepost_history::json::ValueParser;

use super::core::{Command, CoreHandle};

/// Starts to judge; events go into the sender in the order of the history. Ends with it. `log` is the store's log
/// where the store writes it as it goes.
///
/// # Errors
/// When no thread can be started.
pub fn look_on(
    facts: &Facts,
    log: Option<PathBuf>,
    core: CoreHandle,
) -> std::io::Result<Sender<Event>> {
    let (to, events) = channel();
    let mut judge = Judge {
        live: Live::new(facts),
        log: log.map(Tail::of),
    };
    std::thread::Builder::new()
        .name("fail-fast".into())
        .spawn(move || {
            if let Some(certain) = judge.first(&events) {
                core.tell(Command::Violated(certain.check));
            }
        })?;
    Ok(to)
}

struct Judge {
    live: Live,
    log: Option<Tail>,
}

impl Judge {
    /// The first violation that ends the run; `None` when the run ends by itself.
    fn first(&mut self, events: &Receiver<Event>) -> Option<Certain> {
        while let Ok(event) = events.recv() {
            // As many as there are, then what the store has written by then.
            let more = std::iter::from_fn(|| events.try_recv().ok());
            for event in std::iter::once(event).chain(more) {
                let certain = self.live.push(&event);
                if let Some(certain) = certain.filter(Certain::is_unexpected) {
                    return Some(certain);
                }
            }
            for op in self.log.as_mut().map(Tail::more).unwrap_or_default() {
                let certain = self.live.push_store(&op);
                if let Some(certain) = certain.filter(Certain::is_unexpected) {
                    return Some(certain);
                }
            }
        }
        None
    }
}

/// A log that grows.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    parser: ValueParser,
}

impl Tail {
    fn of(path: PathBuf) -> Tail {
        Tail {
            path,
            file: None,
            rest: Vec::new(),
            parser: ValueParser::default(),
        }
    }

    /// The operations since the last call. What cannot be read is for the end of the run to tell.
    fn more(&mut self) -> Vec<StoreOp> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Vec::new();
        };
        let read = file.read_to_end(&mut self.rest).unwrap_or(0);
        let Some(end) = self
            .rest
            .iter()
            .rposition(|b| *b == b'\n')
            .filter(|_| read > 0)
        else {
            return Vec::new();
        };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        lines
            .split(|b| *b == b'\n')
            .filter_map(|l| std::str::from_utf8(l).ok().filter(|l| !l.is_empty()))
            .filter_map(|l| StoreOp::from_value(&self.parser.parse(l).ok()?).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_is_read_as_it_grows_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.jsonl");
        let mut tail = Tail::of(path.clone());
        assert!(tail.more().is_empty(), "not there yet");
        let mut log = File::create(&path).unwrap();
        let line = |seq: u64| {
            format!(
                "{{\"seq\":{seq},\"op\":\"write\",\"key\":\"L0\",\"fence\":{seq},\"value\":{seq},\"accepted\":true}}\n"
            )
        };
        let (whole, torn) = (line(1) + &line(2), line(3));
        log.write_all(whole.as_bytes()).unwrap();
        log.write_all(&torn.as_bytes()[..9]).unwrap();
        let seqs = |ops: Vec<StoreOp>| ops.iter().map(|o| o.seq).collect::<Vec<_>>();
        assert_eq!(seqs(tail.more()), [1, 2]);
        assert!(tail.more().is_empty());
        log.write_all(&torn.as_bytes()[9..]).unwrap();
        assert_eq!(seqs(tail.more()), [3]);
    }
}
