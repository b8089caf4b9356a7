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
    match (&mut source).take(n as u64).read_to_end(&mut head) {
        Ok(_) => {}
        // A cut gzip stream: what there is of it is still worth reading.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(e) => return Err(e),
    }
    Ok((head.clone(), Box::new(Cursor::new(head).chain(source))))
}
