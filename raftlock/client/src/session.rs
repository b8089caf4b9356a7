//! A session kept alive, with the client's own deadline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::api::Api;
use crate::error::{CallError, Outcome, Retry};
use crate::types::SessionInfo;

const CLOSE_PAUSE: Duration = Duration::from_millis(100);

/// Part of the TTL given away for clock drift and scheduling: 5 %, at least 10 ms.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(10)).min(ttl / 2)
}

/// A live session. Its deadline only moves when a keepalive was answered.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) info: SessionInfo,
    deadline: watch::Receiver<Instant>,
    /// The epoch that the last answer named.
    epoch: watch::Receiver<u64>,
    ended: watch::Sender<bool>,
    upkeep: Mutex<Option<JoinHandle<()>>>,
    /// Where it is kept alive, and where what is dropped is given back: guards are dropped anywhere.
    pub(crate) runtime: Handle,
}

impl LiveSession {
    /// Opens a session and keeps it alive every third of its TTL.
    pub(crate) async fn open(
        api: &Api,
        ttl: Duration,
        label: &str,
        lock: &str,
    ) -> Result<Arc<Self>, CallError> {
        let sent = Instant::now();
        let info = api
            .create_session(ttl.as_millis() as u64, label, Some(lock))
            .await
            .result()?;
        let ttl = Duration::from_millis(info.ttl_ms);
        let (tx, deadline) = watch::channel(sent + ttl - margin(ttl));
        let (told, epoch) = watch::channel(info.epoch);
        let (ended, _) = watch::channel(false);
        let session = Arc::new(LiveSession {
            info,
            deadline,
            epoch,
            ended: ended.clone(),
            upkeep: Mutex::new(None),
            runtime: Handle::current(),
        });
        let task = tokio::spawn(keep_alive(
            api.clone(),
            session.info.session.clone(),
            ttl,
            (tx, told),
            ended,
        ));
        *session
            .upkeep
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(session)
    }

    /// False once the deadline has passed or the server said that the session is gone.
    pub(crate) fn is_valid(&self) -> bool {
        !*self.ended.borrow() && Instant::now() < *self.deadline.borrow()
    }

    /// When it will be lost unless a keepalive is answered first.
    pub(crate) fn deadline(&self) -> Instant {
        *self.deadline.borrow()
    }

    /// Resolves when the session is lost: at the deadline, or earlier if the server says so.
    pub(crate) async fn lost(&self) {
        let mut ended = self.ended.subscribe();
        let mut deadline = self.deadline.clone();
        loop {
            let until = *deadline.borrow_and_update();
            if *ended.borrow() || Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = sleep_until(until) => {}
                _ = ended.changed() => {}
                changed = deadline.changed() => if changed.is_err() {
                    // The upkeep is over: what is left is the last deadline, unless it ended because the session had.
                    tokio::select! {
                        () = sleep_until(until) => {}
                        _ = ended.changed() => {}
                    }
                    return;
                }
            }
        }
    }

    /// A place from which to see that another leader serves it.
    pub(crate) fn epochs(&self) -> watch::Receiver<u64> {
        let mut epochs = self.epoch.clone();
        epochs.mark_unchanged();
        epochs
    }

    /// Stops the upkeep and closes the session; asks again where nobody answers, at most so long.
    pub(crate) async fn close(&self, api: &Api, limit: Duration) {
        self.stop();
        let closing = async {
            loop {
                let error = match api.close(&self.info.session).await {
                    Outcome::Ok(_) => return,
                    Outcome::DefiniteFail(error) | Outcome::Unknown(error) => error,
                };
                if matches!(error.retry, Retry::No | Retry::NewSession) {
                    return;
                }
                sleep(jitter(CLOSE_PAUSE)).await;
            }
        };
        let _ = timeout(limit, closing).await;
    }

    fn stop(&self) {
        let _ = self.ended.send_replace(true);
        if let Some(task) = self
            .upkeep
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            task.abort();
        }
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn keep_alive(
    api: Api,
    session: String,
    ttl: Duration,
    (deadline, epoch): (watch::Sender<Instant>, watch::Sender<u64>),
    ended: watch::Sender<bool>,
) {
    let mut pause = ttl / 3;
    loop {
        sleep(pause).await;
        if Instant::now() >= *deadline.borrow() {
            let _ = ended.send_replace(true);
            return;
        }
        let sent = Instant::now();
        // A hung call must not outlive the deadline: the next attempt goes elsewhere.
        let outcome = timeout(ttl / 3, api.keepalive(&session)).await;
        match outcome {
            // Who asked after the deadline was told that it is lost, and must not hear otherwise later.
            Ok(Outcome::Ok(_)) if Instant::now() >= *deadline.borrow() => {
                let _ = ended.send_replace(true);
                return;
            }
            Ok(Outcome::Ok(alive)) => {
                let granted = Duration::from_millis(alive.ttl_ms);
                deadline.send_replace(sent + granted - margin(granted));
                epoch
                    .send_if_modified(|known| std::mem::replace(known, alive.epoch) != alive.epoch);
                pause = granted / 3;
            }
            Ok(Outcome::DefiniteFail(error)) if error.retry == Retry::NewSession => {
                tracing::warn!(session, "the session is gone");
                let _ = ended.send_replace(true);
                return;
            }
            Ok(Outcome::DefiniteFail(error) | Outcome::Unknown(error)) => {
                tracing::debug!(session, %error, "keepalive failed; trying again");
                pause = jitter(ttl / 20);
            }
            Err(_) => {
                api.forget_leader(&session);
                pause = Duration::from_millis(1);
            }
        }
    }
}

/// Between half and the whole of `base`.
pub(crate) fn jitter(base: Duration) -> Duration {
    base.mul_f64(rand::random_range(0.5..1.0))
}
