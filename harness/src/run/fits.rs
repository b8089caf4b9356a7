//! Whether a scenario and a service fit each other.

use std::time::Duration;

use fencepost_checker::verdict::Expected;
use fencepost_nemesis::schedule::Plan;
use fencepost_nemesis::{ProcId, Target, Targets};
use fencepost_workloads::stores;

use super::RunError;
use crate::scenario::{Mode, Scenario, shortest};
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

/// What is not demanded of a service that takes another's place (`--system`), and why: a line for each reason.
pub fn undemand(s: &mut Scenario, facts: &Facts) -> Vec<String> {
    let mut why = Vec::new();
    if !facts.fence {
        let mut rests_on_fences = vec!["fence-monotonic"];
        rests_on_fences.extend(s.store.fenced.then_some("lost-update"));
        let demanded = |check: &&str| s.expect.get(*check) == Some(&Expected::Holds);
        rests_on_fences.retain(demanded);
        tolerate(s, &rests_on_fences, "it grants no fence", &mut why);
    }
    if !facts.lease && s.expect.get("freed-in-time") == Some(&Expected::Holds) {
        let reason = "it has no lease: a hold ends with its connection";
        tolerate(s, &["freed-in-time"], reason, &mut why);
    }
    let death = shortest_death(s).filter(|_| !facts.durable);
    let failover = facts.asynchronous && s.faults.iter().any(may_promote);
    if death.is_some() || failover {
        let mut forgotten = vec!["fence-monotonic", "linearizable"];
        // A release that was forgotten may be repeated.
        forgotten.extend(s.story.again.then_some("owner-only"));
        // What is forgotten while every lease runs out is given to nobody twice.
        let within_a_lease = failover || death.is_some_and(|down| down < s.ttl());
        forgotten.extend(within_a_lease.then_some("double-holder.service"));
        forgotten.retain(|check| s.expect.get(*check) != Some(&Expected::Any));
        let reason = match failover {
            true => {
                "a replica is promoted without what it has not heard of (Redis documentation, Sentinel and WAIT)"
            }
            false => {
                "what it acknowledged may die with a server (Redis documentation, Persistence)"
            }
        };
        tolerate(s, &forgotten, reason, &mut why);
    }
    why
}

fn tolerate(s: &mut Scenario, checks: &[&str], reason: &str, why: &mut Vec<String>) {
    if checks.is_empty() {
        return;
    }
    why.push(format!(
        "not demanded of {}: {}: {reason}",
        s.system,
        checks.join(", ")
    ));
    for check in checks {
        s.expect.insert((*check).into(), Expected::Any);
    }
}

/// The shortest time for which a fault of the scenario keeps a server dead; `None` where none does.
fn shortest_death(s: &Scenario) -> Option<Duration> {
    let one = |fault: &str, targets: &Targets| fault == "kill" && targets.0.iter().any(of_node);
    let kills = |p: &&Plan| {
        let mixed = p.mix.iter().any(|c| one(&c.fault, &c.target));
        mixed
            || p.fault
                .as_deref()
                .is_some_and(|fault| one(fault, &p.target))
    };
    // Without a length it lasts to the end of the load.
    let down = |p: &Plan| {
        let span = p.hold.as_ref();
        span.map_or(Duration::MAX, |span| shortest(span, s.ttl()))
    };
    s.faults.iter().filter(kills).map(down).min()
}

/// Whether a fault of the plan may make a service put another server in the place of the one that leads.
fn may_promote(plan: &Plan) -> bool {
    let one = |fault: &str, targets: &Targets| {
        let nodes = targets.0.iter().any(of_node);
        // Who is dead with all the others is replaced by nobody.
        let all = fault == "kill" && targets.0.contains(&Target::All);
        nodes && !all && matches!(fault, "kill" | "partition" | "pause" | "packets")
    };
    let mixed = || plan.mix.iter().any(|c| one(&c.fault, &c.target));
    let fault = plan.fault.as_deref();
    fault.map_or_else(mixed, |fault| one(fault, &plan.target))
}

/// Whether the word speaks of servers.
pub(super) fn of_node(target: &Target) -> bool {
    !matches!(
        target,
        Target::Holder
            | Target::Waiter
            | Target::Trigger
            | Target::Workers
            | Target::Proc(ProcId::Worker(_))
    )
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

    #[test]
    fn a_dead_holder_frees_nothing_in_time_where_there_is_no_lease() {
        let mut s = find("dead-holder").unwrap();
        assert!(undemand(&mut s, &facts("etcd")).is_empty());
        assert_eq!(s.expect["freed-in-time"], Expected::Holds);
        let why = undemand(&mut s, &facts("postgres"));
        assert!(why[0].contains("freed-in-time: it has no lease"), "{why:?}");
        assert_eq!(s.expect["freed-in-time"], Expected::Any);
    }

    #[test]
    fn a_release_may_be_forgotten_and_repeated() {
        let owner_only = |scenario: &str, system: &str| {
            let mut s = find(scenario).unwrap();
            undemand(&mut s, &facts(system));
            s.expect["owner-only"]
        };
        assert_eq!(owner_only("leader-kill", "redis-failover"), Expected::Any);
        assert_eq!(owner_only("service-down", "redis"), Expected::Any);
        assert_eq!(owner_only("service-down", "etcd"), Expected::Holds);
        assert_eq!(owner_only("client-pause", "redis"), Expected::Holds);
    }

    #[test]
    fn what_may_die_with_a_server_is_not_demanded_of_one_that_forgets() {
        let mut s = find("leader-kill").unwrap();
        assert!(undemand(&mut s, &facts("zookeeper")).is_empty());
        assert_eq!(s.expect["fence-monotonic"], Expected::Holds);
        s.system = "redis-failover".into();
        let why = undemand(&mut s, &facts("redis-failover"));
        assert!(
            why.len() == 1 && why[0].contains("double-holder.service"),
            "{why:?}"
        );
        assert_eq!(s.expect["fence-monotonic"], Expected::Any);
        assert_eq!(s.expect["double-holder.service"], Expected::Any);
        assert_eq!(s.expect["lost-update"], Expected::Holds);
        // A quorum of sentinels may be on the other side of a cut.
        let mut s = find("minority-partition").unwrap();
        let why = undemand(&mut s, &facts("redis-failover"));
        assert!(why[0].contains("a replica is promoted"), "{why:?}");
        assert!(undemand(&mut find("minority-partition").unwrap(), &facts("etcd")).is_empty());
        let mut s = find("service-down").unwrap();
        undemand(&mut s, &facts("redis-failover"));
        assert_eq!(s.expect["double-holder.service"], Expected::Holds);
        // One of several faults, chosen by the seed, may be a death.
        let mut s = find("nodes-kill").unwrap();
        undemand(&mut s, &facts("redis"));
        assert_eq!(s.expect["fence-monotonic"], Expected::Any);
        assert_eq!(s.expect["double-holder.service"], Expected::Any);
        // Down for as long as a lease, and where no server dies, nothing is taken back.
        let mut s = find("service-down").unwrap();
        undemand(&mut s, &facts("redis"));
        assert_eq!(s.expect["double-holder.service"], Expected::Holds);
        let mut s = find("dead-holder").unwrap();
        assert!(undemand(&mut s, &facts("redis")).is_empty());
        assert_eq!(s.expect["fence-monotonic"], Expected::Holds);
    }
}
