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

/// List held locks, or show those that are named
#[derive(Debug, clap::Args)]
pub struct LocksArgs {
    /// Locks to show, held or not
    names: Vec<String>,
    /// List held locks whose names begin so; at most 1,000 of each node
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
    all_nodes(&args.at, "/v1/status", |endpoint, status| {
        match args.json {
            true => println!("{status}"),
            false => print_status(endpoint, status),
        };
    })
    .await
}

/// Asks all nodes. One that does not answer is named, and is no error while another does.
async fn all_nodes(at: &Endpoints, path: &str, show: impl Fn(&str, &Value)) -> anyhow::Result<()> {
    let security = at.secure.security();
    let http = security.http(TIME)?;
    let mut useful = false;
    for endpoint in &at.endpoints {
        let url = format!("{}{path}", security.base_url(endpoint)?);
        match answer(http.get(url)).await {
            Ok(value) => {
                useful = true;
                show(endpoint, &value);
            }
            Err(error) => eprintln!("{endpoint}: {error:#}"),
        }
    }
    if !useful {
        bail!("no node answered as it should; are --endpoints, --token and --ca right?");
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
    if !args.names.is_empty() && args.prefix.is_none() {
        return Ok(());
    }
    let prefix = percent_encode(args.prefix.as_deref().unwrap_or_default());
    all_nodes(
        &args.at,
        &format!("/v1/locks?prefix={prefix}"),
        |_, listed| {
            for lock in listed["locks"].as_array().into_iter().flatten() {
                println!("{lock}");
            }
        },
    )
    .await
}

/// `POST` to an administrator's path of one node.
pub async fn admin(args: NodeArgs, verb: &str) -> anyhow::Result<()> {
    let security = args.secure.security();
    let url = format!("{}/v1/admin/{verb}", security.base_url(&args.node)?);
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
