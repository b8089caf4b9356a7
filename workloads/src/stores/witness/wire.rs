//! The witness's protocol: JSON lines over TCP, pipelined, answered in order
//! (docs/worker-protocol.md).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::{Fence, Item};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    Read,
    ReadSet,
    Write,
    Add,
    /// Everything that a key holds; not logged, no fence looked at.
    Final,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub id: u64,
    pub op: Verb,
    pub key: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Item>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Item>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Item>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Vec<Item>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    pub id: u64,
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<Vec<Item>>,
    /// Highest fence accepted for the key, after this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<Fence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Appends one line and its newline.
pub fn put<T: Serialize>(line: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, line).expect("invariant: plain structs encode");
    out.push(b'\n');
}
