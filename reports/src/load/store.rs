//! `store.jsonl`: the store's own serial log, of which the report shows one lock's part.

use fencepost_history::{Value, json};

/// One operation that reached the store, in the store's own order.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreEntry {
    pub seq: u64,
    pub op: String,
    pub key: String,
    pub fence: Option<u64>,
    pub owner: Option<String>,
    pub value: Value,
    pub accepted: bool,
    pub highest: Option<u64>,
}

impl StoreEntry {
    pub fn parse(text: &str) -> Option<StoreEntry> {
        let line = json::parse_value(text).ok()?;
        let string = |name: &str| line.get(name).and_then(Value::as_str).map(str::to_string);
        Some(StoreEntry {
            seq: line.get("seq")?.as_u64()?,
            op: string("op")?,
            key: string("key").unwrap_or_default(),
            fence: line.get("fence").and_then(Value::as_u64),
            owner: string("owner"),
            value: line
                .get("value")
                .or_else(|| line.get("element"))
                .cloned()
                .unwrap_or_default(),
            accepted: line.get("accepted")?.as_bool()?,
            highest: line.get("highest").and_then(Value::as_u64),
        })
    }
}
