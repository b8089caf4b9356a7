//! Store in PostgreSQL: `UPDATE … WHERE highest <= token` in the transaction
//! that also writes the log. Params: `raise_on_read` (default true), `cas`
//! (default false: accept a write iff the register still holds `prev`, whatever
//! the fence), and those of the connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tokio_postgres::types::Type;

use super::text::{head, numbered, parse, text};
use super::{
    Access, Armed, BoxedStore, Change, FinalState, Store, StoreAdmin, StoreContext, StoreKind,
};
use crate::locks::{CallError, ConfError, param};
use crate::protocol::Item;
use crate::wire::postgres::{PgAddr, PgConn};

pub const KIND: StoreKind = StoreKind {
    name: "postgres",
    about: "PostgreSQL: UPDATE … WHERE highest <= token, or compare-and-set",
    new,
    admin,
};

/// `fence` is numeric: it holds all of 64 bits unsigned. Log numbers are drawn
/// under the row's lock, so they follow the serial order of each key.
const SETUP: &str = r#"
BEGIN;
SELECT pg_advisory_xact_lock(4712);
CREATE TABLE IF NOT EXISTS fencepost_store
  (key text PRIMARY KEY, value text, set text, highest numeric(20));
CREATE TABLE IF NOT EXISTS fencepost_log (seq bigserial PRIMARY KEY, line text);
CREATE OR REPLACE FUNCTION fencepost_apply(op text, k text, token numeric, fenced bool, raises bool,
    field text, new text, expected text, head text, OUT accepted bool, OUT old text) AS $$
DECLARE high numeric; tail text;
BEGIN
  INSERT INTO fencepost_store(key) VALUES (k) ON CONFLICT DO NOTHING;
  SELECT CASE field WHEN 'value' THEN s.value ELSE s.set END INTO old
    FROM fencepost_store s WHERE key = k FOR UPDATE;
  UPDATE fencepost_store s SET
      value = CASE WHEN op = 'write' THEN new ELSE s.value END,
      set = CASE WHEN op = 'add' THEN new ELSE s.set END,
      highest = CASE WHEN raises THEN greatest(s.highest, token) ELSE s.highest END
    WHERE key = k AND (NOT fenced OR token IS NULL OR s.highest IS NULL OR s.highest <= token)
      AND (expected IS NULL OR expected = coalesce(old, 'null'));
  accepted := FOUND;
  SELECT s.highest INTO high FROM fencepost_store s WHERE key = k;
  tail := CASE WHEN op = 'read' AND field = 'value' THEN ',"value":' || coalesce(old, 'null') ELSE '' END
    || CASE WHEN accepted THEN ',"accepted":true' WHEN expected IS NULL
         THEN ',"accepted":false,"reason":"stale-fence"' ELSE ',"accepted":false,"reason":"conflict"' END
    || ',"highest":' || coalesce(high::text, 'null')
    || ',"time":' || floor(extract(epoch FROM clock_timestamp()) * 1000000)::text || '000}';
  INSERT INTO fencepost_log(line) VALUES (head || tail);
END $$ LANGUAGE plpgsql;
COMMIT"#;

const APPLY: &str =
    "SELECT accepted, old FROM fencepost_apply($1, $2, $3::text::numeric, $4, $5, $6, $7, $8, $9)";

struct Inner {
    addr: PgAddr,
    idle: Mutex<Option<PgConn>>,
    fenced: bool,
    raise_on_read: bool,
    cas: bool,
}

#[derive(Clone)]
struct PgStore(Arc<Inner>);

fn open(cx: StoreContext) -> Result<PgStore, ConfError> {
    let p = &cx.conf.params;
    Ok(PgStore(Arc::new(Inner {
        addr: PgAddr::new(&cx.conf.addr, p, cx.timeout)?,
        idle: Mutex::new(None),
        raise_on_read: param(p, "raise_on_read", true)?,
        cas: param(p, "cas", false)?,
        fenced: cx.conf.fenced,
    })))
}

fn new(cx: StoreContext) -> Result<BoxedStore, ConfError> {
    Ok(Box::new(open(cx)?))
}

fn admin(cx: StoreContext) -> Result<Box<dyn StoreAdmin>, ConfError> {
    Ok(Box::new(open(cx)?))
}

/// One call of the function.
struct Call {
    op: &'static str,
    key: Arc<str>,
    token: Option<String>,
    fenced: bool,
    raises: bool,
    field: &'static str,
    new: Option<String>,
    expected: Option<String>,
    head: String,
}

impl Inner {
    fn call(&self, op: &'static str, field: &'static str, at: &Access, more: Json) -> Call {
        let exempt = op == "read" && !self.raise_on_read;
        Call {
            op,
            key: at.key.clone(),
            token: at.fence.map(|f| f.to_string()),
            fenced: self.fenced && !exempt && !self.cas,
            raises: !exempt,
            field,
            new: None,
            expected: None,
            head: head(op, at, more),
        }
    }

