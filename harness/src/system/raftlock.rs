//! Our own lock service. The server is this very program: `fencepost node raftlock`.

use std::{net::SocketAddr, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;

use super::{ClientInit, Endpoint, Facts, Params, Service, System, SystemError, http, until_ready};
use crate::host::{NodeSpec, Site};

const PORT: u16 = 7420;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raftlock {
    /// Handed on to the client.
    #[serde(default)]
    client: Params,
}

pub(super) fn make(params: Params) -> Result<Box<dyn System>, SystemError> {
    Ok(Box::new(super::params::<Raftlock>("raftlock", params)?))
}

fn addr(site: &Site, index: usize) -> SocketAddr {
    (site.node_addr(index), PORT).into()
}

#[async_trait]
impl System for Raftlock {
    fn facts(&self) -> Facts {
        Facts {
            fence: true,
            fifo: true,
            ..Facts::leased("raftlock")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        vec![NodeSpec::new("raftlock-0", "raftlock", "fencepost").args([
            "node",
            "raftlock",
            "--listen",
            &addr(site, 0).to_string(),
            "--data",
            &site.node_data_dir(0),
        ])]
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "raftlock".into(),
            endpoints: vec![Endpoint {
                name: "raftlock-0".into(),
                addr: addr(site, 0),
            }],
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let addr = addr(site, 0);
        let status = until_ready("raftlock", within, || http::json(addr, "/healthz", None)).await?;
        // The server is this program: where it does not say its version, ours is it.
        let version = status["version"]
            .as_str()
            .unwrap_or(env!("CARGO_PKG_VERSION"));
        Ok(Service {
            version: version.into(),
            ..Service::default()
        })
    }
}
