//! `GET /metrics` for Prometheus, `GET /v1/events` for auditors, health and readiness.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future;
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{ApiError, App, Caller, session_text};
use crate::group::{Group, Happened};
use crate::raft::status;

/// `GET /healthz`: the process serves.
pub(super) async fn health(State(app): State<Arc<App>>) -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok", "node": app.config.id, "groups": app.groups.len() }))
}

/// `GET /readyz`: every group has a leader that this node has heard of lately, and the bucket map is known; 503 otherwise.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let all = status(&app.replicas);
    let mapped = app.map().is_ok();
    let waiting: Vec<u32> = all
        .iter()
        .filter(|group| group.leader.is_none())
        .map(|group| group.group)
        .collect();
    let ready = waiting.is_empty() && mapped;
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = json!({ "ready": ready, "groups_without_leader": waiting, "map": mapped });
    (code, axum::Json(body)).into_response()
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<Arc<App>>, _: Caller) -> Response {
    let mut out = String::new();
    let replicas = status(&app.replicas);
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let gauge = |out: &mut String, name: &str, help: &str, of: &dyn Fn(usize, &Group) -> u64| {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (at, group) in app.groups.iter().enumerate() {
            let _ = writeln!(out, "{name}{{group=\"{}\"}} {}", group.id, of(at, group));
        }
    };
    gauge(
        &mut out,
        "raftlock_leader",
        "1 if this node leads the group.",
        &|at, _| u64::from(replicas[at].leader == Some(app.config.id)),
    );
    gauge(&mut out, "raftlock_term", "Raft term.", &|at, _| {
        replicas[at].term
    });
    gauge(
        &mut out,
        "raftlock_applied_index",
        "Last applied log index.",
        &|at, _| replicas[at].applied.unwrap_or(0),
    );
    let counts = |group: &Group| group.shared.machine().counts();
    gauge(
        &mut out,
        "raftlock_sessions",
        "Live sessions.",
        &|_, group| counts(group).sessions,
    );
    gauge(
        &mut out,
        "raftlock_locks_held",
        "Locks with a holder.",
        &|_, group| counts(group).held,
    );
    gauge(
        &mut out,
        "raftlock_waiters",
        "Clients in queues.",
        &|_, group| counts(group).waiting,
    );
    gauge(
        &mut out,
        "raftlock_grants_total",
        "Grants proposed by this node.",
        &|_, group| load(&group.shared.watch.grants),
    );
    gauge(
        &mut out,
        "raftlock_releases_total",
        "Releases.",
        &|_, group| load(&group.shared.watch.releases),
    );
    gauge(
        &mut out,
        "raftlock_sessions_expired_total",
        "Sessions that expired.",
        &|_, group| load(&group.shared.watch.expiries),
    );
    gauge(
        &mut out,
        "raftlock_expired_while_held_total",
        "Grants whose session expired.",
        &|_, group| load(&group.shared.watch.expired_held),
    );
    gauge(
        &mut out,
        "raftlock_refusals_total",
        "Acquires and releases refused.",
        &|_, group| load(&group.shared.watch.refusals),
    );
    let name = "raftlock_renew_failures_total";
    let failed = load(&app.renew_failures);
    let _ = writeln!(
        out,
        "# HELP {name} Keepalives refused.\n# TYPE {name} counter\n{name} {failed}"
    );
    let name = "raftlock_slow_readers_total";
    let dropped = load(&app.slow_readers);
    let _ = writeln!(
        out,
        "# HELP {name} Streams dropped because their client did not read.\n# TYPE {name} counter\n{name} {dropped}"
    );
    let name = "raftlock_commit_seconds";
    let _ = writeln!(
        out,
        "# HELP {name} From a proposal to its application.\n# TYPE {name} histogram"
    );
    for group in &app.groups {
        group
            .shared
            .watch
            .commits
            .write(&mut out, name, &format!("group=\"{}\"", group.id));
    }
    let name = "raftlock_fsync_seconds";
    let _ = writeln!(
        out,
        "# HELP {name} One write and sync of the log.\n# TYPE {name} histogram"
    );
    app.book.flushes().times.write(&mut out, name, "");
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], out).into_response()
}

#[derive(Deserialize)]
pub(super) struct Ask {
    #[serde(default)]
    prefix: String,
}

/// `GET /v1/events?prefix=`: one JSON object a line, of the groups that this node leads, from now on. It ends when its token
/// is withdrawn or may see other namespaces.
pub(super) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Query(ask): Query<Ask>,
) -> Result<Response, ApiError> {
    let changed = changed(Arc::clone(&app), caller.clone(), headers);
    let groups = app.groups.iter().map(|group| {
        let (id, receiver) = (group.id, group.shared.watch.subscribe());
        lines(id, receiver).boxed()
    });
    let seen = move |(lock, line): (Option<String>, String)| {
        let shown = lock.is_none_or(|lock| lock.starts_with(&ask.prefix) && caller.sees(&lock));
        std::future::ready(shown.then_some(Ok::<_, Infallible>(Bytes::from(line))))
    };
    let stopping = app.stopping.clone().cancelled_owned();
    let over = future::select(Box::pin(stopping), Box::pin(changed));
    let lines = stream::select_all(groups).filter_map(seen);
    let body = Body::from_stream(lines.take_until(over));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Resolves when who shows these headers is another caller than before.
async fn changed(app: Arc<App>, before: Caller, headers: HeaderMap) {
    let mut reloaded = app.reloaded();
    let shown = headers.get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    loop {
        let now = app.policy().access.caller(shown);
        if now.ok().as_ref() != Some(&before) || reloaded.changed().await.is_err() {
            return;
        }
    }
}

/// Events of one group as lines, each with its lock. One that missed some says how many.
fn lines(
    group: u32,
    receiver: Receiver<Arc<Happened>>,
) -> impl stream::Stream<Item = (Option<String>, String)> {
    stream::unfold(receiver, move |mut receiver| async move {
        let item = match receiver.recv().await {
            Ok(event) => (Some(event.lock.to_string()), line(group, &event)),
            Err(RecvError::Lagged(missed)) => (
                None,
                format!("{}\n", json!({ "group": group, "missed": missed })),
            ),
            Err(RecvError::Closed) => return None,
        };
        Some((item, receiver))
    })
}

fn line(group: u32, event: &Happened) -> String {
    let mut value = json!({
        "event": event.what,
        "at_ms": event.at_ms,
        "group": group,
        "lock": event.lock,
        "session": session_text(event.session),
    });
    if let Some(token) = event.token {
        value["token"] = json!(token);
    }
    if let Some(refusal) = event.refusal {
        value["code"] = json!(ApiError::refused(refusal).code);
    }
    format!("{value}\n")
}
