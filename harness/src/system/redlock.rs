//! Five Redis masters that know nothing of one another. The algorithm is the client's:
//! <https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;

use super::{
    ClientInit, Facts, Params, Service, System, SystemError, client_params,
    redis::{self, Aof, Clock, PORT},
};
use crate::host::{NodeSpec, Site};

const CLIENT: &[&str] = &[
    "counter",
    "node_timeout_ms",
    "drift_percent",
    "drift_ms",
    "retry_ms",
    "bug",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Redlock {
    nodes: usize,
    aof: Aof,
    #[serde(skip)]
    client: Params,
}

impl Default for Redlock {
    fn default() -> Self {
        Self {
            nodes: 5,
            aof: Aof::Off,
            client: Params::new(),
        }
    }
}

pub(super) fn make(mut params: Params) -> Result<Box<dyn System>, SystemError> {
    let client = client_params(&mut params, CLIENT);
    let made: Redlock = super::params("redlock", params)?;
    super::odd("redlock", made.nodes)?;
    Ok(Box::new(Redlock { client, ..made }))
}

#[async_trait]
impl System for Redlock {
    fn facts(&self) -> Facts {
        Facts {
            // The usual counter is none that can be relied on; it is there to show that.
            fence: self.client.get("counter").is_some_and(|c| c == true),
            durable: self.aof == Aof::Always,
            ..Facts::leased("redlock")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let server = |i| redis::server(site, i, self.aof);
        (0..self.nodes).map(server).collect()
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "redlock".into(),
            endpoints: redis::endpoints(site, self.nodes),
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let mut version = String::new();
        for i in 0..self.nodes {
            version = redis::ready("redlock", redis::addr(site, i), within).await?;
        }
        let servers = (0..self.nodes).map(|i| site.node_addr(i)).collect();
        Ok(Service {
            version,
            server_clock: Some(Arc::new(Clock(servers))),
            ..Service::default()
        })
    }
}
