//! `raftlock bench`: a cluster of its own and load on it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::load::{self, Outcome, Work};

/// Measure a cluster started for this on this machine
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Replicas, each a process of its own
    #[arg(long, default_value_t = 3)]
    replicas: u64,
    /// Groups
    #[arg(long, default_value_t = 4)]
    groups: u32,
    /// Seconds measured, after two of warming up
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Clients in closed loops
    #[arg(long, default_value_t = 512)]
    clients: usize,
    /// What they do
    #[arg(long, value_enum, default_value = "mix")]
    work: Work,
    /// Cycles a second in all, instead of as fast as answers come
    #[arg(long)]
    rate: Option<f64>,
    /// Where the replicas keep their data [default: the system's temporary directory]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it and prints the figures.
pub async fn run(args: BenchArgs) -> anyhow::Result<()> {
    let cluster = Cluster::start(args.replicas, args.groups, args.data.as_deref()).await?;
    let leaders = cluster.leaders(args.groups).await?;
    let warm = Duration::from_secs(2);
    let seconds = Duration::from_secs(args.seconds.max(1));
    let before = cluster.usage().0;
    let outcome = load::run(&leaders, args.clients, args.work, warm, seconds, args.rate).await?;
    let (cpu, resident) = cluster.usage();
    let mut figures = figures(&outcome);
    figures["replicas"] = json!(args.replicas);
    figures["groups"] = json!(args.groups);
    figures["clients"] = json!(args.clients);
    figures["work"] = json!(format!("{:?}", args.work).to_lowercase());
    figures["replicas_cpu_s"] = json!(round(cpu.saturating_sub(before).as_secs_f64()));
    figures["replica_max_rss_mb"] = json!(resident >> 20);
    if args.json {
        println!("{figures}");
    } else {
        for (name, value) in figures.as_object().into_iter().flatten() {
            println!("{name:>20}  {value}");
        }
    }
    Ok(())
}

fn figures(outcome: &Outcome) -> Value {
    let seconds = outcome.elapsed.as_secs_f64();
    let ms = |micros: u64| round(micros as f64 / 1000.0);
    json!({
        "ops_per_s": round(outcome.operations as f64 / seconds),
        "cycles_per_s": round(outcome.cycles as f64 / seconds),
        "failures": outcome.failures,
        "p50_ms": ms(outcome.acquire.value_at_quantile(0.5)),
        "p99_ms": ms(outcome.acquire.value_at_quantile(0.99)),
        "max_ms": ms(outcome.acquire.max()),
        "all_p50_ms": ms(outcome.all.value_at_quantile(0.5)),
        "all_p99_ms": ms(outcome.all.value_at_quantile(0.99)),
    })
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
