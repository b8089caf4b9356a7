//! The code that goes into the target's vDSO, assembled into our own read-only data.
//!
//! Position-independent; uses only registers that the caller gives up (System V ABI) and less than
//! 64 bytes of its stack. `Bends` lies in front of the code, so that one write changes both clocks.

use std::arch::global_asm;

use super::bend::Bends;

global_asm!(
    ".pushsection .rodata.fencepost_clock, \"a\"",
    // Seen by whichever unit of code the compiler puts `assembled` into, and by no other library.
    ".globl fencepost_clock_start, fencepost_clock_gettime, fencepost_clock_timeofday",
    ".globl fencepost_clock_time, fencepost_clock_end",
    ".hidden fencepost_clock_start, fencepost_clock_gettime, fencepost_clock_timeofday",
    ".hidden fencepost_clock_time, fencepost_clock_end",
    ".balign 16",
    "fencepost_clock_start:",
    ".ascii \"fencepost-clock1\"",
    "20: .skip 32", // Bends::wall
    "21: .skip 32", // Bends::monotonic
    // clock_gettime(edi: clock, rsi: *timespec)
    ".balign 16",
    "fencepost_clock_gettime:",
    "30: mov eax, 228",
    "syscall",
    "test eax, eax",
    "jnz 39f",
    "cmp edi, 11",
    "ja 39f",
    "mov ecx, 0x921", // clocks 0, 5, 8, 11: wall
    "bt ecx, edi",
    "jc 31f",
    "mov ecx, 0x2d2", // clocks 1, 4, 6, 7, 9: monotonic
    "bt ecx, edi",
    "jnc 39f",
    "lea r10, [rip + 21b]",
    "jmp 32f",
    "31: lea r10, [rip + 20b]",
    // The true reading in nanoseconds: rax, kept in r8.
    "32: imul rax, qword ptr [rsi], 1000000000",
    "add rax, qword ptr [rsi + 8]",
    "mov r8, rax",
    "mov r9, rax",
    "sub r9, qword ptr [r10 + 8]", // time gone since `since`
    "mov rcx, qword ptr [r10 + 16]",
    "test rcx, rcx",
    "jz 33f",
    "mov rax, r9",
    "imul rcx",
    "shrd rax, rdx, 32",
    "add r8, rax",
    "33: mov rcx, qword ptr [r10 + 24]",
    "test rcx, rcx",
    "jz 34f",
    "mov rax, r9",
    "cqo",
    "idiv rcx",
    "test al, 1",
    "jnz 35f",
    "34: add r8, qword ptr [r10]",
    "35: xor eax, eax",
    "test r8, r8",
    "cmovns rax, r8",
    "cqo",
    "mov ecx, 1000000000",
    "idiv rcx",
    "mov qword ptr [rsi], rax",
    "mov qword ptr [rsi + 8], rdx",
    "xor eax, eax",
    "39: ret",
    // gettimeofday(rdi: *timeval, rsi: *timezone)
    ".balign 16",
    "fencepost_clock_timeofday:",
    "test rsi, rsi",
    "jz 41f",
    "push rdi",
    "xor edi, edi",
    "mov eax, 96",
    "syscall",
    "pop rdi",
    "41: test rdi, rdi",
    "jz 42f",
    "push rdi",
    "sub rsp, 16",
    "xor edi, edi",
    "mov rsi, rsp",
    "call 30b",
    "mov rax, qword ptr [rsp + 8]",
    "xor edx, edx",
    "mov ecx, 1000",
    "div rcx",
    "mov rcx, qword ptr [rsp]",
    "add rsp, 16",
    "pop rdi",
    "mov qword ptr [rdi], rcx",
    "mov qword ptr [rdi + 8], rax",
    "42: xor eax, eax",
    "ret",
    // time(rdi: *time_t)
    ".balign 16",
    "fencepost_clock_time:",
    "push rdi",
    "sub rsp, 16",
    "xor edi, edi",
    "mov rsi, rsp",
    "call 30b",
    "mov rax, qword ptr [rsp]",
    "add rsp, 16",
    "pop rdi",
    "test rdi, rdi",
    "jz 51f",
    "mov qword ptr [rdi], rax",
    "51: ret",
    "fencepost_clock_end:",
    ".popsection",
);

unsafe extern "C" {
    static fencepost_clock_start: u8;
    static fencepost_clock_gettime: u8;
    static fencepost_clock_timeofday: u8;
    static fencepost_clock_time: u8;
    static fencepost_clock_end: u8;
}

/// Where the data begins, after the 16 bytes that mark the code as ours.
pub const DATA: usize = 16;

/// The code with these bends in it.
pub fn assembled(bends: &Bends) -> Vec<u8> {
    // SAFETY: the labels bound one read-only object of this binary.
    let mut code = unsafe {
        let start = &raw const fencepost_clock_start;
        std::slice::from_raw_parts(start, offset(&raw const fencepost_clock_end)).to_vec()
    };
    code[DATA..DATA + Bends::SIZE].copy_from_slice(&bends.bytes());
    code
}

/// Offset of the replacement of a vDSO function in the code.
pub fn entry(symbol: &str) -> Option<usize> {
    // Addresses only; nothing is read.
    match symbol {
        "__vdso_clock_gettime" => Some(offset(&raw const fencepost_clock_gettime)),
        "__vdso_gettimeofday" => Some(offset(&raw const fencepost_clock_timeofday)),
        "__vdso_time" => Some(offset(&raw const fencepost_clock_time)),
        _ => None,
    }
}

