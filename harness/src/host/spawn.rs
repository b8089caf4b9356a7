//! Starting programs of this machine: each in a session of its own, in its namespace, and bound to
//! die with this process.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use nix::{
    sched::CloneFlags,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    sync::{oneshot, watch},
};

use super::{HostError, RunAs, Unit, UnitId, namespace::NetNs, proc};

/// In the environment of everything that a run starts, so that it can be found again.
pub const RUN_VAR: &str = "FENCEPOST_RUN";

pub(super) struct Launch<'a> {
    pub run_id: &'a str,
    pub program: &'a Path,
    pub args: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    pub cwd: Option<&'a Path>,
    pub netns: Option<&'a NetNs>,
    pub run_as: RunAs,
    /// Piped stdin and stdout; otherwise nothing and the log.
    pub piped: bool,
    pub log: &'a Path,
}

/// Executes the program. Returns once `exec` succeeded.
pub(super) async fn launch(id: UnitId, l: Launch<'_>) -> Result<Child, HostError> {
    let log = open_log(l.log)?;
    let mut command = Command::new(l.program);
    command
        .args(l.args)
        .envs(l.env)
        .env(RUN_VAR, l.run_id)
        .stderr(log.try_clone().map_err(HostError::io(l.log.display()))?)
        .kill_on_drop(true);
    if l.piped {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        command.stdin(Stdio::null()).stdout(log);
    }
    if let Some(cwd) = l.cwd {
        command.current_dir(cwd);
    }
    let inside = Inside {
        netns: l.netns.map(|n| std::os::fd::AsFd::as_fd(n).as_raw_fd()),
        drop_to: match l.run_as {
            RunAs::Same => None,
            RunAs::Unprivileged => super::unprivileged::how(),
        },
        parent: std::process::id() as i32,
    };
    // SAFETY: `enter` makes only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(move || inside.enter());
    }
    let program = l.program.display().to_string();
    keeper_spawn(command).await.map_err(|e| HostError::Start {
        id,
        reason: format!("{program}: {e}"),
    })
}

fn open_log(path: &Path) -> Result<File, HostError> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(HostError::io(dir.display()))?;
    }
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(HostError::io(path.display()))
}

/// What the child does to itself before it becomes the program.
struct Inside {
    netns: Option<RawFd>,
    drop_to: Option<super::unprivileged::Drop>,
    parent: i32,
}

impl Inside {
    fn enter(&self) -> io::Result<()> {
        nix::unistd::setsid()?;
        if let Some(fd) = self.netns {
            // SAFETY: a plain system call on a descriptor that the parent keeps open.
            if unsafe { libc::setns(fd, CloneFlags::CLONE_NEWNET.bits()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if let Some(how) = &self.drop_to {
            how.apply()?;
        }
        // After the last change of credentials, which would reset it.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if nix::unistd::getppid().as_raw() != self.parent {
            return Err(io::Error::other("the harness is gone"));
        }
        Ok(())
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The parent-death signal comes when the *thread* that forked ends, and the runtime's threads come
/// and go: so one thread, which lives as long as the process, forks for all.
async fn keeper_spawn(mut command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, work) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || work.into_iter().for_each(|job| job()))
            .map_or_else(|_| mpsc::channel().0, |_| jobs)
    });
    let runtime = tokio::runtime::Handle::current();
    let (done, result) = oneshot::channel();
    let job: Job = Box::new(move || {
        let _entered = runtime.enter();
        let _ = done.send(command.spawn());
    });
    keeper
        .send(job)
        .map_err(|_| io::Error::other("the thread that starts processes is gone"))?;
    result
        .await
        .map_err(|_| io::Error::other("the thread that starts processes is gone"))?
}

/// Watches a child: its unit has a pid as long as it runs.
pub(super) fn watch_exit(
    unit: &Arc<Unit>,
    mut child: Child,
) -> watch::Receiver<Option<ExitStatus>> {
    let (tell, exit) = watch::channel(None);
    let pid = child.id().and_then(|p| i32::try_from(p).ok());
    unit.set_pid(pid);
    let unit = Arc::clone(unit);
    tokio::spawn(async move {
        let status = child.wait().await;
        if unit.pid() == pid {
            unit.set_pid(None);
        }
        let _ = tell.send(status.ok());
    });
    exit
}

/// SIGKILL to the process, its descendants and its session, until none is left.
/// Answers those that did not go within `within`.
pub async fn kill_all(root: i32, within: Duration) -> Vec<i32> {
    let end = tokio::time::Instant::now() + within;
    let mut known: Vec<i32> = vec![root];
    loop {
        known.extend(proc::tree(root));
        known.extend(proc::session(root));
        known.sort_unstable();
        known.dedup();
        known.retain(|p| proc::alive(*p));
        if known.is_empty() || tokio::time::Instant::now() >= end {
            return known;
        }
        for pid in &known {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The program's path: this very binary for `fencepost`, else the first on PATH and in the places
/// where Debian keeps servers.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name == "fencepost" {
        return std::env::current_exe().ok();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let postgres = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let postgres = postgres.filter_map(|v| Some(v.ok()?.path().join("bin")));
    std::env::split_paths(&path)
        .chain(more)
        .chain(postgres)
        .map(|dir| dir.join(name))
        .find(|p| is_executable(p))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
