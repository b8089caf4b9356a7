#![allow(clippy::unwrap_used)]
use super::*;
use crate::receipt::Status;
use crate::testing::net::Rig;
use crate::testing::{TestEnv, block_on, order};

const IDS: [ProcId; 2] = [ProcId::Node(0), ProcId::Worker(0)];

fn rig() -> Option<(Rig, TestEnv)> {
    let rig = Rig::new(&IDS)?;
    if let Err(r) = nft::have("nft", "nftables").and(nft::have("iptables", "iptables")) {
        eprintln!("skipped: {r}");
        return None;
    }
    let env = TestEnv::of(rig.procs.clone());
    Some((rig, env))
}

fn shaped(shape: serde_json::Value) -> Packets {
    serde_json::from_value(json!({ "shape": shape })).unwrap()
}

fn every_shape() -> [serde_json::Value; 6] {
    [
        json!({"delay_ms": 40, "jitter_ms": 10}),
        json!({"loss": 0.3}),
        json!({"duplicate": 0.3}),
        json!({"reorder": 0.2, "reorder_by_ms": 10}),
        json!({"rate": 50_000}),
        json!({"drop_replies": true}),
    ]
}

#[test]
fn every_shape_shows_and_heals() {
    let Some((rig, env)) = rig() else { return };
    let foreign = "table inet foreign {\nchain c {\ntype filter hook output priority 0; policy accept;\n\
        ip daddr 192.0.2.1 drop\n}\n}\n";
    rig.ns(1).run(|| nft::apply(foreign)).unwrap();
    let before = rig.ns(1).run(nft::rules).unwrap();
    block_on(async {
        for shape in every_shape() {
            let fault = shaped(shape.clone());
            let o = order("packets", "worker:0", json!({}));
            let targets = [rig.procs[1].clone()];
            fault.available(&env, &o, &targets).unwrap();
            let mut done = fault.install(&env, &o, &targets).await;
            assert_eq!(
                done.receipt.status,
                Status::Installed,
                "{shape} {:?}",
                done.receipt
            );
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(healed.status, Status::Healed, "{shape} {healed:?}");
            assert_eq!(rig.ns(1).run(nft::rules).unwrap(), before, "{shape}");
        }
    });
}

#[test]
fn either_direction_shows_and_heals() {
    let Some((rig, env)) = rig() else { return };
    let before = rig.ns(1).run(nft::rules).unwrap();
    block_on(async {
        for direction in ["in", "out", "both"] {
            let params = json!({"direction": direction, "shape": {"delay_ms": 40}});
            let fault: Packets = serde_json::from_value(params.clone()).unwrap();
            let (o, targets) = (order("packets", "worker:0", params), [rig.procs[1].clone()]);
            let mut done = fault.install(&env, &o, &targets).await;
            assert_eq!(
                done.receipt.status,
                Status::Installed,
                "{direction} {:?}",
                done.receipt
            );
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(healed.status, Status::Healed, "{direction} {healed:?}");
            assert_eq!(rig.ns(1).run(nft::rules).unwrap(), before, "{direction}");
        }
    });
}

#[test]
fn a_queue_that_gets_no_packets_is_not_called_installed() {
    let Some((rig, env)) = rig() else { return };
    block_on(async {
        for shape in every_shape() {
            let o = order("packets", "worker:0", json!({}));
            let targets = [rig.procs[1].clone()];
            let done = bend(&shaped(shape.clone()), &env, &o, &targets, false)
                .await
                .unwrap();
            assert_eq!(
                done.receipt.status,
                Status::Indeterminate,
                "{shape} {:?}",
                done.receipt
            );
        }
    });
}

#[test]
fn rules_of_a_dead_controller_let_packets_pass() {
    let Some((rig, _env)) = rig() else { return };
    block_on(async {
        let fault = shaped(json!({"loss": 1.0}));
        let mut bent = Bent {
            sites: Vec::new(),
            probe: Probe::open(&[&rig.procs[0], &rig.procs[1]]).await.unwrap(),
            fault: fault.clone(),
        };
        let link = (IDS[1], IDS[0]);
        bent.sites.push(Site {
            ns: rig.ns(1),
            was: String::new(),
            before: None,
            link,
            queue: None,
            chain: "fp_test".into(),
            addrs: vec!["10.9.0.1".into()],
            way: Direction::Out,
        });
        bent.sites[0].add_rules(7001).await.unwrap();
        let shown = bent.measure(FEW).await.unwrap();
        assert!(shown[0].udp.back == shown[0].udp.sent, "{shown:?}");
        drop(bent);
    });
}
