#![allow(clippy::unwrap_used)]
use super::*;
use crate::receipt::Status;
use crate::testing::net::Rig;
use crate::testing::{TestEnv, block_on, order};

const IDS: [ProcId; 4] = [
    ProcId::Node(0),
    ProcId::Node(1),
    ProcId::Node(2),
    ProcId::Worker(0),
];

const FOREIGN: &str = "table inet foreign {\nchain c {\ntype filter hook input priority 0; policy accept;\n\
     ip saddr 192.0.2.1 counter drop\n}\n}\n";

fn rules_of(rig: &Rig) -> Vec<String> {
    (0..rig.procs.len())
        .map(|i| rig.ns(i).run(nft::rules).unwrap())
        .collect()
}

fn rig() -> Option<(Rig, TestEnv)> {
    rig_of(&IDS)
}

fn rig_of(ids: &[ProcId]) -> Option<(Rig, TestEnv)> {
    let rig = Rig::new(ids)?;
    if let Err(r) = nft::have("nft", "nftables") {
        eprintln!("skipped: {r}");
        return None;
    }
    rig.ns(0).run(|| nft::apply(FOREIGN)).unwrap();
    let env = TestEnv::of(rig.procs.clone());
    Some((rig, env))
}

async fn install(env: &TestEnv, target: &str, params: serde_json::Value) -> Installed {
    let fault: Partition = serde_json::from_value(params.clone()).unwrap();
    let o = order("partition", target, params);
    let targets = crate::target::resolve(env, &o).await.unwrap();
    fault.available(env, &o, &targets).unwrap();
    fault.install(env, &o, &targets).await
}

#[test]
fn cuts_prove_and_heal_for_every_shape() {
    let Some((rig, env)) = rig() else { return };
    let before = rules_of(&rig);
    let cases = [
        ("node:0", json!({}), 4, "timeout"),
        (
            "node:0",
            json!({"from": "all", "how": "reset"}),
            6,
            "refused",
        ),
        ("worker:0", json!({}), 6, "timeout"),
        ("all", json!({"shape": "halves"}), 4, "timeout"),
        ("all", json!({"shape": "bridge"}), 2, "timeout"),
        ("node:1", json!({"direction": "in"}), 2, "timeout"),
        ("node:1", json!({"direction": "out"}), 2, "timeout"),
    ];
    block_on(async {
        for (target, params, links, tcp) in cases {
            let mut done = install(&env, target, params.clone()).await;
            let seen = &done.receipt;
            assert_eq!(seen.status, Status::Installed, "{params} {seen:?}");
            assert_eq!(
                seen.evidence["cut"].as_array().unwrap().len(),
                links,
                "{params}"
            );
            assert_eq!(seen.evidence["tcp"][tcp], links, "{params} {seen:?}");
            assert_ne!(rules_of(&rig), before);
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(healed.status, Status::Healed, "{params} {healed:?}");
            assert_eq!(healed.evidence["pass_again"], links);
            assert_eq!(
                rules_of(&rig),
                before,
                "the foreign table survives, nothing else is left"
            );
        }
    });
}

/// Every shape with every way and direction, over five nodes and a worker.
fn all_kinds() -> Vec<(&'static str, serde_json::Value)> {
    let shapes = [
        ("node:0", "isolate", "nodes"),
        ("node:0", "isolate", "workers"),
        ("worker:0", "isolate", "nodes"),
        ("minority", "isolate", "all"),
        ("all", "halves", "nodes"),
        ("all", "bridge", "nodes"),
        ("all", "majorities-ring", "nodes"),
    ];
    let mut kinds = Vec::new();
    for (target, shape, from) in shapes {
        for (how, direction) in [
            ("drop", "both"),
            ("reset", "both"),
            ("drop", "in"),
            ("drop", "out"),
        ] {
            let params = json!({"shape": shape, "from": from, "how": how, "direction": direction});
            kinds.push((target, params));
        }
    }
    kinds
}

/// What `cut` is given for a kind of partition.
async fn links_of(
    env: &TestEnv,
    target: &str,
    params: &serde_json::Value,
) -> (BTreeSet<Link>, How) {
    let fault: Partition = serde_json::from_value(params.clone()).unwrap();
    let o = order("partition", target, params.clone());
    let targets = crate::target::resolve(env, &o).await.unwrap();
    let links = fault.links(&env.procs(), &o, &targets).unwrap();
    (links, fault.how)
}

