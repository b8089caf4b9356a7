//! Network namespaces: the run's own, which the whole process enters before it has threads, and one
//! for each unit. They live as long as a descriptor or a process holds them, so nothing of
//! them is left after `kill -9`.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::PathBuf,
    sync::OnceLock,
};

use nix::{
    mount::MsFlags,
    sched::{CloneFlags, setns, unshare},
    unistd::{getgid, getuid},
};

use super::HostError;

/// What [`enter_run_namespace`] achieved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Namespaces of our own by privilege.
    Root,
    /// Namespaces of our own inside a user namespace, as its root.
    User,
    /// Refused: units share the machine's network, on loopback addresses.
    Loopback { reason: String },
}

static REAL_UID: OnceLock<u32> = OnceLock::new();
static MODE: OnceLock<Mode> = OnceLock::new();

/// The user who started this process, also inside the user namespace (where `getuid` says 0).
#[must_use]
pub fn real_uid() -> u32 {
    *REAL_UID.get_or_init(|| getuid().as_raw())
}

/// What [`enter_run_namespace`] said, if it was called.
#[must_use]
pub fn mode() -> Option<&'static Mode> {
    MODE.get()
}

/// Moves this process into fresh network and mount namespaces; without privilege, into a user namespace
/// first. For the local host, to be called from `main` while there is one thread.
pub fn enter_run_namespace() -> &'static Mode {
    MODE.get_or_init(|| {
        let _before_any_user_namespace = real_uid();
        if std::env::var_os("FENCEPOST_NO_NAMESPACES").is_some() {
            return Mode::Loopback {
                reason: "FENCEPOST_NO_NAMESPACES is set".into(),
            };
        }
        enter()
    })
}

fn enter() -> Mode {
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    if unshare(flags).is_ok() {
        private_mounts();
        return Mode::Root;
    }
    let (uid, gid) = (getuid(), getgid());
    let user = unshare(flags | CloneFlags::CLONE_NEWUSER)
        .map_err(|e| format!("user namespaces are refused ({e})"))
        .and_then(|()| {
            let write = |file: &str, text: String| {
                std::fs::write(format!("/proc/self/{file}"), text)
                    .map_err(|e| format!("/proc/self/{file}: {e}"))
            };
            write("setgroups", "deny".into())?;
            write("uid_map", format!("0 {uid} 1"))?;
            write("gid_map", format!("0 {gid} 1"))
        });
    match user {
        Ok(()) => {
            private_mounts();
            Mode::User
        }
        Err(reason) => Mode::Loopback { reason },
    }
}

/// Mounts of ours shall not be seen by the machine; the machine's own go on arriving here.
fn private_mounts() {
    let none: Option<&str> = None;
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    if let Err(e) = nix::mount::mount(none, "/", none, flags, none) {
        tracing::warn!("mounts of this run are visible to the machine: {e}");
    }
}

/// A network namespace that lives as long as this value, whatever runs in it.
#[derive(Debug)]
pub struct NetNs {
    file: File,
}

impl NetNs {
    /// # Errors
    /// Without CAP_SYS_ADMIN in this process's user namespace.
    pub fn create() -> Result<Self, HostError> {
        // unshare acts on a thread: one of its own, which ends and leaves the descriptor.
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = joined(made).map_err(HostError::io("a network namespace"))?;
        quiet(&file);
        Ok(Self { file })
    }

    /// Opens an existing one, such as a container's.
    ///
    /// # Errors
    /// When there is no such file or it may not be opened.
    pub fn open(path: PathBuf) -> Result<Self, HostError> {
        let file = File::open(&path).map_err(HostError::io(path.display()))?;
        Ok(Self { file })
    }

    /// A path by which this process can enter it at any later time.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Runs `f` on a thread that is inside.
    ///
    /// # Errors
    /// What `f` says, or that it could not enter.
    pub fn run<T: Send>(
        &self,
        f: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> std::io::Result<T> {
        let fd = self.file.as_fd();
        std::thread::scope(|s| {
            let inside = s.spawn(move || {
                setns(fd, CloneFlags::CLONE_NEWNET)?;
                f()
            });
            inside
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("the namespace's thread panicked")))
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn joined<T>(thread: std::thread::JoinHandle<std::io::Result<T>>) -> std::io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(std::io::Error::other("the namespace's thread panicked")))
}

/// No IPv6 in there: its neighbour discovery is only noise. Best effort.
fn quiet(file: &File) {
    let fd = file.as_fd();
    std::thread::scope(|s| {
        s.spawn(move || {
            if setns(fd, CloneFlags::CLONE_NEWNET).is_ok() {
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            }
        });
    });
}
