//! Processes and an environment for this crate's tests.
#![allow(clippy::unwrap_used)]

pub mod net;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::env::{Data, Env, LeaderHint, Restart};
use crate::fault::{Fut, Order};
use crate::process::{Members, Proc, ProcId};

/// A child in a process group of its own; the whole group dies with it.
pub struct Started {
    pub child: Child,
}

impl Started {
    pub fn new(command: &mut Command) -> Self {
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Started { child }
    }

    pub fn shell(script: &str) -> Self {
        Self::new(Command::new("sh").args(["-c", script]))
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn proc(&self, id: ProcId) -> Proc {
        let root = self.pid();
        Proc {
            id,
            root,
            members: Members::Group(root),
            netns: None,
            addr: None,
            port: None,
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(-self.pid()),
            nix::sys::signal::Signal::SIGKILL,
        );
        let _ = self.child.wait();
    }
}

/// An environment over processes that a test started.
#[derive(Default)]
pub struct TestEnv {
    pub procs: Mutex<BTreeMap<ProcId, Proc>>,
    pub leader: Option<ProcId>,
    pub holder: Option<ProcId>,
    /// Starts `sleep` anew when asked to restart, if true.
    pub restarts: bool,
    /// Makes the copies that it is asked for.
    pub copies: bool,
    pub started: Mutex<Vec<(ProcId, Data, Started)>>,
}

impl TestEnv {
    pub fn of(procs: impl IntoIterator<Item = Proc>) -> Self {
        let procs = procs.into_iter().map(|p| (p.id, p)).collect();
        TestEnv {
            procs: Mutex::new(procs),
            ..TestEnv::default()
        }
    }

    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}

impl Env for TestEnv {
    fn run_id(&self) -> &'static str {
        "testrun"
    }

    fn procs(&self) -> Vec<Proc> {
        self.procs.lock().unwrap().values().cloned().collect()
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn holder(&self, _lock: Option<&str>) -> Option<ProcId> {
        self.holder
    }

    fn restart(&self) -> Option<&dyn Restart> {
        self.restarts.then_some(self)
    }

    fn leader_hint(&self) -> Option<&dyn LeaderHint> {
        self.leader.is_some().then_some(self)
    }
}

impl LeaderHint for TestEnv {
    fn leader(&self) -> Fut<'_, Option<ProcId>> {
        Box::pin(async { self.leader })
    }
}

impl Restart for TestEnv {
    fn expect_exit(&self, _id: ProcId) {}

    fn snapshot(&self, _id: ProcId) -> Fut<'_, Result<(), String>> {
        let made = if self.copies {
            Ok(())
        } else {
            Err("refused".into())
        };
        Box::pin(async { made })
    }

    fn start(&self, id: ProcId, data: Data) -> Fut<'_, Result<Proc, String>> {
        Box::pin(async move {
            let s = Started::shell("sleep 600");
            let p = s.proc(id);
            self.started.lock().unwrap().push((id, data, s));
            self.procs.lock().unwrap().insert(id, p.clone());
            Ok(p)
        })
    }
}

/// An order with these words as target.
pub fn order(fault: &str, target: &str, params: serde_json::Value) -> Order {
    Order {
        id: "f1".into(),
        fault: fault.into(),
        targets: serde_json::from_value(target.into()).unwrap(),
        params: params.as_object().cloned().unwrap_or_default(),
        draw: 7,
        lock: None,
        trigger: None,
    }
}

/// A runtime for one test.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}
