//! Connections to PostgreSQL, with bounds on every call: the driver has none.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Row};
use tokio_util::sync::CancellationToken;

use crate::locks::{CallError, ConfError, param};
use crate::protocol::Params;

/// SQLSTATE of a wait that `lock_timeout` ended.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Where and as whom to connect. Params: `user` and `dbname` (default
/// `postgres`), `password`.
#[derive(Clone)]
pub struct PgAddr {
    config: Config,
    timeout: Duration,
}

impl PgAddr {
    /// # Errors
    /// An address that is not `host:port`, or a parameter of the wrong kind.
    pub fn new(addr: &str, params: &Params, within: Duration) -> Result<Self, ConfError> {
        let parts = addr
            .rsplit_once(':')
            .and_then(|(h, p)| Some((h, p.parse().ok()?)));
        let Some((host, port)) = parts else {
            return Err(ConfError(format!(
                "postgres address \"{addr}\": expected host:port"
            )));
        };
        let mut config = Config::new();
        config
            .host(host)
            .port(port)
            .user(param(params, "user", "postgres".to_owned())?)
            .dbname(param(params, "dbname", "postgres".to_owned())?)
            .application_name("fencepost")
            .connect_timeout(within)
            // A hold ends with its connection: notice a dead one within seconds.
            .keepalives_idle(Duration::from_secs(1))
            .keepalives_interval(Duration::from_secs(1))
            .keepalives_retries(3);
        if let Some(password) = param::<Option<String>>(params, "password", None)? {
            config.password(password);
        }
        Ok(PgAddr {
            config,
            timeout: within,
        })
    }

    /// Opens a connection and runs `setup` on it.
    ///
    /// # Errors
    /// Definite: no lock and no data is touched yet.
    pub async fn connect(&self, setup: &str) -> Result<PgConn, CallError> {
        let definite = |e: String| CallError::definite(format!("connect: {e}"));
        let (client, connection) = match timeout(self.timeout, self.config.connect(NoTls)).await {
            Ok(Ok(pair)) => pair,
            Ok(Err(e)) => return Err(definite(describe(&e))),
            Err(_) => return Err(definite("timeout".into())),
        };
        let closed = CancellationToken::new();
        let done = closed.clone().drop_guard();
        tokio::spawn(async move {
            // However it ends, whoever holds the token learns of it.
            let _ = connection.await;
            drop(done);
        });
        let conn = PgConn {
            client,
            closed,
            timeout: self.timeout,
        };
        conn.run(setup).await.map_err(|e| definite(e.to_string()))?;
        Ok(conn)
    }
}

/// One connection. Drop it after an unknown error.
pub struct PgConn {
    client: Client,
    /// Cancelled when the connection has ended.
    pub closed: CancellationToken,
    timeout: Duration,
}

impl PgConn {
    pub fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Runs statements without parameters.
    ///
    /// # Errors
    /// Definite where the server refused them.
    pub async fn run(&self, sql: &str) -> Result<(), CallError> {
        self.bounded(self.timeout, self.client.batch_execute(sql))
            .await
    }

    /// One statement, one row, one round trip; may take `extra` longer than other calls.
    ///
    /// # Errors
    /// Definite where the server refused it; `busy` where `lock_timeout` ended it.
    pub async fn one(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
        extra: Duration,
    ) -> Result<Row, CallError> {
        let call = self.client.query_typed(sql, params);
        let rows = self.bounded(self.timeout + extra, call).await?;
        rows.into_iter()
            .next()
            .ok_or_else(|| CallError::unknown("no row came back"))
    }

    /// Any number of rows.
    ///
    /// # Errors
    /// As [`PgConn::one`].
    pub async fn many(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, CallError> {
        self.bounded(self.timeout, self.client.query_typed(sql, params))
            .await
    }

    async fn bounded<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, CallError> {
        match timeout(within, call).await {
            Ok(Ok(v)) => Ok(v),
            Ok(Err(e)) => Err(classify(&e)),
            Err(_) => Err(CallError::unknown("timeout")),
        }
    }
}

/// A statement that the server answered with an error was rolled back.
fn classify(e: &Error) -> CallError {
    match e.as_db_error() {
        Some(db) if db.code().code() == LOCK_NOT_AVAILABLE => CallError::busy(),
        Some(db) => CallError::definite(format!("{}: {}", db.code().code(), db.message())),
        None => CallError::unknown(describe(e)),
    }
}

fn describe(e: &Error) -> String {
    match std::error::Error::source(e) {
        Some(cause) => format!("{e}: {cause}"),
        None => e.to_string(),
    }
}
