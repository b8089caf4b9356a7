//! Carries out the schedule's orders and keeps the handles of what holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::env::Env;
use crate::fault::{Fault, Handle, Order};
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt, Status};
use crate::{registry, target};

/// Longest time that one install or heal may take before it is called indeterminate.
const LIMIT: Duration = Duration::from_secs(30);

/// How long a target such as `holder` may mean nobody before the fault is skipped.
const NOBODY: Duration = Duration::from_secs(1);

/// Value of a `fault` event in the history (docs/history-format.md).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub id: String,
    pub fault: String,
    pub kind: Kind,
    pub action: &'static str,
    pub targets: Vec<ProcId>,
    pub affects: Vec<ProcId>,
    /// [`Fault::may_end`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_end: bool,
    /// `started`, then the receipt's status.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub receipt: Map<String, Value>,
}

impl Report {
    fn result(mut self, receipt: Receipt) -> Self {
        self.status = match receipt.status {
            Status::Installed => "installed",
            Status::Healed => "healed",
            Status::Skipped => "skipped",
            Status::Indeterminate => "indeterminate",
        };
        self.reason = receipt.reason;
        self.receipt = receipt.evidence;
        self
    }

    /// Whether the fault's effect was seen.
    pub fn took_hold(&self) -> bool {
        self.status == "installed"
    }
}

/// An order with its fault built and its targets found: ready to install.
pub struct Prepared {
    order: Order,
    fault: Box<dyn Fault>,
    targets: Vec<Proc>,
    started: Report,
}

impl Prepared {
    /// The event to record before the install.
    pub fn started(&self) -> &Report {
        &self.started
    }
}

struct Holding {
    handle: Box<dyn Handle>,
    started: Report,
}

/// All faults of a run. Dropping it heals whatever still holds.
///
/// Use: `prepare` → record `started()` → `install` → record the report; later
/// `heal_started` → record → `heal` → record.
pub struct Nemesis {
    env: Arc<dyn Env>,
    holding: BTreeMap<String, Holding>,
}

impl Nemesis {
    pub fn new(env: Arc<dyn Env>) -> Self {
        Nemesis {
            env,
            holding: BTreeMap::new(),
        }
    }

    /// Builds the fault and finds its targets.
    ///
    /// # Errors
    /// The report to record instead (`skipped`), when there is no such fault or target.
    pub async fn prepare(&mut self, order: Order) -> Result<Prepared, Box<Report>> {
        let mut started = Report {
            id: order.id.clone(),
            fault: order.fault.clone(),
            kind: Kind::Pause,
            action: "install",
            targets: Vec::new(),
            affects: Vec::new(),
            may_end: false,
            status: "started",
            reason: None,
            receipt: Map::new(),
        };
        let skip = |s: Report, r: Reason| Box::new(s.result(Receipt::skipped(r)));
        let fault = match registry::build_fault(&order.fault, &order.params) {
            Ok(f) => f,
            Err(e) => return Err(skip(started, e.into())),
        };
        started.kind = fault.kind();
        started.may_end = fault.may_end();
        let targets = match target::resolve_within(&*self.env, &order, NOBODY).await {
            Ok(t) => t,
            Err(r) => return Err(skip(started, r)),
        };
        started.targets = targets.iter().map(|p| p.id).collect();
        started.affects = fault.affects(&*self.env, &order, &targets);
        match fault.available(&*self.env, &order, &targets) {
            Ok(()) => Ok(Prepared {
                order,
                fault,
                targets,
                started,
            }),
            Err(r) => Err(skip(started, r)),
        }
    }

    /// Installs, and keeps the handle until [`Nemesis::heal`].
    pub async fn install(&mut self, p: Prepared) -> Report {
        let env = self.env.clone();
        let work = p.fault.install(&*env, &p.order, &p.targets);
        let Ok(done) = tokio::time::timeout(LIMIT, work).await else {
            let r = Reason::new(format!("install took longer than {} s", LIMIT.as_secs()));
            return p.started.result(Receipt::indeterminate(r));
        };
        if let Some(handle) = done.handle {
            let started = Report {
                action: "heal",
                ..p.started.clone()
            };
            self.holding
                .insert(p.order.id.clone(), Holding { handle, started });
        }
        p.started.result(done.receipt)
    }

    /// The event to record before a heal; `None` when nothing holds under this id.
    pub fn heal_started(&self, id: &str) -> Option<&Report> {
        self.holding.get(id).map(|h| &h.started)
    }

    /// Heals one fault; `None` when nothing holds under this id.
    pub async fn heal(&mut self, id: &str) -> Option<Report> {
        let mut h = self.holding.remove(id)?;
        let receipt = match tokio::time::timeout(LIMIT, h.handle.heal(&*self.env)).await {
            Ok(receipt) => receipt,
            Err(_) => Receipt::indeterminate(Reason::new(format!(
                "heal took longer than {} s",
                LIMIT.as_secs()
            ))),
        };
        Some(h.started.result(receipt))
    }

