//! What both hosts share: programs of this machine in namespaces of their own.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    HostError, HostOptions, NetMode, Process, ProcessSpec, RunAs, Site, Unit, UnitId,
    namespace::NetNs,
    net::{self, Plug},
    proc,
    register::Registration,
    spawn::{self, Launch, RUN_VAR},
};

/// How long a killed process may take to go: only one in uninterruptible sleep takes longer.
pub(super) const KILL_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Machine {
    pub options: HostOptions,
    pub site: Site,
    /// Prefix of veth names, unique in this process's network namespace.
    pub veth: String,
    pub register: Mutex<Registration>,
    units: Mutex<Vec<Arc<Unit>>>,
}

impl Machine {
    pub fn new(options: HostOptions, site: Site, veth: String, register: Registration) -> Self {
        Self {
            options,
            site,
            veth,
            register: Mutex::new(register),
            units: Mutex::default(),
        }
    }

    pub fn log_path(&self, id: UnitId) -> PathBuf {
        let name = format!("{}.log", id.file_name());
        self.options.run_dir.join("logs").join(name)
    }

    pub fn scratch(&self) -> PathBuf {
        lock(&self.register).scratch.clone()
    }

    /// A namespace for the unit, with its address; None in loopback mode.
    pub async fn namespace(&self, id: UnitId) -> Result<Option<Arc<NetNs>>, HostError> {
        let NetMode::Bridge { bridge, prefix, .. } = self.site.net.clone() else {
            return Ok(None);
        };
        let letter = match id {
            UnitId::Node(i) => format!("n{i}"),
            UnitId::Worker(i) => format!("w{i}"),
            UnitId::Witness => "s".into(),
        };
        let veth = format!("{}{letter}", self.veth);
        let addr = self.site.addr(id);
        blocking(move || {
            let ns = NetNs::create()?;
            let at = Plug {
                bridge: &bridge,
                veth,
                addr,
                prefix,
            };
            net::plug(&ns, &at)?;
            Ok(Some(Arc::new(ns)))
        })
        .await
    }

    /// Remembers a unit, so that stopping ends it.
    pub fn note(&self, unit: &Arc<Unit>) -> Result<(), HostError> {
        lock(&self.units).push(Arc::clone(unit));
        self.note_pid(unit)
    }

    pub fn note_pid(&self, unit: &Unit) -> Result<(), HostError> {
        match unit.pid() {
            Some(pid) => lock(&self.register).child(pid),
            None => Ok(()),
        }
    }

    pub async fn start_process(&self, spec: ProcessSpec) -> Result<Process, HostError> {
        let netns = self.namespace(spec.id).await?;
        let launch = Launch {
            run_id: &self.options.run_id,
            program: &spec.program,
            args: &spec.args,
            env: &spec.env,
            cwd: None,
            netns: netns.as_deref(),
            run_as: RunAs::Same,
            piped: true,
            log: &self.log_path(spec.id),
        };
        let mut child = spawn::launch(spec.id, launch).await?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(HostError::Start {
                id: spec.id,
                reason: "no pipes".into(),
            });
        };
        let unit = Arc::new(Unit::new(
            spec.id,
            spec.id.file_name(),
            self.site.addr(spec.id),
            netns,
        ));
        let exit = spawn::watch_exit(&unit, child);
        self.note(&unit)?;
        Ok(Process {
            unit,
            stdin,
            stdout,
            exit,
        })
    }

    /// Kills every unit, and whatever else carries the run's mark.
    pub async fn kill_everything(&self) -> Result<(), HostError> {
        let units = std::mem::take(&mut *lock(&self.units));
        let mut left = Vec::new();
        for unit in units {
            if let Some(pid) = unit.pid() {
                left.extend(spawn::kill_all(pid, KILL_WITHIN).await);
            }
        }
        for pid in proc::with_env(RUN_VAR, &self.options.run_id) {
            left.extend(spawn::kill_all(pid, KILL_WITHIN).await);
        }
        if left.is_empty() {
            return Ok(());
        }
        Err(HostError::Unavailable {
            what: "stopping the run".into(),
            reason: format!("processes {left:?} ignore SIGKILL"),
            hint: "they wait for a device; see their state in /proc".into(),
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for unit in lock(&self.units).iter() {
            for pid in unit.pids() {
                let pid = nix::unistd::Pid::from_raw(pid);
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

pub(super) fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` where it may block.
pub(super) async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|e| {
        Err(HostError::Io {
            what: "a blocking task".into(),
            source: std::io::Error::other(e),
        })
    })
}
