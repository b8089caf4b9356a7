//! Shows a resolved scenario the way that scenario files are written.

use std::fmt::Write;

use fencepost_history::Value;

type Members = [(std::sync::Arc<str>, Value)];

/// `value` as TOML-like text, in the order of the file: plain members first, then
/// tables and arrays of tables. Members without a value are left out.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Map(members) => table(&mut out, "", members),
        Value::Str(text) => out.push_str(text),
        other => inline(&mut out, other),
    }
    out.trim_end().to_string()
}

fn table(out: &mut String, path: &str, members: &Members) {
    let (tables, plain): (Vec<_>, Vec<_>) = members.iter().partition(|(_, v)| is_table(v));
    for (name, value) in plain.into_iter().filter(|(_, v)| *v != Value::Null) {
        out.push_str(&key(name));
        out.push_str(" = ");
        inline(out, value);
        out.push('\n');
    }
    for (name, value) in tables {
        let name = key(name);
        let path = if path.is_empty() {
            name
        } else {
            format!("{path}.{name}")
        };
        match value {
            Value::Map(members) => section(out, &format!("[{path}]"), &path, members),
            Value::List(items) => {
                for item in items {
                    if let Value::Map(members) = item {
                        section(out, &format!("[[{path}]]"), &path, members);
                    }
                }
            }
            _ => {}
        }
    }
}

fn section(out: &mut String, head: &str, path: &str, members: &Members) {
    if !out.is_empty() && !out.ends_with("\n\n") {
        out.push('\n');
    }
    out.push_str(head);
    out.push('\n');
    table(out, path, members);
}

fn is_table(value: &Value) -> bool {
    match value {
        Value::Map(_) => true,
        Value::List(items) => !items.is_empty() && items.iter().all(|i| matches!(i, Value::Map(_))),
        _ => false,
    }
}

fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) {
        name.to_string()
    } else {
        format!("{name:?}")
    }
}

fn inline(out: &mut String, value: &Value) {
    // Writing to a string cannot fail.
    let _ = match value {
        Value::Null => write!(out, "null"),
        Value::Bool(b) => write!(out, "{b}"),
        Value::Int(i) => write!(out, "{i}"),
        Value::Float(x) => write!(out, "{x:?}"),
        Value::Str(s) => write!(out, "{s:?}"),
        Value::List(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                out.push_str(if n > 0 { ", " } else { "" });
                inline(out, item);
            }
            write!(out, "]")
        }
        Value::Map(members) => {
            out.push_str("{ ");
            for (n, (name, value)) in members.iter().enumerate() {
                out.push_str(if n > 0 { ", " } else { "" });
                out.push_str(&key(name));
                out.push_str(" = ");
                inline(out, value);
            }
            write!(out, " }}")
        }
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use fencepost_history::json::parse_value;

    #[test]
    fn reads_like_a_scenario_file() {
        let value = r#"{"name":"x","note":null,"lease":{"ttl_ms":2000},"load":{"rate":22.0,"keys":["a","b"]},
            "fault":[{"kind":"pause","on":{"point":"p"}},{"kind":"kill"}],"expect":{"double-holder.service":"holds"}}"#;
        assert_eq!(
            text(&parse_value(value).unwrap()),
            "name = \"x\"\n\n[lease]\nttl_ms = 2000\n\n[load]\nrate = 22.0\nkeys = [\"a\", \"b\"]\n\n\
             [[fault]]\nkind = \"pause\"\n\n[fault.on]\npoint = \"p\"\n\n[[fault]]\nkind = \"kill\"\n\n\
             [expect]\n\"double-holder.service\" = \"holds\""
        );
    }
}