    /// Ids of the faults that hold now.
    pub fn holding(&self) -> Vec<String> {
        self.holding.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::process::Stat;
    use crate::testing::{Started, TestEnv, block_on, order};

    fn nemesis() -> (Started, i32, Nemesis) {
        let s = Started::shell("sleep 600");
        let p = s.proc(ProcId::Worker(0));
        let pid = p.root;
        (s, pid, Nemesis::new(TestEnv::of([p]).shared()))
    }

    #[test]
    fn from_order_to_heal() {
        let (_s, pid, mut n) = nemesis();
        block_on(async {
            let o = order("pause", "worker:0", serde_json::json!({}));
            let ready = n.prepare(o).await.ok().unwrap();
            assert_eq!(ready.started().status, "started");
            let report = n.install(ready).await;
            assert!(report.took_hold());
            let line = serde_json::to_value(&report).unwrap();
            assert_eq!(line["kind"], "pause");
            assert_eq!(line["affects"][0], "worker:0");
            assert!(Stat::of(pid).unwrap().is_stopped());
            assert_eq!(n.holding(), ["f1"]);
            assert_eq!(n.heal_started("f1").unwrap().action, "heal");
            assert_eq!(n.heal("f1").await.unwrap().status, "healed");
            assert!(!Stat::of(pid).unwrap().is_stopped());
            assert!(n.heal("f1").await.is_none());
        });
    }

    #[test]
    fn a_fault_that_may_end_its_targets_says_so() {
        let s = Started::shell("sleep 600");
        let mut env = TestEnv::of([s.proc(ProcId::Node(0))]);
        env.restarts = true;
        let mut n = Nemesis::new(env.shared());
        for (data, may_end) in [("kept", false), ("wiped", true), ("snapshot", true)] {
            let o = order("kill", "node:0", serde_json::json!({ "data": data }));
            let ready = block_on(n.prepare(o)).ok().unwrap();
            assert_eq!(ready.started().may_end, may_end, "{data}");
            let line = serde_json::to_value(ready.started()).unwrap();
            assert_eq!(line.get("may_end").is_some(), may_end, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_prepared_is_reported_as_skipped() {
        let (_s, _, mut n) = nemesis();
        for (fault, target) in [
            ("pause", "leader"),
            ("none", "worker:0"),
            ("kill", "worker:0"),
        ] {
            let o = order(fault, target, serde_json::json!({}));
            let report = block_on(n.prepare(o)).err().unwrap();
            assert_eq!((report.status, report.action), ("skipped", "install"));
            assert!(report.reason.is_some());
        }
    }

    /// Kill, pause, start, resume on one node (list of known bugs, B34): what is down cannot be paused, and a
    /// resume never reaches the process that was started meanwhile.
    #[test]
    fn faults_on_one_node_know_its_state() {
        let s = Started::shell("sleep 600");
        let p = s.proc(ProcId::Node(0));
        let mut env = TestEnv::of([p.clone()]);
        env.restarts = true;
        let env = env.shared();
        let mut n = Nemesis::new(env.clone());
        let with_id = |id: &str, fault: &str| Order {
            id: id.into(),
            ..order(fault, "node:0", serde_json::json!({}))
        };
        block_on(async {
            let ready = n.prepare(with_id("kill", "kill")).await.ok().unwrap();
            assert!(n.install(ready).await.took_hold());
            let down = n.prepare(with_id("pause", "pause")).await.err().unwrap();
            assert_eq!(down.status, "skipped");
            assert!(down.reason.unwrap().0.contains("does not run"));
            assert_eq!(n.heal("kill").await.unwrap().status, "healed");
            assert!(n.heal("pause").await.is_none(), "nothing to resume");
            assert!(n.holding().is_empty());

            // The other way round: killed while it is paused.
            let ready = n.prepare(with_id("pause2", "pause")).await.ok().unwrap();
            assert!(n.install(ready).await.took_hold());
            let ready = n.prepare(with_id("kill2", "kill")).await.ok().unwrap();
            assert!(n.install(ready).await.took_hold());
            assert_eq!(n.heal("kill2").await.unwrap().status, "healed");
            let now = env.procs()[0].root;
            let ready = n.prepare(with_id("pause3", "pause")).await.ok().unwrap();
            assert!(n.install(ready).await.took_hold());
            assert_eq!(n.heal("pause2").await.unwrap().status, "healed");
            assert!(Stat::of(now).unwrap().is_stopped(), "the third one's");
            assert_eq!(n.heal("pause3").await.unwrap().status, "healed");
            assert!(!Stat::of(now).unwrap().is_stopped());
        });
    }

    #[test]
    fn dropping_the_nemesis_heals() {
        let (_s, pid, mut n) = nemesis();
        block_on(async {
            let o = order("pause", "worker:0", serde_json::json!({}));
            let ready = n.prepare(o).await.ok().unwrap();
            n.install(ready).await;
        });
        assert!(Stat::of(pid).unwrap().is_stopped());
        drop(n);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!Stat::of(pid).unwrap().is_stopped());
    }
}