    async fn connection(&self) -> Result<PgConn, CallError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match idle.filter(PgConn::is_open) {
            Some(conn) => Ok(conn),
            None => self.addr.connect(SETUP).await,
        }
    }

    fn keep(&self, conn: PgConn) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(conn);
    }

    async fn run(&self, conn: PgConn, c: &Call) -> Result<Option<String>, CallError> {
        let key: &str = &c.key;
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 9] = [
            (&c.op, Type::TEXT),
            (&key, Type::TEXT),
            (&c.token, Type::TEXT),
            (&c.fenced, Type::BOOL),
            (&c.raises, Type::BOOL),
            (&c.field, Type::TEXT),
            (&c.new, Type::TEXT),
            (&c.expected, Type::TEXT),
            (&c.head, Type::TEXT),
        ];
        let answer = conn.one(APPLY, &params, Duration::ZERO).await;
        if !matches!(answer, Err(CallError::Unknown(_))) {
            self.keep(conn);
        }
        let row = answer?;
        match row.get(0) {
            true => Ok(row.get(1)),
            false if c.expected.is_some() => Err(CallError::definite("conflict")),
            false => Err(CallError::definite("stale-fence")),
        }
    }

    async fn fetch(&self, at: &Access, field: &'static str) -> Result<Option<String>, CallError> {
        let call = self.call("read", field, at, Json::Null);
        self.run(self.connection().await?, &call).await
    }
}

#[async_trait]
impl Store for PgStore {
    async fn read(&self, at: &Access) -> Result<Option<Item>, CallError> {
        parse(self.0.fetch(at, "value").await?)
    }

    async fn read_set(&self, at: &Access) -> Result<Vec<Item>, CallError> {
        Ok(parse(self.0.fetch(at, "set").await?)?.unwrap_or_default())
    }

    async fn arm(&self, at: &Access, change: Change) -> Result<Box<dyn Armed>, CallError> {
        let call = match change {
            Change::Write { value, prev } => Call {
                new: Some(text(&value)),
                expected: self.0.cas.then(|| text(&prev)),
                ..self
                    .0
                    .call("write", "value", at, json!({"value": value, "prev": prev}))
            },
            Change::Add { element, set } => Call {
                new: Some(text(&set)),
                ..self.0.call("add", "set", at, json!({"element": element}))
            },
        };
        let conn = self.0.connection().await?;
        Ok(Box::new(Shot {
            inner: self.0.clone(),
            conn,
            call,
        }))
    }
}

struct Shot {
    inner: Arc<Inner>,
    conn: PgConn,
    call: Call,
}

#[async_trait]
impl Armed for Shot {
    async fn fire(self: Box<Self>) -> Result<(), CallError> {
        let Shot { inner, conn, call } = *self;
        inner.run(conn, &call).await.map(|_| ())
    }
}

#[async_trait]
impl StoreAdmin for PgStore {
    async fn final_state(&self, key: &str) -> Result<FinalState, CallError> {
        let conn = self.0.connection().await?;
        let sql = "SELECT value, set FROM fencepost_store WHERE key = $1";
        let rows = conn.many(sql, &[(&key, Type::TEXT)]).await?;
        self.0.keep(conn);
        let Some(row) = rows.first() else {
            return Ok(FinalState::default());
        };
        Ok(FinalState {
            value: parse(row.get(0))?,
            set: parse(row.get(1))?.unwrap_or_default(),
        })
    }

    async fn export_log(&self) -> Result<Option<Vec<String>>, CallError> {
        let conn = self.0.connection().await?;
        let rows = conn
            .many("SELECT line FROM fencepost_log ORDER BY seq", &[])
            .await?;
        self.0.keep(conn);
        let line = |(n, row): (usize, &tokio_postgres::Row)| numbered(n, row.get(0));
        Ok(Some(rows.iter().enumerate().map(line).collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{access, postgres, store_context, trial};

    #[tokio::test]
    async fn it_keeps_the_rules_of_every_store() {
        let Some(server) = postgres() else { return };
        let make = |fenced| store_context("postgres", &server.addr, fenced);
        trial::fenced(&*new(make(true)).unwrap(), &*admin(make(true)).unwrap()).await;
        trial::unfenced(&*new(make(false)).unwrap(), &*admin(make(false)).unwrap()).await;
    }

    #[tokio::test]
    async fn compare_and_set_refuses_a_write_that_read_something_else() {
        let Some(server) = postgres() else { return };
        let mut cx = store_context("postgres", &server.addr, false);
        cx.conf.params = crate::testing::params(json!({"cas": true}));
        let store = new(cx).unwrap();
        let write = |value: &str, prev: Option<&str>| {
            let change = Change::Write {
                value: Item::str(value),
                prev: prev.map(Item::str),
            };
            let store = &store;
            async move { store.arm(&access("L0", 1), change).await?.fire().await }
        };
        write("a", None).await.unwrap();
        assert_eq!(
            write("b", None).await.unwrap_err(),
            CallError::definite("conflict")
        );
        write("c", Some("a")).await.unwrap();
    }
}
