//! Contents and log lines as text, for stores whose servers join the two halves of a line.

use serde_json::{Value as Json, json};

use super::Access;
use crate::locks::CallError;

pub fn text<T: serde::Serialize>(v: &T) -> String {
    serde_json::to_string(v).expect("invariant: items encode")
}

/// What a store holds, if anything.
///
/// # Errors
/// Definite: it is no JSON of this kind.
pub fn parse<T: serde::de::DeserializeOwned>(
    contents: Option<String>,
) -> Result<Option<T>, CallError> {
    contents
        .map(|c| serde_json::from_str(&c))
        .transpose()
        .map_err(|e| CallError::definite(format!("the store holds rubbish: {e}")))
}

/// The beginning of an operation's line in the log; the server knows how it ends, and closes it.
pub fn head(op: &str, at: &Access, more: Json) -> String {
    let mut head = json!({"op": op, "key": at.key, "fence": at.fence, "owner": at.owner});
    if let (Some(head), Json::Object(more)) = (head.as_object_mut(), more) {
        head.extend(more);
    }
    let mut head = text(&head);
    head.pop();
    head
}

/// The nth line of the log, counted from 0, with its place in it.
pub fn numbered(n: usize, line: &str) -> String {
    let rest = line.strip_prefix('{').unwrap_or(line);
    format!("{{\"seq\":{},{rest}", n + 1)
}
