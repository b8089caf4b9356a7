//! The worker protocol, version 1 (docs/worker-protocol.md): every line that a
//! controller and a worker exchange, strict in both directions.
//!
//! Lines are flat JSON objects. They are decoded through one flat struct each
//! way rather than a tagged enum: serde buffers tagged enums, and this path
//! runs tens of thousands of times a second.

mod event;
mod reply;
mod request;
mod scalar;

pub use event::{FromWorker, WorkerEvent};
pub use reply::{Answer, Claim, Granted, Hello, RawReply, Reply};
pub use request::{
    Acquire, Add, Endpoint, Hold, Init, Mode, Op, OpName, Params, Renew, Request, StoreConf,
    SystemConf, ToWorker, Write,
};
pub use scalar::{Fence, Item};

/// Version of the protocol that this crate speaks.
pub const VERSION: u32 = 1;

/// Longest line in bytes, its newline not counted.
pub const MAX_LINE: usize = 1 << 20;

/// The point inside a write or add at which a worker can be asked to stop.
pub const BEFORE_STORE_WRITE: &str = "before-store-write";

/// A line that does not keep to the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("not a line of the worker protocol: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{what} lacks \"{field}\"")]
    Missing {
        what: &'static str,
        field: &'static str,
    },
    #[error("{0}")]
    Other(String),
}

/// Decodes one object. Serde would also read an array as a struct.
fn object<'a, T: serde::Deserialize<'a>>(line: &'a [u8]) -> Result<T, ProtocolError> {
    if line.trim_ascii_start().first() != Some(&b'{') {
        let start: String = String::from_utf8_lossy(line).chars().take(60).collect();
        return Err(ProtocolError::Other(format!(
            "not a line of the worker protocol: expected a JSON object, found {start:?}"
        )));
    }
    Ok(serde_json::from_slice(line)?)
}

impl ProtocolError {
    pub(crate) fn missing(what: &'static str, field: &'static str) -> Self {
        ProtocolError::Missing { what, field }
    }
}
