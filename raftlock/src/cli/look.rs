//! `raftlock status | locks | transfer-leader | snapshot`: looking at and tending a cluster.

use std::time::Duration;

use anyhow::{Context, bail};
use raftlock_client::{RequestBuilder, percent_encode};
use serde_json::Value;

use super::{Endpoints, Secure};

/// Show every node's groups, leaders and sizes
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    at: Endpoints,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show one lock
#[derive(Debug, clap::Args)]
pub struct LocksArgs {
    /// Names, or beginnings of names with --prefix
    names: Vec<String>,
    /// List held locks whose names begin so
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    at: Endpoints,
}

/// Hand the leaderships of a node to the others
#[derive(Debug, clap::Args)]
pub struct NodeArgs {
    /// The node, HOST:PORT
    pub node: String,
    #[command(flatten)]
    pub secure: Secure,
}

const TIME: Option<Duration> = Some(Duration::from_secs(10));

/// Prints the status of all nodes.
pub async fn status(args: StatusArgs) -> anyhow::Result<()> {
    let security = args.at.secure.security();
    let http = security.http(TIME)?;
    let mut reached = 0;
    for endpoint in &args.at.endpoints {
        let url = format!("{}/v1/status", security.base_url(endpoint));
        match answer(http.get(url)).await {
            Ok(status) if args.json => println!("{status}"),
            Ok(status) => print_status(endpoint, &status),
            Err(error) => {
                eprintln!("{endpoint}: {error:#}");
                continue;
            }
        }
        reached += 1;
    }
    if reached == 0 {
        bail!("no node answered; is --endpoints right?");
    }
    Ok(())
}

fn print_status(endpoint: &str, status: &Value) {
    println!(
        "node {} at {endpoint}, {} replicas",
        status["node"], status["replicas"]
    );
    for group in status["groups"].as_array().into_iter().flatten() {
        println!(
            "  group {:>2}  {:<9} term {:>4}  leader {:>4}  log {:>8}  sessions {:>6}  held {:>7}  waiting {:>5}",
            group["group"],
            group["state"].as_str().unwrap_or("?"),
            group["term"],
            group["leader"],
            group["last_log"],
            group["sessions"],
            group["held"],
            group["waiting"],
        );
    }
}

/// Prints locks as JSON, one a line.
pub async fn locks(args: LocksArgs) -> anyhow::Result<()> {
    let api = args.at.api()?;
    for name in &args.names {
        println!(
            "{}",
            serde_json::to_string(&api.show(name).await.result()?)?
        );
    }
    if let Some(prefix) = &args.prefix {
        let security = args.at.secure.security();
        let http = security.http(TIME)?;
        for endpoint in &args.at.endpoints {
            let (base, prefix) = (security.base_url(endpoint), percent_encode(prefix));
            let url = format!("{base}/v1/locks?prefix={prefix}");
            let listed = answer(http.get(url)).await.context(endpoint.clone())?;
            for lock in listed["locks"].as_array().into_iter().flatten() {
                println!("{lock}");
            }
        }
    }
    Ok(())
}

/// `POST` to an administrator's path of one node.
pub async fn admin(args: NodeArgs, verb: &str) -> anyhow::Result<()> {
    let security = args.secure.security();
    let url = format!("{}/v1/admin/{verb}", security.base_url(&args.node));
    let said = answer(security.http(TIME)?.post(&url)).await;
    println!("{}", said.with_context(|| args.node.clone())?);
    Ok(())
}

/// What a node answers; its refusals are errors.
async fn answer(request: RequestBuilder) -> anyhow::Result<Value> {
    let value: Value = request.send().await?.json().await?;
    if let Some(error) = value.get("error") {
        let word = |key: &str| error[key].as_str().unwrap_or("?").to_owned();
        bail!("{}: {}", word("code"), word("message"));
    }
    Ok(value)
}
