//! Putting the code into a stopped process, and taking it out again.

use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bend::Bends;
use super::image::Image;
use crate::process::{Stat, thread_states};
use crate::receipt::Reason;

/// A jump to a place within 2 GiB.
const JUMP: usize = 5;
const WAIT: Duration = Duration::from_secs(3);

/// A process whose vDSO is ours now.
#[derive(Clone, Debug)]
pub struct Patched {
    pub pid: i32,
    /// As it was.
    pub original: Image,
    code: Range<usize>,
    /// Offsets of the functions that jump.
    entries: Vec<usize>,
}

/// A process stopped by SIGSTOP; dropping it continues it, unless it was stopped before.
struct Frozen {
    pid: i32,
    ours: bool,
}

impl Frozen {
    /// Stops it with no thread's instruction pointer in `hot` (addresses).
    fn with_nobody_in(pid: i32, hot: &[Range<u64>]) -> Result<Frozen, Reason> {
        let ours = Stat::of(pid).is_some_and(|s| !s.is_stopped());
        let deadline = Instant::now() + WAIT;
        loop {
            let frozen = Frozen { pid, ours };
            if ours {
                signal(pid, Signal::SIGSTOP)?;
            }
            while !thread_states(pid).iter().all(|(_, s)| *s == 'T') {
                if Instant::now() > deadline {
                    return Err(Reason(format!("process {pid} does not stop")));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            if !instruction_pointers(pid)?
                .iter()
                .any(|ip| hot.iter().any(|r| r.contains(ip)))
            {
                return Ok(frozen);
            }
            if !ours || Instant::now() > deadline {
                return Err(Reason(format!(
                    "a thread of process {pid} stays in the vDSO"
                )));
            }
            drop(frozen);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.ours {
            // Gone meanwhile: then there is nobody to continue.
            let _ = signal(self.pid, Signal::SIGCONT);
        }
    }
}

fn signal(pid: i32, s: Signal) -> Result<(), Reason> {
    kill(Pid::from_raw(pid), s).map_err(|e| Reason(format!("cannot signal process {pid}: {e}")))
}

/// Of all threads of a stopped process: the last word of `/proc/PID/task/TID/syscall` (proc(5)).
fn instruction_pointers(pid: i32) -> Result<Vec<u64>, Reason> {
    let failed = |e: &dyn std::fmt::Display| {
        Reason(format!(
            "cannot see where the threads of process {pid} are: {e}"
        ))
    };
    let mut all = Vec::new();
    for (tid, _) in thread_states(pid) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))
            .map_err(|e| failed(&e))?;
        let last = text
            .split_whitespace()
            .last()
            .and_then(|w| w.strip_prefix("0x"));
        let ip = last.and_then(|w| u64::from_str_radix(w, 16).ok());
        all.push(ip.ok_or_else(|| failed(&format!("{:?}", text.trim())))?);
    }
    Ok(all)
}

/// Bends the clocks of one process. All its threads are stopped for a moment, and none of them is in
/// the bytes that change.
///
/// # Errors
/// When the processor is another, the process is gone or may not be written to, or its vDSO has no
/// room or is ours already.
#[cfg(target_arch = "x86_64")]
pub fn install(pid: i32, bends: &Bends) -> Result<Patched, Reason> {
    use super::{code, image::FUNCTIONS};

    let original = Image::of(pid)?;
    let bytes = code::assembled(bends);
    if original
        .bytes
        .windows(code::DATA)
        .any(|w| *w == bytes[..code::DATA])
    {
        return Err(Reason(format!(
            "the clock of process {pid} is bent already"
        )));
    }
    let at = original.room(bytes.len()).ok_or_else(|| {
        Reason(format!(
            "the vDSO of process {pid} has no room for our code"
        ))
    })?;
    let mut jumps = Vec::new();
    for name in FUNCTIONS {
        let (Some(from), Some(entry)) = (original.symbol(name), code::entry(name)) else {
            return Err(Reason(format!("the vDSO of process {pid} has no {name}")));
        };
        let distance = i32::try_from((at + entry) as i64 - (from + JUMP) as i64);
        let distance = distance.map_err(|_| Reason::new("the vDSO is larger than 2 GiB"))?;
        let mut jump = vec![0xe9];
        jump.extend(distance.to_le_bytes());
        jumps.push((from, jump));
    }
    let patched = Patched {
        pid,
        code: at..at + bytes.len(),
        entries: jumps.iter().map(|(from, _)| *from).collect(),
        original,
    };
    let _frozen = Frozen::with_nobody_in(pid, &patched.hot_entries())?;
    let mut image = patched.original.clone();
    image.write(pid, at, &bytes)?;
    for (from, jump) in jumps {
        if let Err(r) = image.write(pid, from, &jump) {
            // Half a patch is still a consistent one; take out what went in.
            let _ = patched.put_back_entries();
            return Err(r);
        }
    }
    Ok(patched)
}

