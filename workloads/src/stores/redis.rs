//! Store on a Redis server: the fence is checked in the script that applies
//! the operation, which also appends to the log, a Redis list.
//!
//! Lua numbers are doubles, so fences go through scripts as decimal strings of
//! 20 digits, which compare as strings. Params: `raise_on_read` (default true).

use std::sync::Arc;

use async_trait::async_trait;
use redis::Value;
use serde_json::{Value as Json, json};

use super::text::{head, numbered, parse, text};
use super::{
    Access, Armed, BoxedStore, Change, FinalState, Store, StoreAdmin, StoreContext, StoreKind,
};
use crate::locks::{CallError, ConfError, param};
use crate::protocol::Item;
use crate::wire::redis::{RedisLink, RespConn, eval};

pub const KIND: StoreKind = StoreKind {
    name: "redis",
    about: "a Redis server: fence checked in Lua, log in a list",
    new,
    admin,
};

/// KEYS: slot (a hash), log. ARGV: op, fence or "", fenced, raises, field or
/// "", new contents, log head. Answers {accepted, contents}.
const APPLY: &str = r#"
local op, fence, fenced, raises, field, new, head = unpack(ARGV)
local high = redis.call('HGET', KEYS[1], 'highest')
local ok = not (fenced == '1' and fence ~= '' and high and fence < high)
if ok and raises == '1' and fence ~= '' and (not high or fence > high) then
  high = fence
  redis.call('HSET', KEYS[1], 'highest', high)
end
local old = redis.call('HGET', KEYS[1], field)
if ok and op ~= 'read' then
  redis.call('HSET', KEYS[1], field, new)
end
local t = redis.call('TIME')
local tail = ok and ',"accepted":true' or ',"accepted":false,"reason":"stale-fence"'
if op == 'read' and field == 'value' then
  tail = ',"value":' .. ((ok and old) or 'null') .. tail
end
local shown = high and string.gsub(high, '^0+(%d)', '%1') or 'null'
redis.call('RPUSH', KEYS[2], head .. tail .. ',"highest":' .. shown
  .. ',"time":' .. t[1] .. string.format('%06d', tonumber(t[2])) .. '000}')
return {ok and 1 or 0, old}"#;

const LOG: &str = "fencepost:store:log";

/// Lines of the log that are fetched at a time.
const PAGE: isize = 10_000;

struct Inner {
    link: RedisLink,
    fenced: bool,
    raise_on_read: bool,
}

#[derive(Clone)]
struct RedisStore(Arc<Inner>);

fn open(cx: StoreContext) -> Result<RedisStore, ConfError> {
    if cx.conf.addr.is_empty() {
        return Err(ConfError("store \"redis\" needs an \"addr\"".into()));
    }
    Ok(RedisStore(Arc::new(Inner {
        raise_on_read: param(&cx.conf.params, "raise_on_read", true)?,
        link: RedisLink::new(cx.conf.addr, cx.timeout),
        fenced: cx.conf.fenced,
    })))
}

fn new(cx: StoreContext) -> Result<BoxedStore, ConfError> {
    Ok(Box::new(open(cx)?))
}

fn admin(cx: StoreContext) -> Result<Box<dyn StoreAdmin>, ConfError> {
    Ok(Box::new(open(cx)?))
}

fn slot(key: &str) -> String {
    format!("fencepost:store:{key}")
}

impl Inner {
    /// The script call: `field` is `value` or `set`, `new` its new contents.
    fn command(&self, op: &str, at: &Access, field: &str, new: &str, more: Json) -> Vec<u8> {
        let exempt = op == "read" && !self.raise_on_read;
        let flag = |b: bool| if b { "1" } else { "0" };
        let fence = at.fence.map(|f| format!("{:020}", f.0)).unwrap_or_default();
        let args = [
            op,
            &fence,
            flag(self.fenced && !exempt),
            flag(!exempt),
            field,
            new,
            &head(op, at, more),
        ];
        eval(APPLY, &[&slot(&at.key), LOG], &args).get_packed_command()
    }

    async fn run(&self, conn: RespConn, bytes: Vec<u8>) -> Result<Option<String>, CallError> {
        let answer: Value = self.link.send(conn, bytes).await?;
        let (accepted, old): (bool, Option<String>) =
            redis::from_redis_value(answer).map_err(|e| CallError::unknown(e.to_string()))?;
        if accepted {
            Ok(old)
        } else {
            Err(CallError::definite("stale-fence"))
        }
    }

    async fn fetch(&self, at: &Access, field: &str) -> Result<Option<String>, CallError> {
        let bytes = self.command("read", at, field, "", Json::Null);
        self.run(self.link.take().await?, bytes).await
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn read(&self, at: &Access) -> Result<Option<Item>, CallError> {
        parse(self.0.fetch(at, "value").await?)
    }

    async fn read_set(&self, at: &Access) -> Result<Vec<Item>, CallError> {
        Ok(parse(self.0.fetch(at, "set").await?)?.unwrap_or_default())
    }

    async fn arm(&self, at: &Access, change: Change) -> Result<Box<dyn Armed>, CallError> {
        let bytes = match change {
            Change::Write { value, prev } => {
                let more = json!({"value": value, "prev": prev});
                self.0.command("write", at, "value", &text(&value), more)
            }
            Change::Add { element, set } => {
                self.0
                    .command("add", at, "set", &text(&set), json!({"element": element}))
            }
        };
        let conn = self.0.link.take().await?;
        Ok(Box::new(Shot {
            inner: self.0.clone(),
            conn,
            bytes,
        }))
    }
}

struct Shot {
    inner: Arc<Inner>,
    conn: RespConn,
    bytes: Vec<u8>,
}

#[async_trait]
impl Armed for Shot {
    async fn fire(self: Box<Self>) -> Result<(), CallError> {
        self.inner.run(self.conn, self.bytes).await.map(|_| ())
    }
}

#[async_trait]
impl StoreAdmin for RedisStore {
    async fn final_state(&self, key: &str) -> Result<FinalState, CallError> {
        let cmd = redis::cmd("HMGET")
            .arg(slot(key))
            .arg("value")
            .arg("set")
            .to_owned();
        let (value, set): (Option<String>, Option<String>) = self.0.link.call(&cmd).await?;
        Ok(FinalState {
            value: parse(value)?,
            set: parse(set)?.unwrap_or_default(),
        })
    }

    async fn export_log(&self) -> Result<Option<Vec<String>>, CallError> {
        let mut lines = Vec::new();
        loop {
            let from = lines.len() as isize;
            let cmd = redis::cmd("LRANGE")
                .arg(LOG)
                .arg(from)
                .arg(from + PAGE - 1)
                .to_owned();
            let page: Vec<String> = self.0.link.call(&cmd).await?;
            if page.is_empty() {
                return Ok(Some(lines));
            }
            for line in page {
                lines.push(numbered(lines.len(), &line));
            }
        }
    }
}

#[cfg(test)]
#[path = "redis_tests.rs"]
mod tests;
