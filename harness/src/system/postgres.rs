//! PostgreSQL. A lock has no lease: it ends with the connection that took it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use fencepost_nemesis::{Fut, ProcId, env::ServerClock};
use serde::Deserialize;

use super::{
    ClientInit, Endpoint, Facts, Params, Service, System, SystemError, client_params, pg,
    until_ready,
};
use crate::host::{NodeSpec, Prepare, RunAs, Site};

const PORT: u16 = 5432;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Postgres {
    /// The server ends an idle session after this: the bound for a silent holder. 0: never.
    idle_session_timeout_ms: u64,
    #[serde(skip)]
    client: Params,
}

impl Default for Postgres {
    fn default() -> Self {
        Self {
            idle_session_timeout_ms: 5000,
            client: Params::new(),
        }
    }
}

pub(super) fn make(mut params: Params) -> Result<Box<dyn System>, SystemError> {
    let client = client_params(&mut params, &["lock", "variant", "retry_ms", "bug"]);
    let made: Postgres = super::params("postgres", params)?;
    Ok(Box::new(Postgres { client, ..made }))
}

fn addr(site: &Site) -> SocketAddr {
    (site.node_addr(0), PORT).into()
}

#[async_trait]
impl System for Postgres {
    fn facts(&self) -> Facts {
        Facts {
            lease: false,
            // Without a lock nothing is granted that a fence could stand for.
            fence: self.client.get("variant").is_none_or(|v| v != "none"),
            ends_with_connection: true,
            min_ttl_ms: 0,
            ..Facts::leased("postgres")
        }
    }

    fn nodes(&self, site: &Site) -> Vec<NodeSpec> {
        let data = site.node_data_dir(0);
        let cluster = format!("{data}/pg");
        let settings = [
            ("listen_addresses", site.node_addr(0).to_string()),
            ("port", PORT.to_string()),
            ("unix_socket_directories", String::new()),
            ("hba_file", format!("{data}/pg_hba.conf")),
            ("max_connections", "300".into()),
            (
                "idle_session_timeout",
                self.idle_session_timeout_ms.to_string(),
            ),
            // A holder that was cut off is noticed when the server has something to say to it, or by these.
            ("tcp_keepalives_idle", "1".into()),
            ("tcp_keepalives_interval", "1".into()),
            ("tcp_keepalives_count", "3".into()),
            ("client_connection_check_interval", "1000".into()),
        ];
        let mut spec = NodeSpec::new("postgres-0", "postgres", "postgres")
            .args(["-D", &cluster])
            .args(
                settings
                    .iter()
                    .flat_map(|(k, v)| ["-c".into(), format!("{k}={v}")]),
            )
            .file("pg_hba.conf", "host all all 0.0.0.0/0 trust\n");
        spec.run_as = RunAs::Unprivileged;
        let initdb = [
            "-D", &cluster, "-U", "postgres", "-A", "trust", "-E", "UTF8",
        ];
        let mut args: Vec<String> = initdb.map(Into::into).into();
        args.extend(["--locale=C".into(), "--no-sync".into()]);
        spec.prepare = Some(Prepare {
            program: "initdb".into(),
            args,
            unless: "pg/PG_VERSION".into(),
        });
        vec![spec]
    }

    fn client(&self, site: &Site) -> ClientInit {
        ClientInit {
            name: "postgres".into(),
            endpoints: vec![Endpoint {
                name: "postgres-0".into(),
                addr: addr(site),
            }],
            params: self.client.clone(),
        }
    }

    fn port(&self, _node: usize) -> Option<u16> {
        Some(PORT)
    }

    async fn join(&self, site: &Site, within: Duration) -> Result<Service, SystemError> {
        let addr = addr(site);
        let ask = || pg::ask(addr, "SHOW server_version");
        let version = until_ready("postgres", within, ask).await?;
        // `17.5 (Debian 17.5-1)`
        let version = version.split(' ').next().unwrap_or_default().to_string();
        Ok(Service {
            version,
            server_clock: Some(Arc::new(Clock(addr))),
            ..Service::default()
        })
    }
}

struct Clock(SocketAddr);

impl ServerClock for Clock {
    fn server_time(&self, _id: ProcId) -> Fut<'_, Result<Duration, String>> {
        Box::pin(async move {
            let ask = pg::ask(self.0, "SELECT extract(epoch FROM clock_timestamp())");
            let answer = tokio::time::timeout(Duration::from_secs(2), ask).await;
            let text = answer.map_err(|_| "no answer within 2 s".to_string())??;
            let seconds: f64 = text.parse().map_err(|e| format!("{text:?}: {e}"))?;
            Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
        })
    }
}
