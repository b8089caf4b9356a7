//! One Redis server. Its lock is advisory to nobody but its clients: `SET key owner NX PX`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use fencepost_nemesis::{Fut, ProcId, env::ServerClock};
use serde::Deserialize;

use super::{
    ClientInit, Endpoint, Facts, Params, Service, System, SystemError, client_params,
    resp::{self, Reply},
    until_ready,
};
use crate::host::{NodeSpec, Site};

pub(super) const PORT: u16 = 6379;

/// When Redis syncs its append-only file (`appendfsync`).
#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Aof {
    /// No append-only file, no snapshots: nothing outlives the process.
    #[default]
    Off,
    Always,
    Everysec,
    /// An append-only file that is never synced by Redis.
    No,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Redis {
    #[serde(default)]
    aof: Aof,
    #[serde(skip)]
    client: Params,
}

pub(super) fn make(mut params: Params) -> Result<Box<dyn System>, SystemError> {
    let client = client_params(&mut params, &["retry_ms", "bug"]);
    let made: Redis = super::params("redis", params)?;
    Ok(Box::new(Redis { client, ..made }))
}

#[async_trait]
impl System for Redis {
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            durable: self.aof == Aof::Always,
            ..Facts::leased("redis")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        vec![server(site, 0, self.aof)]
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "redis".into(),
            endpoints: endpoints(site, 1),
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let version = ready("redis", addr(site, 0), within).await?;
        Ok(Service {
            version,
            server_clock: Some(Arc::new(Clock(vec![site.node_addr(0)]))),
            ..Service::default()
        })
    }
}

/// A server at node `index`, writing what `aof` says into its data directory.
pub(super) fn server(site: &Site, index: usize, aof: Aof) -> NodeSpec {
    let fsync = match aof {
        Aof::Always => "always",
        Aof::Everysec | Aof::Off => "everysec",
        Aof::No => "no",
    };
    let append = if aof == Aof::Off { "no" } else { "yes" };
    NodeSpec::new(format!("redis-{index}"), "redis", "redis-server").args([
        "--bind",
        &site.node_addr(index).to_string(),
        "--port",
        &PORT.to_string(),
        "--protected-mode",
        "no",
        "--save",
        "",
        "--dir",
        &site.node_data_dir(index),
        "--appendonly",
        append,
        "--appendfsync",
        fsync,
    ])
}

pub(super) fn endpoints(site: &Site, servers: usize) -> Vec<Endpoint> {
    super::servers("redis", servers, site, PORT)
}

pub(super) fn addr(site: &Site, index: usize) -> SocketAddr {
    super::addr(site, index, PORT)
}

/// Waits for PONG and reads the version.
pub(super) async fn ready(
    system: &'static str,
    addr: SocketAddr,
    within: Duration,
) -> Result<String, SystemError> {
    until_ready(system, within, || async move {
        resp::ask(addr, &["PING"]).await?;
        let info = resp::ask(addr, &["INFO", "server"]).await?;
        info.text()
            .and_then(|t| resp::info(t, "redis_version"))
            .map(str::to_string)
            .ok_or_else(|| "INFO names no redis_version".into())
    })
    .await
}

/// Reads a server's clock with TIME.
pub(super) struct Clock(pub Vec<Ipv4Addr>);

impl ServerClock for Clock {
    fn server_time(&self, id: ProcId) -> Fut<'_, Result<Duration, String>> {
        Box::pin(async move {
            let ProcId::Node(n) = id else {
                return Err(format!("{id} is no server"));
            };
            let ip = *self
                .0
                .get(n as usize)
                .ok_or_else(|| format!("{id} is no Redis server"))?;
            let ask = resp::ask((ip, PORT).into(), &["TIME"]);
            let reply = tokio::time::timeout(Duration::from_secs(2), ask)
                .await
                .map_err(|_| "TIME: no answer within 2 s".to_string())??;
            time(&reply).ok_or_else(|| format!("TIME answered {reply:?}"))
        })
    }
}

fn time(reply: &Reply) -> Option<Duration> {
    let [seconds, micros] = reply.list() else {
        return None;
    };
    Some(
        Duration::from_secs(seconds.text()?.parse().ok()?)
            + Duration::from_micros(micros.text()?.parse().ok()?),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn time_is_seconds_and_microseconds() {
        let t = |s: &str| Reply::Text(s.into());
        assert_eq!(
            time(&Reply::List(vec![t("7"), t("250000")])),
            Some(Duration::from_millis(7250))
        );
        assert_eq!(time(&Reply::Nil), None);
    }

    #[test]
    fn append_only_is_a_parameter() {
        let p: Params = serde_json::from_str(r#"{"aof":"always"}"#).unwrap();
        assert!(make(p).is_ok());
        let p: Params = serde_json::from_str(r#"{"aof":"sometimes"}"#).unwrap();
        assert!(make(p).is_err());
    }
}
