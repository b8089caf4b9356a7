//! Locks: acquire, release, check, show.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::sessions::parse;
use super::{ApiError, App, Caller, group_of, parse_session, session_text};
use crate::group::{Answer, Cmd, Group, ReplyTo};
use crate::host::wall_ms;
use crate::machine::{
    Acquire, DRAWN, Holder, Mode, Op, Release, Reply, Undone, Withdrawal, namespace_of,
};

const NAME_LIMIT: usize = 512;
const OWNER_LIMIT: usize = 128;
/// A lock may have any number of readers; an answer shows so many.
const HOLDERS_SHOWN: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AcquireBody {
    pub session: String,
    #[serde(default)]
    pub mode: Option<String>,
    #[serde(default)]
    pub permits: Option<u32>,
    #[serde(default)]
    pub wait_ms: u64,
    #[serde(default)]
    pub owner: Option<String>,
    #[serde(default)]
    pub request_id: Option<u64>,
    #[serde(default)]
    pub epoch: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody {
    session: String,
    token: u64,
    #[serde(default)]
    request_id: Option<u64>,
    #[serde(default)]
    epoch: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WithdrawBody {
    session: String,
    request_id: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckBody {
    token: u64,
}

/// `POST /v1/locks/{name}:acquire`, `:release`, `:withdraw`, `:check`
pub(super) async fn act(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(rest): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let (name, verb) = rest.rsplit_once(':').ok_or_else(|| {
        ApiError::bad_request("the path is /v1/locks/{name}:acquire, :release, :withdraw or :check")
    })?;
    match verb {
        "acquire" => acquire(&app, app.enter(&caller, name)?, name, parse(&body)?).await,
        "release" => {
            let group = app.enter_uncounted(&caller, name)?;
            release(&app, group, name, parse(&body)?).await
        }
        "withdraw" => {
            let group = app.enter_uncounted(&caller, name)?;
            withdraw(&app, group, name, parse(&body)?).await
        }
        "check" => check(&app, app.enter(&caller, name)?, name, parse(&body)?).await,
        other => Err(ApiError::bad_request(format!(
            "no operation {other:?}; there are acquire, release, withdraw and check"
        ))),
    }
}

pub(super) fn check_name(name: &str) -> Result<(), ApiError> {
    let bad = |why: &str| Err(ApiError::bad_request(format!("lock name: {why}")));
    if name.is_empty() || name.len() > NAME_LIMIT {
        return bad(&format!("must have 1 to {NAME_LIMIT} bytes"));
    }
    if name.chars().any(char::is_control) {
        return bad("must not contain control characters");
    }
    if name.split('/').any(str::is_empty) {
        return bad("must not begin or end with / nor contain //");
    }
    // Who makes a URL of it asks for another lock.
    if name.split('/').any(|part| matches!(part, "." | "..")) {
        return bad("must not have . or .. as a part");
    }
    Ok(())
}

fn mode_of(mode: Option<&str>, permits: Option<u32>) -> Result<Mode, ApiError> {
    match (mode.unwrap_or("exclusive"), permits) {
        ("exclusive", None | Some(1)) => Ok(Mode::Exclusive),
        ("shared", None) => Ok(Mode::Shared),
        ("semaphore", Some(permits)) if permits > 0 => Ok(Mode::Semaphore(permits)),
        ("semaphore", _) => Err(ApiError::bad_request(
            "mode semaphore needs permits of at least 1",
        )),
        ("exclusive" | "shared", _) => {
            Err(ApiError::bad_request("permits go with mode semaphore only"))
        }
        (other, _) => Err(ApiError::bad_request(format!(
            "no mode {other:?}; there are exclusive, shared and semaphore"
        ))),
    }
}

pub(super) fn request_id(given: Option<u64>) -> Result<u64, ApiError> {
    match given {
        Some(id) if id >= DRAWN => Err(ApiError::bad_request("request_id must be below 2^63")),
        Some(id) => Ok(id),
        None => Ok(DRAWN | crate::chance::random()),
    }
}

pub(super) fn acquire_op(app: &App, name: &str, body: AcquireBody) -> Result<Acquire, ApiError> {
    let session = parse_session(&body.session)?;
    if body
        .owner
        .as_ref()
        .is_some_and(|owner| owner.len() > OWNER_LIMIT)
    {
        return Err(ApiError::bad_request(format!(
            "owner is longer than {OWNER_LIMIT} bytes"
        )));
    }
    let longest = app.config.max_wait.as_millis() as u64;
    if body.wait_ms > longest {
        return Err(ApiError::bad_request(format!("wait_ms is above {longest}")));
    }
    let limits = app.policy().spaces.limits(namespace_of(name))?;
    Ok(Acquire {
        session,
        request: request_id(body.request_id)?,
        epoch: body.epoch,
        name: Arc::from(name),
        mode: mode_of(body.mode.as_deref(), body.permits)?,
        wait_ms: body.wait_ms as u32,
        owner: body.owner.map(Arc::from),
        max_waiters: limits.max_waiters,
        delay_ms: limits.lock_delay.as_millis() as u32,
    })
}

async fn acquire(
    app: &App,
    group: &Group,
    name: &str,
    body: AcquireBody,
) -> Result<Json<Value>, ApiError> {
    let op = acquire_op(app, name, body)?;
    same_group(app, group.id, op.session)?;
    let (tx, mut rx) = mpsc::unbounded_channel();
    group.send(Cmd::Propose {
        op: Op::Acquire(op),
        to: ReplyTo::Many(tx, 0),
    });
    loop {
        match rx.recv().await.map(|(_, answer)| answer) {
            Some(Answer::Reply(Reply::Queued { .. })) => {}
            Some(Answer::Reply(Reply::Granted { token, count })) => {
                return Ok(Json(json!({ "token": token, "count": count })));
            }
            Some(Answer::Woken { token }) => {
                return Ok(Json(json!({ "token": token, "count": 1 })));
            }
            Some(other) => return Err(ApiError::of(&other, app)),
            None => return Err(ApiError::of(&Answer::Unknown("the node is stopping"), app)),
        }
    }
}

async fn release(
    app: &App,
    group: &Group,
    name: &str,
    body: ReleaseBody,
) -> Result<Json<Value>, ApiError> {
    let session = parse_session(&body.session)?;
    same_group(app, group.id, session)?;
    let op = Op::Release(Release {
        session,
        request: request_id(body.request_id)?,
        epoch: body.epoch,
        name: Arc::from(name),
        token: body.token,
    });
    match group.call(|to| Cmd::Propose { op, to }).await {
        Answer::Reply(Reply::Released { remaining }) => {
            Ok(Json(json!({ "released": true, "remaining": remaining })))
        }
        other => Err(ApiError::of(&other, app)),
    }
}

async fn withdraw(
    app: &App,
    group: &Group,
    name: &str,
    body: WithdrawBody,
) -> Result<Json<Value>, ApiError> {
    let op = withdrawal(name, parse_session(&body.session)?, body.request_id)?;
    same_group(app, group.id, op.session)?;
    let op = Op::Withdraw(op);
    match group.call(|to| Cmd::Propose { op, to }).await {
        Answer::Reply(Reply::Withdrawn(undone)) => Ok(Json(undone_json(undone))),
        other => Err(ApiError::of(&other, app)),
    }
}

pub(super) fn withdrawal(name: &str, session: u64, request: u64) -> Result<Withdrawal, ApiError> {
    Ok(Withdrawal {
        session,
        request: request_id(Some(request))?,
        name: Arc::from(name),
    })
}

/// What a withdrawal found.
pub(super) fn undone_json(undone: Undone) -> Value {
    match undone {
        Undone::Wait => json!({ "withdrawn": true, "was": "waiting" }),
        Undone::Grant(token) => json!({ "withdrawn": true, "was": "held", "token": token }),
        Undone::Nothing => json!({ "withdrawn": true, "was": "unknown" }),
    }
}

pub(super) fn same_group(app: &App, group: u32, session: u64) -> Result<(), ApiError> {
    if group_of(session) == group {
        return Ok(());
    }
    let version = app.map()?.version;
    Err(ApiError::wrong_group(group, group_of(session), version))
}

async fn check(
    app: &App,
    group: &Group,
    name: &str,
    body: CheckBody,
) -> Result<Json<Value>, ApiError> {
    confirm(app, group).await?;
    Ok(Json(
        json!({ "current": group.shared.machine().token_is_current(name, body.token) }),
    ))
}

/// `GET /v1/locks/{name}`: a linearizable read.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let group = app.enter(&caller, &name)?;
    confirm(&app, group).await?;
    Ok(Json(lock_json(group, &name)))
}

/// A lock as this replica's machine has it.
pub(super) fn lock_json(group: &Group, name: &str) -> Value {
    let machine = group.shared.machine();
    let lock = machine.lock(name);
    let holders: Vec<Value> = lock.map_or_else(Vec::new, |lock| {
        let shown = lock.holders.iter().take(HOLDERS_SHOWN);
        shown.map(holder_json).collect()
    });
    json!({
        "name": name,
        "group": group.id,
        "held": !holders.is_empty(),
        "holders": holders,
        "holder_count": lock.map_or(0, |lock| lock.holders.len()),
        "waiters": lock.map_or(0, |lock| lock.queue.len()),
        "delayed": lock.is_some_and(|lock| lock.delay.is_some()),
    })
}

fn holder_json(holder: &Holder) -> Value {
    json!({
        "session": session_text(holder.session),
        "token": holder.token,
        "mode": match holder.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Semaphore(_) => "semaphore",
        },
        "count": holder.count,
        "held_for_ms": wall_ms().saturating_sub(holder.granted_at_ms),
    })
}

async fn confirm(app: &App, group: &Group) -> Result<(), ApiError> {
    match group.call(|to| Cmd::Confirm { to }).await {
        Answer::Confirmed => Ok(()),
        other => Err(ApiError::of(&other, app)),
    }
}
