//! What of a scenario's faults can take hold on the servers that run. Pure.

use fencepost_nemesis::env::LeaderHint;
use fencepost_nemesis::schedule::Plan;
use fencepost_nemesis::{Fut, ProcId, Target, Targets};
use serde_json::{Map, Value};

use super::fits::of_node;
use crate::system::Service;

/// Leads where there is no other.
pub struct OnlyServer;

impl LeaderHint for OnlyServer {
    fn leader(&self) -> Fut<'_, Option<ProcId>> {
        Box::pin(async { Some(ProcId::Node(0)) })
    }
}

/// The plans without those choices of a `mix` that could not take hold.
///
/// # Errors
/// Why a plan could never take hold.
pub fn possible(plans: &[Plan], service: &Service, nodes: usize) -> Result<Vec<Plan>, String> {
    let cluster = Cluster { service, nodes };
    plans.iter().map(|plan| cluster.of_plan(plan)).collect()
}

struct Cluster<'a> {
    service: &'a Service,
    nodes: usize,
}

impl Cluster<'_> {
    fn of_plan(&self, plan: &Plan) -> Result<Plan, String> {
        if let Some(fault) = &plan.fault {
            self.able(fault, &plan.target, &plan.params)?;
        }
        for piece in &plan.with {
            self.able(&piece.fault, &piece.target, &piece.params)?;
        }
        let mut plan = plan.clone();
        let mut why = None;
        plan.mix.retain(|choice| {
            let able = self.able(&choice.fault, &choice.target, &choice.params);
            able.map_err(|reason| why = Some(reason)).is_ok()
        });
        match why {
            Some(reason) if plan.mix.is_empty() => Err(reason),
            _ => Ok(plan),
        }
    }

    fn able(
        &self,
        fault: &str,
        targets: &Targets,
        params: &Map<String, Value>,
    ) -> Result<(), String> {
        let so = |what: String| {
            let words: Vec<String> = targets.0.iter().map(ToString::to_string).collect();
            let on = match words.is_empty() {
                true => String::new(),
                false => format!(" on {}", words.join(", ")),
            };
            Err(format!("{what}: fault `{fault}`{on} cannot take hold"))
        };
        let Service {
            transfer_leader,
            promote,
            leader_hint,
            ..
        } = self.service;
        for target in &targets.0 {
            match target {
                Target::Leader | Target::Followers if leader_hint.is_none() => {
                    return so("does not say which server leads".into());
                }
                Target::Followers if self.nodes < 2 => return so("has no followers".into()),
                Target::Proc(ProcId::Node(n)) if *n as usize >= self.nodes => {
                    return so(format!("has no node:{n}"));
                }
                _ if self.nodes == 0 && of_node(target) => return so("has no servers".into()),
                _ => {}
            }
        }
        let said = |key: &str| params.get(key).and_then(Value::as_str);
        let moves = match said("how") {
            Some("transfer") => transfer_leader.is_some(),
            Some("promote") => promote.is_some(),
            _ => transfer_leader.is_some() || promote.is_some(),
        };
        if fault == "failover" && !(moves && leader_hint.is_some()) {
            return so("cannot move its leader that way".into());
        }
        let between_nodes = match fault {
            "partition" => matches!(said("from"), None | Some("nodes")),
            "packets" => said("from") == Some("nodes"),
            _ => false,
        };
        if between_nodes && self.nodes < 2 && targets.0.iter().all(of_node) {
            return so("has one server, and nobody is on the other side".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::scenario::find;

    fn service(leads: bool) -> Service {
        Service {
            leader_hint: leads.then(|| Arc::new(OnlyServer) as Arc<dyn LeaderHint>),
            ..Service::default()
        }
    }

    fn of(scenario: &str, leads: bool, nodes: usize) -> Result<Vec<Plan>, String> {
        possible(&find(scenario).unwrap().faults, &service(leads), nodes)
    }

    #[test]
    fn a_service_without_a_leader_has_none_to_hit() {
        let why = of("leader-kill", false, 5).unwrap_err();
        assert_eq!(
            why,
            "does not say which server leads: fault `kill` on leader cannot take hold"
        );
        assert!(of("leader-kill", true, 3).is_ok());
        assert!(of("nodes-kill", false, 5).is_ok());
    }

    #[test]
    fn one_server_leads_and_has_no_other_side() {
        assert!(of("leader-kill", true, 1).is_ok());
        for scenario in ["minority-partition", "partial-partitions", "nodes-packets"] {
            let why = of(scenario, true, 1).unwrap_err();
            assert!(why.contains("one server"), "{scenario}: {why}");
            assert!(of(scenario, true, 3).is_ok());
        }
        let why = of("node-rolled-back", true, 1).unwrap_err();
        assert!(why.starts_with("has no node:2"), "{why}");
        // Between workers and servers there is another side.
        assert!(of("holder-cut-off", true, 1).is_ok());
    }

    #[test]
    fn a_leader_is_moved_by_those_who_can() {
        let why = of("leader-transfer", true, 3).unwrap_err();
        assert!(why.starts_with("cannot move its leader"), "{why}");
    }

    #[test]
    fn a_mix_goes_on_without_what_cannot_be() {
        let whole = find("wall-clock-jumps").unwrap().faults;
        assert_eq!(of("wall-clock-jumps", true, 3).unwrap(), whole);
        let rest = of("wall-clock-jumps", false, 5).unwrap();
        assert_eq!(rest[0].mix, whole[0].mix[1..]);
        assert_eq!(rest[1..], whole[1..]);
    }

    #[test]
    fn without_servers_workers_can_be_hit() {
        assert!(of("client-pause", false, 0).is_ok());
        assert!(
            of("nodes-pause", false, 0)
                .unwrap_err()
                .contains("no servers")
        );
    }
}
