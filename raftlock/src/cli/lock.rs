//! `raftlock lock NAME -- COMMAND`: a command under a lock.

use std::io::{ErrorKind, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use raftlock_client::{Client, ClientOptions, Guard, Mode};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::{Endpoints, family};

/// Run a command while holding a lock; kill it, and all that it started, if the lock is lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct LockArgs {
    /// The lock's name
    name: String,
    #[command(flatten)]
    at: Endpoints,
    /// Session TTL, ms
    #[arg(long, default_value_t = 15_000)]
    ttl_ms: u64,
    /// How long to wait for the lock, ms; 0 tries only
    #[arg(long, default_value_t = 60_000)]
    wait_ms: u64,
    /// The command; it finds the fencing token in RAFTLOCK_FENCE and the name in RAFTLOCK_NAME
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

const EXIT_CODES: &str = "\
SIGTERM, SIGINT and SIGHUP go to the command; the lock is given back when it has ended. While this program stands still \
(SIGSTOP) it cannot kill: only the fencing token protects then.

Exit code: the command's, or 128 + the signal that ended it; 75 if the lock was not had, 76 if it was lost and the \
command was killed, 126 if the command cannot be run, 127 if there is none of that name.";

/// Exit code where the lock was not had.
const NOT_HELD: u8 = 75;
/// Exit code where it was lost and the command was killed.
const LOST: u8 = 76;
/// Exit codes of shells for a command that cannot be run, and for one that there is not.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs it; see [`EXIT_CODES`].
pub async fn run(args: LockArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let options = ClientOptions {
        ttl: Duration::from_millis(args.ttl_ms),
        label: format!("raftlock lock, pid {}", std::process::id()),
        security: args.at.secure.security(),
        ..ClientOptions::default()
    };
    let client = Client::new(&args.at.endpoints, options)?;
    let wait = Duration::from_millis(args.wait_ms);
    let guard = tokio::select! {
        asked = client.lock(&args.name, Mode::Exclusive, wait) => asked,
        signal = signals.next() => {
            client.close().await;
            return Ok(ExitCode::from(128 + signal as u8));
        }
    };
    let guard = match guard {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("raftlock: no lock on {}: {error}", args.name);
            client.close().await;
            return Ok(ExitCode::from(NOT_HELD));
        }
    };
    family::adopt_orphans();
    let code = match start(&args, guard.fence()) {
        Ok(child) => match watch(child, &guard, &mut signals).await? {
            Some(status) => code_of(status),
            None => {
                eprintln!(
                    "raftlock: the lock on {} was lost; killed the command",
                    args.name
                );
                return Ok(ExitCode::from(LOST));
            }
        },
        Err(error) => {
            eprintln!("raftlock: cannot run {}: {error}", args.command[0]);
            match error.kind() {
                ErrorKind::NotFound => NOT_FOUND,
                _ => CANNOT_RUN,
            }
        }
    };
    let _ = guard.release().await;
    client.close().await;
    Ok(ExitCode::from(code))
}

fn start(args: &LockArgs, fence: u64) -> std::io::Result<Child> {
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("RAFTLOCK_FENCE", fence.to_string())
        .env("RAFTLOCK_NAME", &args.name)
        .kill_on_drop(true);
    let parent = std::process::id();
    // SAFETY: what runs between fork and exec makes two system calls and touches no memory that a thread could hold.
    unsafe { command.pre_exec(move || family::die_with(parent)) };
    command.spawn()
}

/// Waits for the command's end; nothing if the lock was lost before, and then nothing of it runs any more.
async fn watch(
    mut child: Child,
    guard: &Guard,
    signals: &mut Signals,
) -> std::io::Result<Option<ExitStatus>> {
    let pid = child.id().unwrap_or_default();
    // A terminal sends its signals to the command as well.
    let at_terminal = std::io::stdin().is_terminal();
    let mut bury = interval(Duration::from_secs(1));
    bury.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            status = child.wait() => return status.map(Some),
            () = guard.lost() => {
                // At the local deadline the lock may be another's at once: no time for a friendly signal.
                family::kill_all();
                let _ = child.wait().await;
                return Ok(None);
            }
            signal = signals.next() => {
                if !(at_terminal && signal == libc::SIGINT) && pid != 0 {
                    family::signal(pid, signal);
                }
            }
            _ = bury.tick() => family::bury_orphans(pid),
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signalled).unwrap_or(1) as u8
}

/// The signals that ask this program to end.
struct Signals([(i32, Signal); 3]);

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let one = |kind: SignalKind| Ok::<_, std::io::Error>((kind.as_raw_value(), signal(kind)?));
        Ok(Signals([
            one(SignalKind::terminate())?,
            one(SignalKind::interrupt())?,
            one(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) -> i32 {
        let [(one, first), (two, second), (three, third)] = &mut self.0;
        tokio::select! {
            _ = first.recv() => *one,
            _ = second.recv() => *two,
            _ = third.recv() => *three,
        }
    }
}
