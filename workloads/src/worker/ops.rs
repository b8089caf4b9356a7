//! What a worker does for each request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::session::{Client, State};
use super::watchdog;
use crate::locks::{CallError, Grant, Want};
use crate::protocol::{
    Acquire, Add, Answer, BEFORE_STORE_WRITE, Granted, Hold, Mode, Op, Renew, Write,
};
use crate::stores::{Access, Change};

/// How long a worker with the bug A25 works on after its release.
const WORKS_ON: Duration = Duration::from_millis(50);

/// The client that a request is for; `u32::MAX` for requests to the worker.
pub fn client_of(op: &Op) -> u32 {
    match op {
        Op::Acquire(a) => a.client,
        Op::Release(h) | Op::Read(h) => h.client,
        Op::Renew(r) => r.hold.client,
        Op::Write(w) => w.hold.client,
        Op::Add(a) => a.hold.client,
        Op::Init(_) | Op::Ping | Op::Close => u32::MAX,
    }
}

/// Carries out one request and answers it.
pub async fn run(state: Arc<State>, client: Arc<Client>, number: u32, id: u64, op: Op) {
    let answer = match op {
        Op::Acquire(a) => return acquire(state, client, number, id, a).await,
        Op::Renew(r) => renew(&state, &client, r).await,
        Op::Release(h) => release(&state, &client, h).await,
        Op::Read(h) => client.store.read(&access(&h)).await.map(Answer::Value),
        Op::Write(w) => write(&state, &client, id, w).await,
        Op::Add(a) => add(&state, &client, id, a).await,
        Op::Init(_) | Op::Ping | Op::Close => return,
    };
    state.reply(id, answer.unwrap_or_else(failed));
}

fn failed(e: CallError) -> Answer {
    match e {
        CallError::Definite(why) => Answer::Fail(why),
        CallError::Unknown(why) => Answer::Info(why),
    }
}

fn access(h: &Hold) -> Access {
    Access {
        key: h.key.clone(),
        owner: h.owner.clone(),
        fence: h.fence,
    }
}

fn millis(d: Duration) -> u64 {
    d.as_millis() as u64
}

/// The grant as this worker knows it, or as the request names it.
fn known_or_named(state: &State, known: Option<Grant>, h: &Hold) -> Grant {
    known.unwrap_or_else(|| Grant {
        key: h.key.clone(),
        mode: Mode::Exclusive,
        owner: h.owner.clone(),
        fence: h.fence,
        ttl: state.ttl,
        sent: Instant::now(),
    })
}

async fn acquire(state: Arc<State>, client: Arc<Client>, number: u32, id: u64, a: Acquire) {
    let want = Want {
        key: a.key,
        mode: a.mode,
        ttl: a.ttl_ms.map(Duration::from_millis),
        wait: Duration::from_millis(a.wait_ms),
        permits: a.permits,
        request: id,
    };
    let began = Instant::now();
    let grant = match client.lock.acquire(&want).await {
        Ok(grant) => grant,
        Err(e) => return state.reply(id, failed(e)),
    };
    let stop = state.insert(number, grant.clone());
    state.reply(
        id,
        Answer::Granted(Granted {
            owner: grant.owner.clone(),
            fence: grant.fence,
            ttl_ms: grant.ttl.map(millis),
        }),
    );
    // The controller counts the lease from the acquire's invocation: after a
    // long wait a renewal at once makes the hold certain again.
    let waited = grant.sent.saturating_duration_since(began);
    let renew_now = grant.ttl.is_some_and(|ttl| waited > ttl / 3);
    watchdog::watch(state, client, grant, stop, renew_now).await;
}

async fn renew(state: &State, client: &Client, r: Renew) -> Result<Answer, CallError> {
    let known = state.find(&r.hold.owner).map(|h| h.grant);
    let grant = known_or_named(state, known, &r.hold);
    let ttl = r
        .ttl_ms
        .map(Duration::from_millis)
        .or(grant.ttl)
        .unwrap_or_default();
    let sent = Instant::now();
    let answer = client.lock.renew(&grant, ttl).await;
    match &answer {
        Ok(ttl) => state.extend(&grant.owner, sent, *ttl),
        Err(e) if *e == CallError::not_held() => state.lose(&grant.owner, "not-held"),
        Err(_) => {}
    }
    answer.map(|ttl| Answer::Renewed {
        ttl_ms: Some(millis(ttl)),
    })
}

async fn release(state: &State, client: &Client, h: Hold) -> Result<Answer, CallError> {
    // No longer claimed from here on, whatever the service answers.
    let known = state.remove(&h.owner);
    let grant = known_or_named(state, known, &h);
    client
        .lock
        .release(&grant)
        .await
        .map(|held| Answer::Released { held })
}

async fn write(state: &State, client: &Client, id: u64, w: Write) -> Result<Answer, CallError> {
    let change = Change::Write {
        value: w.value,
        prev: w.prev,
    };
    fire(state, client, id, &w.hold, change, w.stop_at).await
}

async fn add(state: &State, client: &Client, id: u64, a: Add) -> Result<Answer, CallError> {
    // The read changes nothing: when it is unknown, the add surely did not happen.
    let mut set = client
        .store
        .read_set(&access(&a.hold))
        .await
        .map_err(|e| match e {
            CallError::Unknown(why) | CallError::Definite(why) => CallError::Definite(why),
        })?;
    set.push(a.element.clone());
    tokio::time::sleep(Duration::from_millis(a.work_ms)).await;
    let change = Change::Add {
        element: a.element,
        set,
    };
    fire(state, client, id, &a.hold, change, a.stop_at).await
}

async fn fire(
    state: &State,
    client: &Client,
    id: u64,
    hold: &Hold,
    change: Change,
    stop_at: Option<Arc<str>>,
) -> Result<Answer, CallError> {
    let armed = client.store.arm(&access(hold), change).await?;
    if !state.may_write(&hold.owner) {
        return Err(CallError::definite("deadline"));
    }
    if let Some(held) = state
        .find(&hold.owner)
        .filter(|_| state.behaviour().works_on)
    {
        tokio::spawn(async move {
            held.stop.cancelled().await;
            tokio::time::sleep(WORKS_ON).await;
            // Nobody waits for it.
            let _ = armed.fire().await;
        });
        return Ok(Answer::Done);
    }
    if let Some(name) = stop_at.filter(|n| **n == *BEFORE_STORE_WRITE) {
        let go = state.points.wait(id);
        state.say(&crate::protocol::WorkerEvent::Point { name, id });
        go.await;
    }
    armed.fire().await.map(|()| Answer::Done)
}

/// Frees what is still held and ends the sessions, then answers.
pub async fn close(state: Arc<State>, clients: Vec<Arc<Client>>, id: u64) {
    let mut worst = None;
    for held in state.drain() {
        if let Some(client) = clients.get(held.client as usize)
            && let Err(e) = client.lock.release(&held.grant).await
        {
            worst = Some(e);
        }
    }
    for client in &clients {
        client.lock.close().await;
    }
    state.reply(
        id,
        worst.map_or(Answer::Done, |e| Answer::Info(e.to_string().into())),
    );
}
