//! A process's vDSO: where it is, what it exports, where it has room.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::receipt::Reason;

/// The functions that tell time.
pub const FUNCTIONS: [&str; 3] = ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"];

/// The vDSO of one process, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Address in the process.
    pub base: u64,
    pub bytes: Vec<u8>,
}

/// Opens the memory of a process.
///
/// # Errors
/// When it is gone, or we lack `CAP_SYS_PTRACE` over it.
pub fn memory(pid: i32, write: bool) -> Result<File, Reason> {
    File::options()
        .read(true)
        .write(write)
        .open(format!("/proc/{pid}/mem"))
        .map_err(|e| Reason(format!("cannot open the memory of process {pid}: {e}")))
}

impl Image {
    /// # Errors
    /// When the process is gone, has no vDSO, or its memory cannot be read.
    pub fn of(pid: i32) -> Result<Image, Reason> {
        // In the middle of an exec a process has no vDSO for a moment.
        for _ in 0..10 {
            if let Some((base, end)) = place(pid)? {
                return Image::read(pid, base, end);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Reason(format!("process {pid} has no vDSO")))
    }

    fn read(pid: i32, base: u64, end: u64) -> Result<Image, Reason> {
        let mut bytes = vec![0; usize::try_from(end - base).unwrap_or(0)];
        memory(pid, false)?
            .read_exact_at(&mut bytes, base)
            .map_err(|e| Reason(format!("cannot read the vDSO of process {pid}: {e}")))?;
        Ok(Image { base, bytes })
    }

    /// Offset of an exported function.
    pub fn symbol(&self, name: &str) -> Option<usize> {
        let (mut symtab, mut strtab) = (None, None);
        for entry in self.segment(2)?.chunks_exact(16) {
            let (tag, value) = (u64_at(entry, 0)?, usize::try_from(u64_at(entry, 8)?).ok()?);
            match tag {
                5 => strtab = Some(value),
                6 => symtab = Some(value),
                _ => {}
            }
        }
        let (symtab, strtab) = (symtab?, strtab?);
        // Linkers put the names right behind the symbols.
        for sym in self.bytes.get(symtab..strtab)?.chunks_exact(24) {
            let at = strtab + u32_at(sym, 0)? as usize;
            let text = self.bytes.get(at..)?;
            let text = &text[..text.iter().position(|b| *b == 0)?];
            if text == name.as_bytes() {
                return usize::try_from(u64_at(sym, 8)?).ok();
            }
        }
        None
    }

    /// The bytes of the first segment of a type (2: dynamic).
    fn segment(&self, kind: u32) -> Option<&[u8]> {
        let b = &self.bytes;
        if b.get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let (start, size, n) = (u64_at(b, 32)?, u16_at(b, 54)?, u16_at(b, 56)?);
        (0..usize::from(n)).find_map(|i| {
            let at = usize::try_from(start).ok()? + i * usize::from(size);
            let header = b.get(at..at + usize::from(size))?;
            let from = usize::try_from(u64_at(header, 8)?).ok()?;
            let len = usize::try_from(u64_at(header, 32)?).ok()?;
            (u32_at(header, 0)? == kind).then_some(())?;
            b.get(from..from.checked_add(len)?)
        })
    }

    /// Offset of `len` unused (zero) bytes behind everything that the image says of itself.
    pub fn room(&self, len: usize) -> Option<usize> {
        let used = self.bytes.iter().rposition(|b| *b != 0)? + 1;
        let sections = usize::try_from(u64_at(&self.bytes, 40)?).ok()?
            + usize::from(u16_at(&self.bytes, 58)?) * usize::from(u16_at(&self.bytes, 60)?);
        let start = used.max(sections).next_multiple_of(16);
        (start + len <= self.bytes.len()).then_some(start)
    }

    /// Address of a `syscall` instruction.
    pub fn syscall(&self) -> Option<u64> {
        let at = self.bytes.windows(2).position(|w| w == [0x0f, 0x05])?;
        Some(self.base + at as u64)
    }

    /// Writes `bytes` at an offset, in the process and here.
    ///
    /// # Errors
    /// When its memory cannot be written.
    pub fn write(&mut self, pid: i32, at: usize, bytes: &[u8]) -> Result<(), Reason> {
        let failed = |e: io::Error| Reason(format!("cannot write the vDSO of process {pid}: {e}"));
        memory(pid, true)?
            .write_all_at(bytes, self.base + at as u64)
            .map_err(failed)?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

fn place(pid: i32) -> Result<Option<(u64, u64)>, Reason> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .map_err(|e| Reason(format!("cannot read the memory map of process {pid}: {e}")))?;
    Ok(maps.lines().find(|l| l.ends_with("[vdso]")).and_then(range))
}

fn range(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    Some((hex(from)?, hex(to)?)).filter(|(a, b)| a < b)
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn our_own_vdso_is_understood() {
        let image = Image::of(std::process::id().cast_signed()).unwrap();
        if cfg!(target_arch = "x86_64") {
            for f in FUNCTIONS {
                assert!(image.symbol(f).is_some(), "{f}");
            }
            assert!(image.syscall().is_some());
            let room = image.room(400).unwrap();
            assert!(image.bytes[room..room + 400].iter().all(|b| *b == 0));
        }
        assert_eq!(image.symbol("nothing"), None);
        assert!(image.room(1 << 20).is_none());
    }

    #[test]
    fn rubbish_is_no_image() {
        for bytes in [
            vec![],
            vec![0; 100],
            b"\x7fELF\x02".to_vec(),
            vec![0xff; 4096],
        ] {
            let image = Image { base: 0, bytes };
            assert_eq!(image.symbol("time"), None);
        }
    }
}
