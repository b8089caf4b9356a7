//! `raftlock bench --compare`: ours and another service in turns, on one machine, under the same load.

use std::path::Path;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::etcd::Etcd;
use super::load::{Outcome, Plan, Work, drive};
use super::redis::Redis;
use super::zookeeper::ZooKeeper;
use super::{round, stream};

/// The other service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// etcd's Lock and Unlock, three servers from PATH
    Etcd,
    /// ZooKeeper's create + delete and, contended, its lock recipe; three servers from Debian's packages
    Zookeeper,
    /// One Redis from PATH, its append-only file synced before every answer: SET NX PX and a script
    Redis,
}

enum Other {
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
    Redis(Redis),
}

impl Other {
    async fn start(peer: Peer, dir: &Path) -> anyhow::Result<Self> {
        Ok(match peer {
            Peer::Etcd => Other::Etcd(Etcd::start(dir).await?),
            Peer::Zookeeper => Other::ZooKeeper(ZooKeeper::start(dir).await?),
            Peer::Redis => Other::Redis(Redis::start(dir).await?),
        })
    }

    async fn run(&self, clients: usize, plan: Plan) -> anyhow::Result<Outcome> {
        Ok(match self {
            Other::Etcd(etcd) => drive(etcd.callers(clients, plan).await?, plan).await,
            Other::ZooKeeper(zookeeper) => {
                drive(zookeeper.callers(clients, plan).await?, plan).await
            }
            Other::Redis(redis) => drive(redis.callers(clients, plan).await?, plan).await,
        })
    }

    fn name(&self) -> String {
        match self {
            Other::Etcd(etcd) => format!("etcd {}", etcd.version),
            Other::ZooKeeper(_) => "zookeeper".to_owned(),
            Other::Redis(redis) => format!("redis {}", redis.version),
        }
    }

    /// Does it hand a lock on to whoever waits?
    fn queues(&self) -> bool {
        !matches!(self, Other::Redis(_))
    }
}

/// Client counts and works that are compared.
const CASES: [(usize, Work); 3] = [
    (64, Work::Cycles),
    (256, Work::Cycles),
    (64, Work::Contended),
];

/// Each case `rounds` times, ours and theirs in turns; both clusters stay up, so that what an idle one costs is the same
/// for both.
pub async fn run(
    ours: &Cluster,
    peer: Peer,
    dir: &Path,
    plan: Plan,
    rounds: usize,
) -> anyhow::Result<Value> {
    let other = Other::start(peer, dir).await?;
    let mut cases = Vec::new();
    let compared = |(_, work): &(usize, Work)| *work != Work::Contended || other.queues();
    for (clients, work) in CASES.into_iter().filter(compared) {
        let plan = Plan { work, ..plan };
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            let leaders = ours.leaders().await?;
            let callers = stream::callers(&leaders, clients, plan).await?;
            mine.push(drive(callers, plan).await);
            theirs.push(other.run(clients, plan).await?);
        }
        let ratios: Vec<f64> = mine
            .iter()
            .zip(&theirs)
            .map(|(mine, theirs)| round(mine.cycles_per_s() / theirs.cycles_per_s().max(0.001)))
            .collect();
        cases.push(json!({
            "work": format!("{work:?}").to_lowercase(),
            "clients": clients,
            "ratios": ratios,
            "raftlock": summary(&mine),
            other.name(): summary(&theirs),
        }));
    }
    let connections = plan.connections.word();
    Ok(json!({ "compare": other.name(), "connections": connections, "cases": cases }))
}

fn summary(outcomes: &[Outcome]) -> Value {
    let each = |of: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes.iter().map(|outcome| round(of(outcome))).collect()
    };
    json!({
        "cycles_per_s": each(&Outcome::cycles_per_s),
        "p50_ms": each(&|outcome| outcome.acquire_ms(0.5)),
        "p99_ms": each(&|outcome| outcome.acquire_ms(0.99)),
        "failures": outcomes.iter().map(|outcome| outcome.failures).sum::<u64>(),
        "why": outcomes.iter().find_map(|outcome| outcome.why.clone()),
    })
}

/// One line a case.
pub fn print(figures: &Value) {
    let name = figures["compare"].as_str().unwrap_or_default();
    for case in figures["cases"].as_array().into_iter().flatten() {
        println!(
            "{} at {} clients: raftlock is {} times as fast",
            case["work"].as_str().unwrap_or_default(),
            case["clients"],
            case["ratios"]
        );
        for service in ["raftlock", name] {
            let seen = &case[service];
            println!(
                "  {service:<16} cycles/s {}  acquire p50 {} ms, p99 {} ms  failures {}",
                seen["cycles_per_s"], seen["p50_ms"], seen["p99_ms"], seen["failures"]
            );
            if let Some(why) = seen["why"].as_str() {
                println!("  {service:<16} first failure: {why}");
            }
        }
    }
}
