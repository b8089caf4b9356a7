//! The processes that descend from this one: none may go on when the lock is lost.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

/// How long processes may take to die: one in the kernel's hands does not hear.
const DYING: Duration = Duration::from_secs(5);

/// From now on descendants whose parent has ended are this process's children, so that none gets lost.
pub fn adopt_orphans() {
    let on: libc::c_ulong = 1;
    // SAFETY: it takes a flag and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, on) };
}

/// To be called in a child before it becomes another program: it dies with its parent.
pub fn die_with(parent: u32) -> io::Result<()> {
    let signal = libc::SIGKILL as libc::c_ulong;
    // SAFETY: both touch no memory, and may be called between fork and exec.
    let orphan = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
        libc::getppid().cast_unsigned() != parent
    };
    match orphan {
        true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        false => Ok(()),
    }
}

/// Sends a signal to a process; one that has ended does not mind.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: it touches no memory.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Buries the children that were adopted; the one that is awaited is left to who awaits it.
pub fn bury_orphans(awaited: u32) {
    loop {
        // SAFETY: `info` is a valid place for what the call says; with WNOWAIT nothing is taken from anybody.
        let found = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            match libc::waitid(libc::P_ALL, 0, &mut info, how) {
                0 => info.si_pid(),
                _ => 0,
            }
        };
        if found <= 0 || found.cast_unsigned() == awaited {
            return;
        }
        // SAFETY: the status is not asked for.
        unsafe { libc::waitpid(found, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Kills all descendants, those too that are born meanwhile.
pub fn kill_all() {
    let until = Instant::now() + DYING;
    while Instant::now() < until {
        let alive = descendants();
        if alive.is_empty() {
            return;
        }
        for pid in alive {
            signal(pid, libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Descendants that live.
fn descendants() -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let numbered =
        |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    for pid in std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(numbered)
    {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![std::process::id()];
    while let Some(pid) = next.pop() {
        let of = children.remove(&pid).unwrap_or_default();
        next.extend(&of);
        found.extend(of);
    }
    found
}

/// The parent of a process that lives: a zombie has no children any more.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}
