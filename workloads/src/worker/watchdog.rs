//! Keeps one grant's lease alive, and says when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::session::{Client, State};
use crate::locks::{CallError, Grant};
use crate::protocol::WorkerEvent;

/// Watches over one grant until it is lost or `stop`ped: renews it at each
/// third of its TTL (if `renew`) and reports the loss at its deadline, even
/// while a renewal hangs.
pub async fn watch(
    state: Arc<State>,
    client: Arc<Client>,
    grant: Grant,
    stop: CancellationToken,
    renew_now: bool,
) {
    let Some(ttl) = grant.ttl else { return };
    let behaviour = state.behaviour();
    let mut renewals = 0;
    let mut next = if renew_now {
        Instant::now()
    } else {
        grant.sent + ttl / 3
    };
    loop {
        let Some(deadline) = state.deadline(&grant.owner) else {
            return;
        };
        let dead = behaviour.renewals.is_some_and(|most| renewals >= most);
        let renews = behaviour.watchdog && !dead;
        let ends = behaviour.own_deadline;
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(next.into()), if renews => {}
            () = sleep_until(deadline.into()), if ends => {}
            else => return,
        }
        state.sweep();
        if stop.is_cancelled() || !renews || Instant::now() < next {
            continue;
        }
        let sent = Instant::now();
        next = sent + ttl / 3;
        renewals += 1;
        let after = state.last_read();
        let answer = tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(deadline.into()), if ends => {
                state.sweep();
                continue;
            }
            answer = client.lock.renew(&grant, ttl) => answer,
        };
        if behaviour.hangs && matches!(answer, Err(CallError::Unknown(_))) {
            return stop.cancelled().await;
        }
        note(&state, &grant, answer, sent, after);
    }
}

fn note(
    state: &State,
    grant: &Grant,
    answer: Result<Duration, CallError>,
    sent: Instant,
    after: u64,
) {
    let (ok, ttl) = match &answer {
        Ok(ttl) => (Some(true), Some(*ttl)),
        Err(CallError::Definite(_)) => (Some(false), None),
        Err(CallError::Unknown(_)) => (None, None),
    };
    if let Some(ttl) = ttl {
        state.extend(&grant.owner, sent, ttl);
    }
    state.say(&WorkerEvent::Renew {
        key: grant.key.clone(),
        owner: grant.owner.clone(),
        fence: grant.fence,
        ok,
        ttl_ms: ttl.map(|t| t.as_millis() as u64),
        after,
    });
    if answer == Err(CallError::not_held()) {
        state.lose(&grant.owner, "not-held");
    }
}
