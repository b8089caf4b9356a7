//! Opening a file and undoing its compression, which its first bytes tell.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

pub(crate) type Source = Box<dyn Read + Send>;

pub(crate) fn open(path: &Path) -> io::Result<Source> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("it is a folder, not a history file"));
    }
    decompressed(Box::new(file))
}

pub(crate) fn decompressed(source: Source) -> io::Result<Source> {
    let (head, source) = peek(source, 4)?;
    if head.starts_with(GZIP) {
        return Ok(Box::new(flate2::read::MultiGzDecoder::new(source)));
    }
    if head.starts_with(ZSTD) {
        return Ok(Box::new(zstd::stream::read::Decoder::new(source)?));
    }
    Ok(source)
}

/// The first `n` bytes (fewer at the end of input), and a source that has them still.
pub(crate) fn peek(mut source: Source, n: usize) -> io::Result<(Vec<u8>, Source)> {
    let mut head = Vec::with_capacity(n);
    let rest: Source = match (&mut source).take(n as u64).read_to_end(&mut head) {
        Ok(_) => source,
        // A cut compressed stream: what there is of it is still worth reading.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Box::new(Cut),
        Err(e) => return Err(e),
    };
    Ok((head.clone(), Box::new(Cursor::new(head).chain(rest))))
}

/// The end of a cut stream, told again to whoever reads on.
struct Cut;

impl Read for Cut {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Jsonl,
    Edn,
    Text,
}

/// What an (uncompressed) text is, by its first bytes.
pub(crate) fn format_of(head: &[u8]) -> Format {
    let mut rest = head.trim_ascii_start();
    while rest.starts_with(b";") {
        let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        rest = rest[end..].trim_ascii_start();
    }
    match rest.first() {
        None => Format::Jsonl,
        Some(b'[' | b'(' | b'#') => Format::Edn,
        Some(b'{') => of_map(rest[1..].trim_ascii_start()),
        Some(_) => Format::Text,
    }
}

/// `{:type` and `{"type" :ok` are EDN, `{"type":` and `{}` JSON.
fn of_map(inside: &[u8]) -> Format {
    match inside.first() {
        Some(b':') => Format::Edn,
        Some(b'"') => {
            let Some(end) = inside[1..].iter().position(|b| *b == b'"') else {
                return Format::Jsonl;
            };
            let after = &inside[end + 2..];
            let next = after.trim_ascii_start();
            let colon = next.first() == Some(&b':');
            let keyword = next.get(1).is_some_and(u8::is_ascii_alphabetic);
            if next.is_empty() || (colon && (after.first() == Some(&b':') || !keyword)) {
                Format::Jsonl
            } else {
                Format::Edn
            }
        }
        _ => Format::Jsonl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_their_first_bytes() {
        for (text, want) in [
            ("", Format::Jsonl),
            ("{\"index\":1", Format::Jsonl),
            ("{ \"index\" : 1", Format::Jsonl),
            ("{\"ind", Format::Jsonl),
            ("{\"index\":null", Format::Jsonl),
            ("{:type :ok", Format::Edn),
            ("{\"type\" :ok", Format::Edn),
            ("{\"type\" \"ok\"", Format::Edn),
            ("; said\n[{:type", Format::Edn),
            ("(", Format::Edn),
            ("#jepsen.history.Op{", Format::Edn),
            ("[{\"index\":1", Format::Edn),
            ("INFO  jepsen.util", Format::Text),
            ("0\t:invoke", Format::Text),
        ] {
            assert_eq!(format_of(text.as_bytes()), want, "{text}");
        }
    }
}
