//! `raftlock bench`: a cluster of its own and load on it.

mod cluster;
mod compare;
mod etcd;
mod floor;
mod http;
mod kill;
mod load;
mod redis;
mod scenario;
mod stream;
mod zookeeper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use cluster::{Cluster, Setup};
use load::{Connections, Outcome, Plan, Work, drive};

/// Measure a cluster started for this on this machine
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Replicas, each a process of its own
    #[arg(long, default_value_t = 3, value_parser = replicas)]
    replicas: u64,
    /// Groups
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    groups: u32,
    /// Seconds measured, after two of warming up
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Clients in closed loops
    #[arg(long, default_value_t = 512, value_parser = clients)]
    clients: usize,
    /// What they do
    #[arg(long, value_enum, default_value = "mix")]
    work: Work,
    /// Over which connections the clients go
    #[arg(long, value_enum, default_value = "shared")]
    connections: Connections,
    /// Each client calls over a plain HTTP connection of its own instead of a stream
    #[arg(long)]
    http: bool,
    /// Cycles a second in all, instead of as fast as answers come
    #[arg(long)]
    rate: Option<f64>,
    /// In turns with another service: 64 and 256 clients on locks of their own, 64 on one
    #[arg(long, value_enum)]
    compare: Option<compare::Peer>,
    /// Turns of a comparison
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Something else than a load's speed
    #[arg(long, value_enum, conflicts_with = "compare")]
    scenario: Option<scenario::Scenario>,
    /// Where the replicas keep their data [default: the system's temporary directory]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn replicas(text: &str) -> Result<u64, String> {
    match text {
        "1" | "3" | "5" => Ok(u64::from(text.as_bytes()[0] - b'0')),
        _ => Err("it is 1, 3 or 5".to_owned()),
    }
}

fn clients(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "it is a number above 0".to_owned())
}

/// Runs it and prints the figures.
pub async fn run(args: BenchArgs) -> anyhow::Result<()> {
    let data = match &args.data {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    }
    .context("no directory for the replicas' data")?;
    let mut setup = Setup {
        replicas: args.replicas,
        groups: args.groups,
        args: Vec::new(),
    };
    if let Some(scenario) = args.scenario {
        setup.args = scenario.arguments();
    }
    let mut cluster = Cluster::start(&setup, data.path()).await?;
    let plan = Plan {
        work: args.work,
        connections: args.connections,
        warm: Duration::from_secs(2),
        seconds: Duration::from_secs(args.seconds.max(1)),
        rate: args.rate,
    };
    let mut figures = match (args.compare, args.scenario) {
        (Some(peer), _) => {
            let plan = Plan {
                warm: Duration::from_secs(1),
                ..plan
            };
            compare::run(&cluster, peer, data.path(), plan, args.rounds).await?
        }
        (_, Some(scenario)) => scenario.run(&mut cluster, data.path()).await?,
        _ => load(&args, &cluster, plan).await?,
    };
    figures["replicas"] = json!(args.replicas);
    figures["groups"] = json!(args.groups);
    if args.json {
        println!("{figures}");
    } else if args.compare.is_some() {
        compare::print(&figures);
    } else {
        for (name, value) in figures.as_object().into_iter().flatten() {
            println!("{name:>20}  {value}");
        }
    }
    Ok(())
}

async fn load(args: &BenchArgs, cluster: &Cluster, plan: Plan) -> anyhow::Result<Value> {
    let leaders = cluster.leaders().await?;
    let before = cluster.usage().0;
    let outcome = if args.http {
        drive(
            http::callers(&leaders, args.clients, plan.work).await?,
            plan,
        )
        .await
    } else {
        drive(stream::callers(&leaders, args.clients, plan).await?, plan).await
    };
    let (cpu, resident) = cluster.usage();
    let mut figures = figures(&outcome);
    figures["clients"] = json!(args.clients);
    figures["over"] = json!(if args.http { "http" } else { "stream" });
    figures["connections"] = json!(args.connections.word());
    figures["work"] = json!(format!("{:?}", args.work).to_lowercase());
    figures["replicas_cpu_s"] = json!(round(cpu.saturating_sub(before).as_secs_f64()));
    figures["replica_max_rss_mb"] = json!(resident >> 20);
    Ok(figures)
}

fn figures(outcome: &Outcome) -> Value {
    let seconds = outcome.elapsed.as_secs_f64();
    let ms = |micros: u64| round(micros as f64 / 1000.0);
    json!({
        "ops_per_s": round(outcome.operations as f64 / seconds),
        "cycles_per_s": round(outcome.cycles_per_s()),
        "failures": outcome.failures,
        "why": outcome.why,
        "p50_ms": round(outcome.acquire_ms(0.5)),
        "p99_ms": round(outcome.acquire_ms(0.99)),
        "max_ms": ms(outcome.acquire.max()),
        "all_p50_ms": ms(outcome.all.value_at_quantile(0.5)),
        "all_p99_ms": ms(outcome.all.value_at_quantile(0.99)),
    })
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