fn offset(label: *const u8) -> usize {
    label as usize - (&raw const fencepost_clock_start) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vdso::bend::Bend;

    /// Runs the assembled code in this very process, from a page of its own.
    #[test]
    fn the_code_does_what_bend_says() {
        let now = crate::vdso::bend::wall_now();
        let cases = [
            Bend::default(),
            Bend {
                offset: 3_600_000_000_000,
                ..Bend::default()
            },
            Bend {
                offset: -3_600_000_000_001,
                ..Bend::default()
            },
            Bend {
                since: now - 9_000_000_000,
                rate: 1 << 31,
                ..Bend::default()
            },
            Bend {
                since: now - 9_000_000_000,
                rate: -(1 << 31),
                ..Bend::default()
            },
            Bend {
                offset: 5_000_000_000,
                since: now - 1,
                period: i64::MAX,
                ..Bend::default()
            },
            Bend {
                offset: 5_000_000_000,
                since: now - 100_000_000_000,
                period: 100_000_000_000,
                ..Bend::default()
            },
            Bend {
                offset: i64::MIN / 2,
                ..Bend::default()
            },
        ];
        for wall in cases {
            let code = Page::new(&assembled(&Bends {
                wall,
                monotonic: Bend::default(),
            }));
            let before = crate::vdso::bend::wall_now();
            let read = code.gettime(0);
            let (sec, usec) = code.timeofday();
            let time = code.time();
            let after = crate::vdso::bend::wall_now();
            let range = wall.apply(before)..=wall.apply(after);
            assert!(range.contains(&read), "{wall:?} {range:?} {read}");
            let slack = wall.apply(before) / 1000..=wall.apply(after) / 1000;
            assert!(slack.contains(&(sec * 1_000_000 + usec)), "{wall:?}");
            assert!((range.start() / 1_000_000_000..=range.end() / 1_000_000_000).contains(&time));
            let mono = crate::vdso::bend::monotonic_now();
            assert!(
                (code.gettime(1) - mono).abs() < 1_000_000_000,
                "monotonic is not bent"
            );
        }
    }

    #[test]
    fn each_clock_is_bent_alone() {
        let monotonic = Bend {
            offset: 7_000_000_000,
            ..Bend::default()
        };
        let code = Page::new(&assembled(&Bends {
            wall: Bend::default(),
            monotonic,
        }));
        let off = code.gettime(1) - crate::vdso::bend::monotonic_now();
        assert!((6_900_000_000..=7_100_000_000).contains(&off));
        assert!((code.gettime(0) - crate::vdso::bend::wall_now()).abs() < 100_000_000);
        assert!(code.gettime(2) < 3_600_000_000_000, "cpu time is not bent");
        assert_eq!(code.gettime_raw(99).0, -22, "EINVAL passes through");
    }

    struct Page(*mut u8);

    impl Page {
        fn new(code: &[u8]) -> Page {
            assert!(code.len() <= 1024);
            // SAFETY: a fresh private page, filled before it is made executable.
            unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let rw = libc::PROT_READ | libc::PROT_WRITE;
                let page = libc::mmap(std::ptr::null_mut(), 4096, rw, flags, -1, 0).cast::<u8>();
                assert_ne!(page as isize, -1);
                std::ptr::copy_nonoverlapping(code.as_ptr(), page, code.len());
                assert_eq!(
                    libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_EXEC),
                    0
                );
                Page(page)
            }
        }

        fn at(&self, symbol: &str) -> *const u8 {
            self.0.wrapping_add(entry(symbol).unwrap_or_default())
        }

        fn gettime_raw(&self, clock: i32) -> (i32, [i64; 2]) {
            let mut ts = [0i64; 2];
            // SAFETY: the code follows the System V ABI and writes 16 bytes to `ts`.
            let rc = unsafe {
                let f: extern "C" fn(i32, *mut i64) -> i32 =
                    std::mem::transmute(self.at("__vdso_clock_gettime"));
                f(clock, ts.as_mut_ptr())
            };
            (rc, ts)
        }

        fn gettime(&self, clock: i32) -> i64 {
            let (rc, ts) = self.gettime_raw(clock);
            assert_eq!(rc, 0);
            ts[0] * 1_000_000_000 + ts[1]
        }

        fn timeofday(&self) -> (i64, i64) {
            let (mut tv, mut tz) = ([0i64; 2], [0i32; 2]);
            // SAFETY: as above; 16 bytes to `tv`, 8 to `tz`.
            unsafe {
                let f: extern "C" fn(*mut i64, *mut i32) -> i32 =
                    std::mem::transmute(self.at("__vdso_gettimeofday"));
                assert_eq!(f(tv.as_mut_ptr(), tz.as_mut_ptr()), 0);
                assert_eq!(f(std::ptr::null_mut(), tz.as_mut_ptr()), 0);
            }
            (tv[0], tv[1])
        }

        fn time(&self) -> i64 {
            let mut also = 0i64;
            // SAFETY: as above; 8 bytes to `also`.
            let t = unsafe {
                let f: extern "C" fn(*mut i64) -> i64 = std::mem::transmute(self.at("__vdso_time"));
                f(&raw mut also)
            };
            assert_eq!(t, also);
            t
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: ours, and no longer run.
            unsafe { libc::munmap(self.0.cast(), 4096) };
        }
    }
}
