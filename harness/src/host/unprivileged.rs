//! Starting a server that refuses to be root.

use std::{ffi::CStr, io, sync::OnceLock};

/// What a child does after fork; every value is ready, so that it allocates nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Drop {
    /// We are the machine's root: become `nobody`.
    To { uid: u32, gid: u32 },
    /// We are root in a user namespace only: a further one in which we are an ordinary user.
    NestedUser { map: &'static CStr },
}

/// Debian's `nobody`; it exists on every machine and in every user namespace that maps it.
pub(super) const NOBODY: u32 = 65534;

/// None where we are no root in the first place.
pub(super) fn how() -> Option<Drop> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    Some(match super::namespace::mode() {
        Some(super::namespace::Mode::User) => Drop::NestedUser { map: c"1000 0 1" },
        _ => Drop::To {
            uid: NOBODY,
            gid: NOBODY,
        },
    })
}

/// The owner that a node's data directory needs, if it is not ours.
pub(super) fn owner() -> Option<(u32, u32)> {
    static OWNER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *OWNER.get_or_init(|| match how() {
        Some(Drop::To { uid, gid }) => Some((uid, gid)),
        _ => None,
    })
}

impl Drop {
    /// Async-signal-safe.
    pub(super) fn apply(&self) -> io::Result<()> {
        match *self {
            // SAFETY: plain system calls.
            Self::To { uid, gid } => unsafe {
                check(libc::setgroups(0, std::ptr::null()))?;
                check(libc::setgid(gid))?;
                check(libc::setuid(uid))
            },
            Self::NestedUser { map } => {
                // SAFETY: a plain system call; the child has one thread.
                check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
                write(c"/proc/self/setgroups", c"deny")?;
                write(c"/proc/self/uid_map", map)?;
                write(c"/proc/self/gid_map", map)
            }
        }
    }
}

fn write(path: &CStr, text: &CStr) -> io::Result<()> {
    let bytes = text.to_bytes();
    // SAFETY: the pointers are valid for the calls, and the descriptor is ours.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(fd)?;
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = check(if written < 0 { -1 } else { 0 });
        libc::close(fd);
        result
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
