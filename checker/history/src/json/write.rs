//! Events and values as JSON text.

use crate::{Event, EventType, Process, Value};

/// Appends one event and a newline. Exact: reading it back gives the same event.
/// (Numbers that JSON cannot hold, NaN and infinities, become null.)
pub fn write_event(out: &mut Vec<u8>, e: &Event) {
    out.extend_from_slice(b"{\"index\":");
    write_int(out, i128::from(e.index));
    out.extend_from_slice(b",\"time\":");
    write_int(out, i128::from(e.time));
    out.extend_from_slice(b",\"process\":");
    match &e.process {
        Process::Client(p) => write_int(out, i128::from(*p)),
        Process::Named(n) => write_str(out, n),
    }
    let kind: &[u8] = match e.kind {
        EventType::Invoke => b",\"type\":\"invoke\",\"f\":",
        EventType::Ok => b",\"type\":\"ok\",\"f\":",
        EventType::Fail => b",\"type\":\"fail\",\"f\":",
        EventType::Info => b",\"type\":\"info\",\"f\":",
    };
    out.extend_from_slice(kind);
    write_str(out, &e.f);
    if let Some(k) = &e.key {
        out.extend_from_slice(b",\"key\":");
        write_str(out, k);
    }
    out.extend_from_slice(b",\"value\":");
    write_value(out, &e.value);
    if let Some(error) = &e.error {
        out.extend_from_slice(b",\"error\":");
        write_str(out, error);
    }
    out.extend_from_slice(b"}\n");
}

/// Appends a value as compact JSON.
pub fn write_value(out: &mut Vec<u8>, v: &Value) {
    match v {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(i) => write_int(out, *i),
        Value::Float(x) if x.is_finite() => out.extend_from_slice(format!("{x:?}").as_bytes()),
        Value::Float(_) => out.extend_from_slice(b"null"),
        Value::Str(s) => write_str(out, s),
        Value::List(items) => {
            out.push(b'[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Map(members) => {
            out.push(b'{');
            for (n, (k, item)) in members.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write_str(out, k);
                out.push(b':');
                write_value(out, item);
            }
            out.push(b'}');
        }
    }
}

fn write_int(out: &mut Vec<u8>, i: i128) {
    let mut digits = [0u8; 40];
    let mut at = digits.len();
    let mut rest = i.unsigned_abs();
    // Most integers fit 64 bits, where division is cheap.
    while rest > u128::from(u64::MAX) {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut low = rest as u64;
    loop {
        at -= 1;
        digits[at] = b'0' + (low % 10) as u8;
        low /= 10;
        if low == 0 {
            break;
        }
    }
    if i < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_str(out: &mut Vec<u8>, s: &str) {
    out.push(b'"');
    let bytes = s.as_bytes();
    let mut from = 0;
    for (n, &b) in bytes.iter().enumerate() {
        let plain = b >= 0x20 && b != b'"' && b != b'\\';
        if plain {
            continue;
        }
        out.extend_from_slice(&bytes[from..n]);
        from = n + 1;
        match b {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}
