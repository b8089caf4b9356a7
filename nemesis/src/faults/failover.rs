//! Moves leadership in order (transfer), or makes a replica the primary (promotion), through the
//! system's own capability.
//!
//! Proof: the service names another leader than before. There is nothing to undo: healing checks that
//! some node leads.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use crate::env::{Env, LeaderHint};
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt};

pub const ABOUT: &str = "hand leadership over, or promote a replica";

const WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failover {
    how: How,
    /// The node that is to lead; the system chooses where it is absent.
    to: Option<ProcId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum How {
    /// A transfer where the system can, else a promotion.
    #[default]
    Any,
    Transfer,
    Promote,
}

impl Fault for Failover {
    fn kind(&self) -> Kind {
        Kind::Failover
    }

    fn available(&self, env: &dyn Env, _order: &Order, _targets: &[Proc]) -> Result<(), Reason> {
        let able = match self.how {
            How::Any => env.transfer_leader().is_some() || env.promote().is_some(),
            How::Transfer => env.transfer_leader().is_some(),
            How::Promote => env.promote().is_some(),
        };
        if !able {
            return Err(Reason::new(
                "this system cannot move its leader that way: kill it instead",
            ));
        }
        match env.leader_hint() {
            Some(_) => Ok(()),
            None => Err(Reason::new(
                "this system does not say who leads: nothing could be proven",
            )),
        }
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        _order: &'a Order,
        _targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(async move {
            let Some(hint) = env.leader_hint() else {
                return Installed::nothing(Receipt::skipped(Reason::new("nobody says who leads")));
            };
            let before = hint.leader().await;
            // Who is made primary while nobody is must be named: else the old one, come back, would look like it.
            if before.is_none() && (self.how != How::Promote || self.to.is_none()) {
                let r = "no node leads now: a promotion then needs `how = \"promote\"` and `to`";
                return Installed::nothing(Receipt::skipped(Reason::new(r)));
            }
            let asked = match (self.how, env.transfer_leader(), env.promote()) {
                (How::Any | How::Transfer, Some(t), _) => t.transfer(self.to).await,
                (How::Any | How::Promote, _, Some(p)) => p.promote(self.to).await,
                _ => Err("this system cannot move its leader that way".into()),
            };
            if let Err(e) = asked {
                let r = Reason(format!("the system refused: {e}"));
                return Installed::new(Receipt::indeterminate(r).proof("was", before), Moved);
            }
            Installed::new(changed(hint, before, self.to, WAIT).await, Moved)
        })
    }
}

async fn changed(
    hint: &dyn LeaderHint,
    before: Option<ProcId>,
    to: Option<ProcId>,
    wait: Duration,
) -> Receipt {
    let began = Instant::now();
    let mut now = None;
    while began.elapsed() < wait {
        now = hint.leader().await;
        if now.is_some_and(|n| Some(n) != before && to.is_none_or(|to| to == n)) {
            let took = began.elapsed().as_millis();
            return Receipt::installed()
                .proof("was", before)
                .proof("is", now)
                .proof("took_ms", json!(took as u64));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let r = Reason(format!("no new leader within {wait:?}"));
    Receipt::indeterminate(r)
        .proof("was", before)
        .proof("is", now)
}

/// Leadership has been asked to move.
struct Moved;

impl Handle for Moved {
    fn heal<'a>(&'a mut self, env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            let Some(hint) = env.leader_hint() else {
                return Receipt::indeterminate(Reason::new("nobody says who leads"));
            };
            let began = Instant::now();
            while began.elapsed() < WAIT {
                if let Some(leader) = hint.leader().await {
                    return Receipt::healed().proof("leader", leader);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Receipt::indeterminate(Reason(format!("no node leads within {WAIT:?}")))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use super::*;
    use crate::env::{Promote, TransferLeader};
    use crate::receipt::Status;
    use crate::testing::{block_on, order};

    struct Cluster {
        leader: Mutex<Option<ProcId>>,
        obeys: bool,
        /// Its replicas can be promoted; else it hands leadership over.
        promotes: bool,
    }

    impl Env for Cluster {
        fn run_id(&self) -> &'static str {
            "t"
        }
        fn procs(&self) -> Vec<Proc> {
            Vec::new()
        }
        fn ttl(&self) -> Duration {
            WAIT
        }
        fn leader_hint(&self) -> Option<&dyn LeaderHint> {
            Some(self)
        }
        fn transfer_leader(&self) -> Option<&dyn TransferLeader> {
            (!self.promotes).then_some(self as &dyn TransferLeader)
        }
        fn promote(&self) -> Option<&dyn Promote> {
            self.promotes.then_some(self as &dyn Promote)
        }
    }

    impl LeaderHint for Cluster {
        fn leader(&self) -> Fut<'_, Option<ProcId>> {
            Box::pin(async { *self.leader.lock().unwrap() })
        }
    }

    impl TransferLeader for Cluster {
        fn transfer(&self, to: Option<ProcId>) -> Fut<'_, Result<(), String>> {
            Box::pin(async move {
                if self.obeys {
                    *self.leader.lock().unwrap() = Some(to.unwrap_or(ProcId::Node(1)));
                }
                Ok(())
            })
        }
    }

    impl Promote for Cluster {
        fn promote(&self, to: Option<ProcId>) -> Fut<'_, Result<(), String>> {
            self.transfer(to)
        }
    }

    fn cluster(obeys: bool) -> Cluster {
        Cluster {
            leader: Mutex::new(Some(ProcId::Node(0))),
            obeys,
            promotes: false,
        }
    }

    #[test]
    fn a_new_leader_is_the_proof() {
        let c = cluster(true);
        let fault: Failover = serde_json::from_value(json!({"to": "node:2"})).unwrap();
        let o = order("failover", "leader", json!({}));
        fault.available(&c, &o, &[]).unwrap();
        let mut done = block_on(fault.install(&c, &o, &[]));
        assert_eq!(done.receipt.status, Status::Installed);
        assert_eq!(done.receipt.evidence["is"], "node:2");
        let healed = block_on(done.handle.as_mut().unwrap().heal(&c));
        assert_eq!(healed.status, Status::Healed);
    }

    #[test]
    fn an_order_that_changes_nothing_is_not_called_installed() {
        let c = cluster(false);
        let got = block_on(changed(
            &c,
            Some(ProcId::Node(0)),
            None,
            Duration::from_millis(60),
        ));
        assert_eq!(got.status, Status::Indeterminate);
        *c.leader.lock().unwrap() = Some(ProcId::Node(1));
        let other = changed(
            &c,
            Some(ProcId::Node(0)),
            Some(ProcId::Node(2)),
            Duration::from_millis(60),
        );
        assert_eq!(
            block_on(other).status,
            Status::Indeterminate,
            "another one than asked for"
        );
    }

    #[test]
    fn a_replica_is_promoted_while_nobody_leads() {
        let c = Cluster {
            promotes: true,
            ..cluster(true)
        };
        *c.leader.lock().unwrap() = None;
        let made = |params: serde_json::Value| {
            let fault: Failover = serde_json::from_value(params).unwrap();
            let o = order("failover", "leader", json!({}));
            block_on(fault.install(&c, &o, &[])).receipt
        };
        for unnamed in [
            json!({}),
            json!({"to": "node:2"}),
            json!({"how": "promote"}),
        ] {
            assert_eq!(made(unnamed).status, Status::Skipped);
        }
        let receipt = made(json!({"how": "promote", "to": "node:2"}));
        assert_eq!(receipt.status, Status::Installed);
        assert_eq!(receipt.evidence["is"], "node:2");
    }

    #[test]
    fn a_promotion_that_changes_nothing_is_not_called_installed() {
        let c = cluster(false);
        *c.leader.lock().unwrap() = None;
        let wait = Duration::from_millis(60);
        let to = Some(ProcId::Node(2));
        let nobody = block_on(changed(&c, None, to, wait));
        assert_eq!(nobody.status, Status::Indeterminate);
        // The old primary came back instead.
        *c.leader.lock().unwrap() = Some(ProcId::Node(0));
        let old = block_on(changed(&c, None, to, wait));
        assert_eq!(old.status, Status::Indeterminate);
        let healed = block_on(Moved.heal(&c));
        assert_eq!(healed.status, Status::Healed, "somebody leads");
    }

    #[test]
    fn what_the_system_cannot_do_is_refused() {
        let c = cluster(true);
        let fault: Failover = serde_json::from_value(json!({"how": "promote"})).unwrap();
        assert!(
            fault
                .available(&c, &order("failover", "leader", json!({})), &[])
                .is_err()
        );
    }
}
