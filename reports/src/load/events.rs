//! Reading the files of lines, forgivingly: a report must come out of a torn
//! or partly unreadable file too, and say what was wrong with it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use fencepost_history::{Event, ReadError, Reader, Value, json};

use crate::ReportError;

/// Longest line of a store log that is read.
const MAX_LINE: u64 = 16 << 20;

/// Calls `each` with every event until it returns `false`; then gives one
/// sentence for each thing that was odd about the file.
pub fn events(path: &Path, mut each: impl FnMut(Event) -> bool) -> Vec<String> {
    let mut odd = Vec::new();
    let mut reader = match Reader::open(path) {
        Ok(reader) => reader,
        Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return vec![missing(path)];
        }
        Err(e) => return vec![format!("The history cannot be read: {e}.")],
    };
    for record in reader.by_ref() {
        match record {
            Ok(record) => {
                if !each(record.event) {
                    return odd;
                }
            }
            Err(e) => odd.push(format!("The history is read only as far as this: {e}.")),
        }
    }
    odd.extend(
        reader
            .warnings()
            .iter()
            .map(|w| format!("About the history: {w}.")),
    );
    odd
}

/// Calls `each` with every line until it returns `Ok(false)`; `Err` marks the
/// line as unreadable. Gives what was odd, and whether there was a file at all.
pub fn lines(
    path: &Path,
    mut each: impl FnMut(&str) -> Option<bool>,
) -> Result<(bool, Vec<String>), ReportError> {
    let read = |source| ReportError::Read {
        path: path.to_path_buf(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok((false, vec![missing(path)])),
        Err(e) => return Err(read(e)),
    };
    let mut input = BufReader::with_capacity(1 << 18, file);
    let (mut line, mut number, mut bad, mut torn) = (Vec::new(), 0_u64, Vec::new(), false);
    loop {
        line.clear();
        if (&mut input)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(read)?
            == 0
        {
            break;
        }
        number += 1;
        let ended = line.ends_with(b"\n");
        let text = std::str::from_utf8(&line).map(str::trim);
        match text
            .ok()
            .and_then(|t| if t.is_empty() { Some(true) } else { each(t) })
        {
            Some(true) => {}
            Some(false) => break,
            None if !ended => torn = true,
            None => bad.push(number),
        }
    }
    let name = file_name(path);
    let mut odd = Vec::new();
    if let Some(first) = bad.first() {
        let n = bad.len();
        odd.push(format!("{n} of {number} lines of {name} are unreadable, the first is line {first}; they are left out."));
    }
    if torn {
        odd.push(format!(
            "The last line of {name} is torn: it was being written when the run stopped."
        ));
    }
    Ok((true, odd))
}

fn missing(path: &Path) -> String {
    format!("There is no {} in this folder.", file_name(path))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A value as JSON text, strings without quotes.
pub fn plain(value: &Value) -> String {
    if let Value::Str(s) = value {
        return s.to_string();
    }
    let mut out = Vec::new();
    json::write_value(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

/// An event as a line of `history.jsonl`.
pub fn line_of(event: &Event) -> String {
    let mut out = Vec::new();
    json::write_event(&mut out, event);
    String::from_utf8_lossy(&out).trim_end().to_string()
}