#[test]
fn every_kind_is_told_from_rules_that_do_nothing_or_too_little() {
    let nodes = (0..5).map(ProcId::Node);
    let ids: Vec<ProcId> = nodes.chain([ProcId::Worker(0)]).collect();
    let Some((rig, env)) = rig_of(&ids) else {
        return;
    };
    let before = rules_of(&rig);
    /// All rules but those against the last of the nodes that a namespace is cut from.
    fn most(commands: &str) -> Result<(), Reason> {
        let mut rules = commands
            .lines()
            .filter(|l| l.ends_with("drop") || l.ends_with("reset"));
        let last = rules
            .next_back()
            .and_then(|l| l.split(' ').nth(2))
            .map(str::to_owned);
        let spared = |l: &&str| last.as_ref().is_none_or(|a| !l.contains(&format!(" {a} ")));
        nft::apply(
            &commands
                .lines()
                .filter(spared)
                .map(|l| format!("{l}\n"))
                .collect::<String>(),
        )
    }
    block_on(async {
        for (target, params) in all_kinds() {
            let (links, how) = links_of(&env, target, &params).await;
            for suppressed in [(|_: &str| Ok(())) as Apply, most] {
                let table = "fencepost_t_f1".to_owned();
                let done = cut(table, &rig.procs, links.clone(), how, suppressed);
                let receipt = done.await.unwrap().receipt;
                assert_eq!(
                    receipt.status,
                    Status::Indeterminate,
                    "{target} {params} {receipt:?}"
                );
                assert_ne!(receipt.evidence["still_pass"], json!([]), "{params}");
                assert_eq!(rules_of(&rig), before, "{target} {params}");
            }
            let mut done = install(&env, target, params.clone()).await;
            assert_eq!(
                done.receipt.status,
                Status::Installed,
                "{target} {params} {:?}",
                done.receipt
            );
            assert_ne!(rules_of(&rig), before);
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(
                healed.status,
                Status::Healed,
                "{target} {params} {healed:?}"
            );
            assert_eq!(rules_of(&rig), before, "{target} {params}");
        }
    });
}

#[test]
fn rules_that_cut_more_than_was_asked_are_not_called_installed() {
    let Some((rig, _env)) = rig() else { return };
    let links = BTreeSet::from([(IDS[0], IDS[1]), (IDS[1], IDS[0])]);
    /// Everything is dropped, whoever sends it.
    fn all(commands: &str) -> Result<(), Reason> {
        nft::apply(&commands.replacen("ip saddr", "drop\nip saddr", 1))
    }
    // The third one is there to lose what it should not.
    let both = links.iter().copied().chain([(IDS[2], IDS[1])]).collect();
    let done = block_on(cut(
        "fencepost_t_f1".into(),
        &rig.procs,
        both,
        How::Drop,
        all,
    ))
    .unwrap();
    assert_eq!(
        done.receipt.status,
        Status::Indeterminate,
        "{:?}",
        done.receipt
    );
    assert_ne!(done.receipt.evidence["lost_besides"], json!([]));
}

#[test]
fn rules_that_do_nothing_are_not_called_installed() {
    let Some((rig, env)) = rig() else { return };
    let before = rules_of(&rig);
    let links = BTreeSet::from([(IDS[0], IDS[1]), (IDS[1], IDS[0])]);
    block_on(async {
        let table = "fencepost_t_f1".into();
        let procs = &rig.procs;
        let done = cut(table, procs, links.clone(), How::Drop, |_| Ok(()))
            .await
            .unwrap();
        assert_eq!(
            done.receipt.status,
            Status::Indeterminate,
            "{:?}",
            done.receipt
        );
        drop(done);
        assert_eq!(rules_of(&rig), before);

        // A second cut of links that are cut already proves nothing.
        let first = install(&env, "node:0", json!({})).await;
        let again = cut("fencepost_t_f2".into(), procs, links, How::Drop, nft::apply)
            .await
            .unwrap();
        assert_eq!(again.receipt.status, Status::Indeterminate);
        drop(again);
        drop(first);
        assert_eq!(rules_of(&rig), before);
    });
}

