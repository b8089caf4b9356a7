//! A line of `store.jsonl`.

use std::sync::Arc;

use fencepost_history::Value;

use super::track::{F, value_hash};

/// One operation as the store saw it, in its serial order.
#[derive(Clone, Debug)]
pub struct StoreOp {
    pub seq: u64,
    pub f: F,
    /// Register and set of one lock share its key.
    pub key: Arc<str>,
    pub resource: Option<Arc<str>>,
    pub fence: Option<u64>,
    pub owner: Value,
    /// Written value or added element.
    pub value: Value,
    pub accepted: bool,
}

/// Names one change of one key: written values and added elements are unique.
pub type ChangeId = (F, u64);

impl StoreOp {
    /// From a parsed line; says what is missing.
    ///
    /// # Errors
    /// One lower-case fragment.
    pub fn from_value(v: &Value) -> Result<StoreOp, &'static str> {
        let word = |n: &str| v.get(n).and_then(Value::as_str);
        let f = word("op").map(F::of).ok_or("op is missing")?;
        let member = if f == F::Add { "element" } else { "value" };
        Ok(StoreOp {
            seq: v
                .get("seq")
                .and_then(Value::as_u64)
                .ok_or("seq is missing")?,
            f,
            key: word("key").unwrap_or_default().into(),
            resource: word("resource").map(Arc::from),
            fence: v.get("fence").and_then(Value::as_u64),
            owner: v.get("owner").cloned().unwrap_or_default(),
            value: v
                .get(member)
                .or_else(|| v.get("value"))
                .cloned()
                .unwrap_or_default(),
            accepted: v
                .get("accepted")
                .and_then(Value::as_bool)
                .ok_or("accepted is missing")?,
        })
    }

    /// The change that it made, by which the history's operation is found.
    pub fn change(&self) -> ChangeId {
        (self.f, value_hash(&self.value))
    }
}
