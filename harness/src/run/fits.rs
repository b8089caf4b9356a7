//! Whether a scenario and a service fit each other.

use std::time::Duration;

use fencepost_checker::verdict::Expected;
use fencepost_workloads::stores;

use super::RunError;
use crate::scenario::{Mode, Scenario};
use crate::system::Facts;

/// Refuses what the system does not offer.
pub(super) fn fits(s: &Scenario, facts: &Facts) -> Result<(), RunError> {
    let unfit = |why: String| Err(RunError::Unfit(format!("system `{}` {why}", s.system)));
    let expects = |check: &str, answers: &[Expected]| {
        s.expect.get(check).is_some_and(|e| answers.contains(e))
    };
    if s.mode == Mode::Shared && !facts.shared {
        return unfit("has no shared locks; set another `system`".into());
    }
    for check in ["lease-overrun", "double-holder.limit"] {
        if !facts.lease && expects(check, &[Expected::Violated]) {
            return unfit(format!(
                "has no lease: a hold ends with its connection, so that `{check}` cannot come out as expected"
            ));
        }
    }
    let stale = "stale-fence-accepted";
    if !facts.fence && expects(stale, &[Expected::Violated, Expected::Holds]) {
        return unfit(format!(
            "grants no fence, so that `{stale}` cannot come out as expected"
        ));
    }
    if facts.lease && s.ttl() < Duration::from_millis(facts.min_ttl_ms) {
        return unfit(format!(
            "grants no lease below {} ms; set `lease.ttl` higher",
            facts.min_ttl_ms
        ));
    }
    stores::find(&s.store.kind).map_err(|e| RunError::Unfit(e.to_string()))?;
    Ok(())
}

/// What is not demanded of a service that grants no fence when it takes another's place (`--system`): that fences
/// rise, and that a store which checks them saves the updates that a holder makes past its lease.
pub fn undemand(s: &mut Scenario, facts: &Facts) {
    if facts.fence {
        return;
    }
    let fenced = s.store.fenced;
    for (check, expected) in &mut s.expect {
        let rests_on_fences = check == "fence-monotonic" || (check == "lost-update" && fenced);
        if rests_on_fences && *expected == Expected::Holds {
            *expected = Expected::Any;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scenario::find;
    use crate::system::{Params, open};

    fn facts(system: &str) -> Facts {
        open(system, Params::new()).unwrap().facts()
    }

    fn refused(scenario: &str, system: &str) -> Option<String> {
        let mut s = find(scenario).unwrap();
        s.system = system.into();
        fits(&s, &facts(system)).err().map(|e| e.to_string())
    }

    #[test]
    fn a_pause_past_the_lease_needs_a_lease() {
        let why = refused("kleppmann-pause", "postgres").unwrap();
        assert!(why.contains("`postgres` has no lease"), "{why}");
        assert!(refused("healthy", "postgres").is_none());
        assert!(refused("kleppmann-pause", "etcd").is_none());
    }

    #[test]
    fn a_fenced_store_needs_a_fence() {
        let why = refused("kleppmann-pause-fenced", "redlock").unwrap();
        assert!(why.contains("no fence"), "{why}");
        assert!(refused("redlock-client-pause", "redlock").is_none());
    }

    #[test]
    fn what_rests_on_fences_is_not_demanded_without() {
        let mut s = find("dead-holder").unwrap();
        undemand(&mut s, &facts("etcd"));
        assert_eq!(s.expect["fence-monotonic"], Expected::Holds);
        undemand(&mut s, &facts("redlock"));
        assert_eq!(s.expect["fence-monotonic"], Expected::Any);
        assert_eq!(s.expect["double-holder.service"], Expected::Holds);
    }
}
