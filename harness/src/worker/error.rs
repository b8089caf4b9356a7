//! What a worker can do wrong. Each ends the run in order.

use thiserror::Error;

/// Longest part of a line that a message shows.
const SHOWN: usize = 160;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkerError {
    #[error(
        "worker:{worker} printed line {line}, which is no line of the protocol ({why}): `{text}`; see docs/worker-protocol.md"
    )]
    Rubbish {
        worker: usize,
        line: u64,
        why: String,
        text: String,
    },
    #[error(
        "worker:{worker} answered request {id} once more at line {line}, after its answer was read: `{text}`"
    )]
    Twice {
        worker: usize,
        line: u64,
        id: u64,
        text: String,
    },
    #[error(
        "worker:{worker} speaks of request {id} at line {line}, but was never sent one: `{text}`"
    )]
    NotAsked {
        worker: usize,
        line: u64,
        id: u64,
        text: String,
    },
    #[error(
        "worker:{worker} did not answer request {id} ({op}) within {ms} ms, and nothing paused it"
    )]
    Hung {
        worker: usize,
        id: u64,
        op: &'static str,
        ms: u64,
    },
    #[error(
        "worker:{worker} died: {how}; the last line it printed was line {line}; its standard error is in {log}"
    )]
    Died {
        worker: usize,
        line: u64,
        how: String,
        log: String,
    },
    #[error("worker:{worker} speaks protocol {theirs}, this harness {ours}")]
    Version {
        worker: usize,
        theirs: u32,
        ours: u32,
    },
    #[error(
        "worker:{worker} carries at most {most} clients, but the scenario wants {wanted}; set `clients` lower"
    )]
    TooFew {
        worker: usize,
        most: u32,
        wanted: u32,
    },
    #[error("worker:{worker} refused to start: {why}")]
    Refused { worker: usize, why: String },
}

/// A line for a message: lossy, without control characters, of bounded length.
pub fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN * 4)]);
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { '·' } else { c })
        .take(SHOWN)
        .collect();
    if line.len() > out.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_short_and_printable() {
        assert_eq!(shown(b"a\tb"), "a·b");
        let long = shown(&[b'x'; 5000]);
        assert_eq!(long.chars().count(), SHOWN + 1);
        assert!(shown(&[0xff, 0xfe]).starts_with('\u{fffd}'));
    }
}
