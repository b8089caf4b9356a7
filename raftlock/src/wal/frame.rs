//! Frames (one flush each) and the records in them.
//!
//! Frame: magic u32, body length u32, sequence u64, CRC-32 of (length, sequence, body) u32, body.
//! Record in a body: group u32, kind u8, index u64, payload length u32, payload. All little endian.

/// Bytes of a frame before its body.
pub const HEAD: usize = 20;
const MAGIC: u32 = 0x314C_4652;
const RECORD_HEAD: usize = 17;

/// What a record says about its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A log entry at `index`.
    Entry = 1,
    /// Entries at `index` and above are void.
    Truncate = 2,
    /// Entries up to `index` are covered by a snapshot.
    Purge = 3,
    /// The vote.
    Vote = 4,
    /// The committed position.
    Committed = 5,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Entry,
            Self::Truncate,
            Self::Purge,
            Self::Vote,
            Self::Committed,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// One record of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The group.
    pub group: u32,
    /// What it says.
    pub kind: RecordKind,
    /// Log index, where the kind has one.
    pub index: u64,
    /// The rest, encoded by the owner of the group.
    pub payload: Vec<u8>,
}

/// Writes one frame with these records into `buffer` (cleared first).
pub fn encode(buffer: &mut Vec<u8>, sequence: u64, records: &[Record]) {
    buffer.clear();
    buffer.resize(HEAD, 0);
    for record in records {
        buffer.extend_from_slice(&record.group.to_le_bytes());
        buffer.push(record.kind as u8);
        buffer.extend_from_slice(&record.index.to_le_bytes());
        buffer.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&record.payload);
    }
    let length = (buffer.len() - HEAD) as u32;
    buffer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    buffer[4..8].copy_from_slice(&length.to_le_bytes());
    buffer[8..16].copy_from_slice(&sequence.to_le_bytes());
    let crc = checksum(length, sequence, &buffer[HEAD..]);
    buffer[16..20].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(length: u32, sequence: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// What stands at an offset of a segment.
pub enum Found<'a> {
    /// A good frame.
    Frame {
        /// Its sequence number.
        sequence: u64,
        /// Its records.
        body: &'a [u8],
        /// Offset after it.
        next: usize,
    },
    /// Zeros to the end: nothing was written here.
    Blank,
    /// Bytes that are no good frame.
    Broken,
}

/// Looks at `bytes[offset..]`.
pub fn look(bytes: &[u8], offset: usize) -> Found<'_> {
    match parse(bytes, offset) {
        Some((sequence, body)) => Found::Frame {
            sequence,
            body,
            next: offset + HEAD + body.len(),
        },
        None if bytes[offset..].iter().all(|byte| *byte == 0) => Found::Blank,
        None => Found::Broken,
    }
}

fn parse(bytes: &[u8], offset: usize) -> Option<(u64, &[u8])> {
    let head = bytes.get(offset..offset + HEAD)?;
    if head[0..4] != MAGIC.to_le_bytes() {
        return None;
    }
    let length = u32_at(head, 4)?;
    let sequence = u64_at(head, 8)?;
    let start = offset + HEAD;
    let body = bytes.get(start..start.checked_add(length as usize)?)?;
    (checksum(length, sequence, body) == u32_at(head, 16)?).then_some((sequence, body))
}

/// Is there a good frame of a higher sequence anywhere after `offset`?
pub fn good_frame_after(bytes: &[u8], offset: usize, sequence: u64) -> bool {
    let magic = MAGIC.to_le_bytes();
    let tail = bytes.get(offset + 1..).unwrap_or_default();
    tail.windows(4)
        .enumerate()
        .filter(|(_, window)| *window == magic)
        .any(|(at, _)| parse(bytes, offset + 1 + at).is_some_and(|(found, _)| found > sequence))
}

/// Splits a frame's body into records; `None` if it does not add up.
pub fn records(mut body: &[u8]) -> Option<Vec<Record>> {
    let mut out = Vec::new();
    while !body.is_empty() {
        let head = body.get(..RECORD_HEAD)?;
        let length = u32_at(head, 13)? as usize;
        let payload = body.get(RECORD_HEAD..RECORD_HEAD.checked_add(length)?)?;
        out.push(Record {
            group: u32_at(head, 0)?,
            kind: RecordKind::from_byte(head[4])?,
            index: u64_at(head, 5)?,
            payload: payload.to_vec(),
        });
        body = &body[RECORD_HEAD + length..];
    }
    Some(out)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)
        .and_then(|slice| slice.try_into().ok())
        .map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..at + 8)
        .and_then(|slice| slice.try_into().ok())
        .map(u64::from_le_bytes)
}
