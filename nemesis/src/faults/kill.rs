//! SIGKILL (or SIGTERM) every process of the targets; healing starts them again.
//!
//! Proof is that the pids are gone; of healing, that a new process runs.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::Map;

use crate::env::{Data, Env};
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::process::{Proc, ProcId, Stat};
use crate::receipt::{Kind, Reason, Receipt};

pub const ABOUT: &str = "kill processes and start them again with data kept, wiped or older";

const WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kill {
    /// What the process finds when it starts again; `snapshot` wants an earlier fault `snapshot`.
    data: Data,
    /// `kill` (default) or `term`.
    signal: How,
    /// Never start it again: the fault then ends with the run.
    stay_down: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum How {
    #[default]
    Kill,
    Term,
}

impl Fault for Kill {
    fn kind(&self) -> Kind {
        Kind::Kill
    }

    /// A server may refuse to serve on with less than it had acknowledged.
    fn may_end(&self) -> bool {
        self.data != Data::Kept
    }

    fn available(&self, env: &dyn Env, _order: &Order, targets: &[Proc]) -> Result<(), Reason> {
        if !self.stay_down && env.restart().is_none() {
            return Err(Reason::new(
                "nothing here starts a process again: set stay_down = true",
            ));
        }
        match targets.iter().find(|p| !p.alive()) {
            Some(p) => Err(Reason::new(format!("{} does not run", p.id))),
            None => Ok(()),
        }
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        _order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        if let Some(r) = env.restart() {
            targets.iter().for_each(|p| r.expect_exit(p.id));
        }
        let signal = match self.signal {
            How::Kill => Signal::SIGKILL,
            How::Term => Signal::SIGTERM,
        };
        Box::pin(async move {
            let receipt = end(targets, |pid| {
                // Gone already is as good: what counts is read back.
                let _ = kill(Pid::from_raw(pid), signal);
            })
            .await;
            let old = targets.iter().map(|p| (p.id, p.root)).collect();
            let data = (!self.stay_down).then(|| self.data.clone());
            Installed::new(receipt, Down { old, data })
        })
    }
}

/// Signals until no process of the targets is left.
async fn end(targets: &[Proc], send: impl Fn(i32)) -> Receipt {
    end_within(targets, send, WAIT).await
}

async fn end_within(targets: &[Proc], send: impl Fn(i32), wait: Duration) -> Receipt {
    let before: Vec<(i32, u64)> = targets
        .iter()
        .filter_map(|p| Stat::of(p.root))
        .map(|s| (s.pid, s.start))
        .collect();
    let deadline = Instant::now() + wait;
    loop {
        let mut left = Map::new();
        for p in targets {
            match p.pids() {
                Ok(pids) if pids.is_empty() => {}
                Ok(pids) => {
                    pids.iter().for_each(|pid| send(*pid));
                    left.insert(p.id.to_string(), pids.into());
                }
                Err(e) => return Receipt::indeterminate(e),
            }
        }
        if left.is_empty() {
            let gone: Vec<i32> = before.iter().map(|(pid, _)| *pid).collect();
            return Receipt::installed().proof("gone", gone);
        }
        if Instant::now() >= deadline {
            let r = Reason::new(format!("still runs {wait:?} after the signal"));
            return Receipt::indeterminate(r).proof("left", left);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Processes that are down. Dropping it starts nothing: a run that ends has no use for them.
struct Down {
    old: Vec<(ProcId, i32)>,
    /// `None`: never start again.
    data: Option<Data>,
}

impl Handle for Down {
    fn heal<'a>(&'a mut self, env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            let Some(data) = self.data.clone() else {
                return Receipt::skipped(Reason::new("stays down, as the scenario says"));
            };
            let Some(restart) = env.restart() else {
                return Receipt::indeterminate(Reason::new("nothing here starts a process again"));
            };
            let mut evidence = Map::new();
            let mut failed = None;
            for (id, old) in self.old.drain(..) {
                match restart.start(id, data.clone()).await {
                    Ok(p) if p.alive() => {
                        let seen = serde_json::json!({ "was": old, "is": p.root, "data": data });
                        evidence.insert(id.to_string(), seen);
                    }
                    Ok(p) => failed = Some(format!("{id} exited at once (pid {})", p.root)),
                    Err(e) => failed = Some(format!("{id} did not start: {e}")),
                }
            }
            match failed {
                None => Receipt::healed().evidence(evidence),
                Some(text) => Receipt::indeterminate(Reason(text)).evidence(evidence),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fault::Fault;
    use crate::receipt::Status;
    use crate::testing::{Started, TestEnv, block_on, order};

    const N: ProcId = ProcId::Node(0);

    fn kill_with(params: serde_json::Value) -> Kill {
        serde_json::from_value(params).unwrap()
    }

    #[test]
    fn kills_all_and_starts_again_with_the_data_asked_for() {
        for data in [Data::Kept, Data::Wiped, Data::Snapshot] {
            let s = Started::shell("sleep 600 & sleep 600 & wait");
            let p = s.proc(N);
            let mut env = TestEnv::of([p.clone()]);
            env.restarts = true;
            let fault = kill_with(serde_json::json!({ "data": data }));
            let targets = [p.clone()];
            let o = order("kill", "node:0", serde_json::json!({}));
            fault.available(&env, &o, &targets).unwrap();
            let mut done = block_on(fault.install(&env, &o, &targets));
            assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
            assert!(p.pids().unwrap().is_empty());
            let healed = block_on(done.handle.as_mut().unwrap().heal(&env));
            assert_eq!(healed.status, Status::Healed, "{healed:?}");
            let started = env.started.lock().unwrap();
            assert!(started.len() == 1 && started[0].1 == data);
            let seen = &healed.evidence["node:0"];
            assert_ne!(seen["is"], seen["was"]);
        }
    }

    #[test]
    fn a_signal_that_never_arrives_is_not_called_installed() {
        let s = Started::shell("sleep 600");
        let receipt = block_on(end_within(&[s.proc(N)], |_| {}, Duration::from_millis(50)));
        assert_eq!(receipt.status, Status::Indeterminate);
        assert!(receipt.evidence.contains_key("left"));
    }

    #[test]
    fn a_start_that_fails_is_not_called_healed() {
        let s = Started::shell("sleep 600");
        let p = s.proc(N);
        let env = TestEnv::of([p.clone()]);
        let mut down = Down {
            old: vec![(N, p.root)],
            data: Some(Data::Kept),
        };
        assert_eq!(block_on(down.heal(&env)).status, Status::Indeterminate);
    }

    #[test]
    fn without_restart_only_stay_down_is_possible() {
        let s = Started::shell("sleep 600");
        let p = s.proc(N);
        let env = TestEnv::of([p.clone()]);
        let targets = [p];
        let o = order("kill", "node:0", serde_json::json!({}));
        assert!(
            kill_with(serde_json::json!({}))
                .available(&env, &o, &targets)
                .is_err()
        );
        assert!(
            kill_with(serde_json::json!({"stay_down": true}))
                .available(&env, &o, &targets)
                .is_ok()
        );
        assert!(serde_json::from_value::<Kill>(serde_json::json!({"date": "kept"})).is_err());
    }
}