/// Elsewhere there is no such code.
///
/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub fn install(_pid: i32, _bends: &Bends) -> Result<Patched, Reason> {
    Err(supported()
        .err()
        .unwrap_or_else(|| Reason::new("clock faults need x86-64")))
}

/// Whether clocks can be bent on this processor.
///
/// # Errors
/// The line to show where they cannot.
pub fn supported() -> Result<(), Reason> {
    if cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    let arch = std::env::consts::ARCH;
    Err(Reason(format!(
        "clock faults rewrite x86-64 code: not possible on {arch}"
    )))
}

impl Patched {
    fn hot_entries(&self) -> Vec<Range<u64>> {
        let base = self.original.base;
        self.entries
            .iter()
            .map(|e| base + *e as u64..base + (e + JUMP) as u64)
            .collect()
    }

    fn hot_code(&self) -> Range<u64> {
        let base = self.original.base;
        base + self.code.start as u64..base + self.code.end as u64
    }

    /// Of the same kind in a process that was forked from this one: same addresses, same bytes.
    pub fn in_child(&self, pid: i32) -> Patched {
        Patched {
            pid,
            ..self.clone()
        }
    }

    /// Whether the process, as it is now, has our code at the same place.
    pub fn is_in(&self, pid: i32) -> bool {
        let Ok(now) = Image::of(pid) else {
            return false;
        };
        now.base == self.original.base
            && now.bytes.len() == self.original.bytes.len()
            && self
                .entries
                .iter()
                .any(|e| now.bytes[*e..e + JUMP] != self.original.bytes[*e..e + JUMP])
    }

    fn put_back_entries(&self) -> Result<(), Reason> {
        let mut image = self.original.clone();
        for e in &self.entries {
            let was = self.original.bytes[*e..e + JUMP].to_vec();
            image.write(self.pid, *e, &was)?;
        }
        Ok(())
    }

    /// Restores the original bytes: first the entries, then, when no thread can be in it any
    /// more, the code. A signal handler may have interrupted it and return there: hence the
    /// wait between the two.
    ///
    /// # Errors
    /// When the bytes differ from the original ones afterwards. A process that is gone is restored.
    pub fn restore(&self) -> Result<(), Reason> {
        if !Stat::of(self.pid).is_some_and(|s| s.is_alive()) {
            return Ok(());
        }
        let work = || {
            let frozen = Frozen::with_nobody_in(self.pid, &self.hot_entries())?;
            self.put_back_entries()?;
            drop(frozen);
            std::thread::sleep(Duration::from_millis(20));
            let _frozen = Frozen::with_nobody_in(self.pid, &[self.hot_code()])?;
            let was = self.original.bytes[self.code.clone()].to_vec();
            self.original
                .clone()
                .write(self.pid, self.code.start, &was)?;
            if Image::of(self.pid)? == self.original {
                return Ok(());
            }
            Err(Reason(format!(
                "the vDSO of process {} differs from before",
                self.pid
            )))
        };
        match work() {
            Err(_) if !Stat::of(self.pid).is_some_and(|s| s.is_alive()) => Ok(()),
            other => other,
        }
    }
}
