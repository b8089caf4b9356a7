//! Keeps a copy of the targets' data, for a later `kill` with `data = "snapshot"`.
//!
//! Bends nothing by itself, so it has nothing to heal.

use serde::Deserialize;

use crate::env::Env;
use crate::fault::{Fault, Fut, Installed, Order};
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt};

pub const ABOUT: &str = "copy a node's data for a later kill with data = \"snapshot\"";

/// No parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {}

impl Fault for Snapshot {
    fn kind(&self) -> Kind {
        Kind::Disk
    }

    fn available(&self, env: &dyn Env, _order: &Order, _targets: &[Proc]) -> Result<(), Reason> {
        env.restart()
            .map(|_| ())
            .ok_or_else(|| Reason::new("nothing here copies a node's data"))
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        _order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(async move {
            let Some(restart) = env.restart() else {
                let r = Reason::new("nothing here copies a node's data");
                return Installed::nothing(Receipt::skipped(r));
            };
            for p in targets {
                if let Err(e) = restart.snapshot(p.id).await {
                    let r = Reason(format!("{}: no snapshot: {e}", p.id));
                    return Installed::nothing(Receipt::indeterminate(r));
                }
            }
            let ids: Vec<_> = targets.iter().map(|p| p.id).collect();
            Installed::nothing(Receipt::installed().proof("copied", ids))
        })
    }

    fn affects(&self, _env: &dyn Env, _order: &Order, _targets: &[Proc]) -> Vec<ProcId> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::process::ProcId;
    use crate::receipt::Status;
    use crate::testing::{Started, TestEnv, block_on, order};

    fn taken(works: bool) -> Installed {
        let s = Started::shell("sleep 600");
        let p = s.proc(ProcId::Node(0));
        let mut env = TestEnv::of([p.clone()]);
        (env.restarts, env.copies) = (true, works);
        let o = order("snapshot", "node:0", serde_json::json!({}));
        Snapshot {}.available(&env, &o, &[]).unwrap();
        block_on(Snapshot {}.install(&env, &o, &[p]))
    }

    #[test]
    fn a_copy_is_named_and_leaves_nothing_to_heal() {
        let done = taken(true);
        assert_eq!(done.receipt.status, Status::Installed);
        assert_eq!(done.receipt.evidence["copied"][0], "node:0");
        assert!(done.handle.is_none());
    }

    #[test]
    fn a_copy_that_was_not_made_is_not_called_installed() {
        let done = taken(false);
        assert_eq!(done.receipt.status, Status::Indeterminate);
        assert!(done.receipt.reason.unwrap().0.contains("no snapshot"));
    }
}
