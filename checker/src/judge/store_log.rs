//! Reading `store.jsonl`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use fencepost_history::json::ValueParser;

use crate::checks::StoreOp;

/// How a pass over the log ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    pub lines: u64,
    /// The last line is torn and was left out.
    pub torn: bool,
    /// The line that is malformed, and why; what follows it was not read.
    pub malformed: Option<String>,
}

/// Hands every operation of the log to `each`, in the store's order.
///
/// # Errors
/// When the file cannot be read. No file is an empty log.
pub fn each(folder: &Path, mut each: impl FnMut(&StoreOp)) -> io::Result<LogEnd> {
    let mut end = LogEnd::default();
    let file = match File::open(folder.join("store.jsonl")) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(end),
        Err(e) => return Err(e),
    };
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut parser = ValueParser::default();
    let mut line = Vec::new();
    let mut last_seq = None;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(end);
        }
        let terminated = line.last() == Some(&b'\n');
        end.lines += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let op = parse(&mut parser, &line, last_seq);
        match op {
            Ok(op) => {
                last_seq = Some(op.seq);
                each(&op);
            }
            Err(_) if !terminated => {
                end.torn = true;
                return Ok(end);
            }
            Err(what) => {
                end.malformed = Some(format!("store.jsonl, line {}: {what}", end.lines));
                return Ok(end);
            }
        }
    }
}

fn parse(parser: &mut ValueParser, line: &[u8], last: Option<u64>) -> Result<StoreOp, String> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let op = StoreOp::from_value(&parser.parse(text.trim())?)?;
    if last.is_some_and(|l| op.seq <= l) {
        return Err(format!("seq {} does not rise", op.seq));
    }
    Ok(op)
}
