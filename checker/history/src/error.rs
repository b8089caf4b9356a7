//! What can be wrong with a history file, always with the line that it is on.

/// Why a history could not be read. Lines count from 1; line 0 is the file as a whole.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("line {line}: {what}")]
    Malformed { line: u64, what: String },
    /// Only from streaming readers; reading the whole file sorts it.
    #[error("line {line}: index {index} after {previous}; read the whole file to sort it")]
    OutOfOrder {
        line: u64,
        index: u64,
        previous: u64,
    },
}

impl ReadError {
    pub fn malformed(line: u64, what: impl Into<String>) -> Self {
        ReadError::Malformed {
            line,
            what: what.into(),
        }
    }

    /// Line of the input that is at fault, if it is known.
    pub fn line(&self) -> Option<u64> {
        match self {
            ReadError::Io { .. } => None,
            ReadError::Malformed { line, .. } | ReadError::OutOfOrder { line, .. } => Some(*line),
        }
    }
}

/// Something odd that did not stop the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// First line that it was seen on.
    pub line: u64,
    /// One lower-case line.
    pub what: &'static str,
    pub count: u64,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)?;
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        Ok(())
    }
}

pub const TORN: &str = "the last line is torn and was left out";
pub const STEPS_BACK: &str = "time steps back";
pub const MIXED_INDEX: &str = "index appears only after lines without one; all were numbered anew";

/// Warnings, one entry a kind, so that a long file cannot fill memory with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(pub Vec<Warning>);

impl Warnings {
    pub fn add(&mut self, line: u64, what: &'static str) {
        match self.0.iter_mut().find(|w| w.what == what) {
            Some(w) => w.count += 1,
            None => self.0.push(Warning {
                line,
                what,
                count: 1,
            }),
        }
    }
}