#[test]
fn a_failed_install_leaves_nothing() {
    let Some((rig, _env)) = rig() else { return };
    let before = rules_of(&rig);
    fn broken(commands: &str) -> Result<(), Reason> {
        if commands.contains("10.9.0.1 drop") {
            return Err(Reason::new("refused"));
        }
        nft::apply(commands)
    }
    let links = BTreeSet::from([(IDS[1], IDS[0]), (IDS[0], IDS[1])]);
    let failed = block_on(cut(
        "fencepost_t_f1".into(),
        &rig.procs,
        links,
        How::Drop,
        broken,
    ));
    assert!(failed.is_err());
    assert_eq!(rules_of(&rig), before);
}

#[test]
fn dropping_heals_and_rules_changed_by_others_are_told() {
    let Some((rig, env)) = rig() else { return };
    let before = rules_of(&rig);
    block_on(async {
        drop(install(&env, "node:0", json!({})).await);
        assert_eq!(rules_of(&rig), before);
        let mut done = install(&env, "node:0", json!({})).await;
        rig.ns(1)
            .run(|| nft::apply("table inet other {\n}\n"))
            .unwrap();
        let healed = done.handle.as_mut().unwrap().heal(&env).await;
        assert_eq!(healed.status, Status::Indeterminate);
        assert_eq!(healed.evidence["rules_identical"], false);
    });
}

#[test]
fn our_own_network_is_never_touched() {
    let p = Proc {
        id: ProcId::Node(0),
        root: 1,
        members: crate::process::Members::Tree,
        netns: Some("/proc/self/ns/net".into()),
        addr: None,
        port: None,
    };
    assert!(NetNs::of(&p).is_err());
    assert!(NetNs::of(&Proc { netns: None, ..p }).is_err());
}

/// A connection between two namespaces: (client end in the first, server end in the second).
fn connected(rig: &Rig, a: usize, b: usize) -> (std::net::TcpStream, std::net::TcpStream) {
    let at = std::net::SocketAddr::new(rig.procs[b].addr.unwrap(), 0);
    let listener = rig
        .ns(b)
        .run(|| Ok(std::net::TcpListener::bind(at)?))
        .unwrap();
    let to = listener.local_addr().unwrap();
    let client = rig
        .ns(a)
        .run(|| Ok(std::net::TcpStream::connect(to)?))
        .unwrap();
    let server = listener.accept().unwrap().0;
    for s in [&client, &server] {
        s.set_read_timeout(Some(std::time::Duration::from_millis(300)))
            .unwrap();
    }
    (client, server)
}

#[test]
fn connections_that_were_open_before_are_cut_too() {
    use std::io::{ErrorKind, Read, Write};
    let Some((rig, env)) = rig() else { return };
    let mut byte = [0];
    block_on(async {
        let (mut client, mut server) = connected(&rig, 3, 0);
        let mut done = install(&env, "worker:0", json!({})).await;
        client.write_all(b"x").unwrap();
        let e = server.read(&mut byte).unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "{e}"
        );
        done.handle.as_mut().unwrap().heal(&env).await;
        server
            .set_read_timeout(Some(std::time::Duration::from_secs(10)))
            .unwrap();
        assert_eq!(server.read(&mut byte).unwrap(), 1, "TCP sends it again");

        let (mut client, _server) = connected(&rig, 3, 0);
        let _held = install(&env, "worker:0", json!({"how": "reset"})).await;
        client.write_all(b"x").unwrap();
        let e = client.read(&mut byte).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn faults_that_overlap_heal_in_any_order() {
    let Some((rig, env)) = rig() else { return };
    let before = rules_of(&rig);
    block_on(async {
        let mut first = install(&env, "node:0", json!({"direction": "in"})).await;
        let fault: Partition = serde_json::from_value(json!({})).unwrap();
        let mut o = order("partition", "worker:0", json!({}));
        o.id = "f2".into();
        let worker = [rig.procs[3].clone()];
        let mut second = fault.install(&env, &o, &worker).await;
        for done in [&mut first, &mut second] {
            assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(healed.status, Status::Healed, "{healed:?}");
        }
        assert_eq!(rules_of(&rig), before);
    });
}
