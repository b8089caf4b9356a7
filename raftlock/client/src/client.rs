//! The client for applications: sessions opened when needed, retries where they are safe, guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use crate::api::Api;
use crate::error::{CallError, Outcome, Retry};
use crate::secure::Security;
use crate::session::{LiveSession, jitter};
use crate::sessions::Sessions;
use crate::types::{AcquireOptions, Mode};

/// Sessions opened for one lock before giving up.
const SESSIONS: u32 = 3;
/// No clock reaches the end of a longer wait; a node refuses it.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// TTL asked for.
    pub ttl: Duration,
    /// Bound of each call beyond its wait.
    pub timeout: Duration,
    /// How this client is called in the server's lists.
    pub label: String,
    /// What it shows and whom it trusts.
    pub security: Security,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            ttl: Duration::from_secs(15),
            timeout: Duration::from_secs(2),
            label: String::new(),
            security: Security::default(),
        }
    }
}

/// A client of one cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

#[derive(Debug)]
struct ClientInner {
    api: Api,
    options: ClientOptions,
    sessions: Sessions,
    request: AtomicU64,
}

impl Client {
    /// A client for the nodes at `endpoints`; it connects with the first request.
    pub fn new(endpoints: &[String], options: ClientOptions) -> Result<Self, CallError> {
        let api = Api::secured(endpoints, options.timeout, options.security.clone())?;
        let inner = ClientInner {
            api,
            options,
            sessions: Sessions::default(),
            // Ids need to be unique within a session only; a random start keeps two clients' logs apart.
            request: AtomicU64::new(rand::random::<u64>() >> 12),
        };
        Ok(Client {
            inner: Arc::new(inner),
        })
    }

    /// Takes a lock, waiting at most `wait` (zero: try only; a node takes 5 minutes at most). If this is dropped or fails before
    /// it is known what became of the request, it is withdrawn in the background: it leaves the queue, or gives the lock back.
    pub async fn lock(&self, name: &str, mode: Mode, wait: Duration) -> Result<Guard, CallError> {
        self.take(name, mode, None, wait).await
    }

    /// [`Client::lock`], re-entrant: while this client holds the lock under this owner's name (128 bytes at most), the owner gets
    /// it again at once, in the same mode and with the same fence. Others get it after as many releases.
    pub async fn lock_as(
        &self,
        owner: &str,
        name: &str,
        mode: Mode,
        wait: Duration,
    ) -> Result<Guard, CallError> {
        self.take(name, mode, Some(owner), wait).await
    }

    async fn take(
        &self,
        name: &str,
        mode: Mode,
        owner: Option<&str>,
        wait: Duration,
    ) -> Result<Guard, CallError> {
        let until = Instant::now() + wait.min(FOREVER);
        let mut sessions = 0;
        loop {
            sessions += 1;
            let session = self.session_until(name, until).await?;
            let mut asked = Asked {
                client: self.clone(),
                session: Arc::clone(&session),
                name: name.to_owned(),
                mode,
                owner: owner.map(str::to_owned),
                until,
                request_id: self.next_request(),
                decided: false,
            };
            let failed = match asked.run(until + 2 * self.inner.options.timeout).await {
                Ok(token) => {
                    asked.decided = true;
                    return Ok(Guard {
                        client: self.clone(),
                        session,
                        name: name.to_owned(),
                        token,
                        release_id: self.next_request(),
                        done: false,
                    });
                }
                Err(failed) => failed,
            };
            asked.decided = failed.decided;
            if failed.error.retry != Retry::NewSession || sessions == SESSIONS {
                return Err(failed.error);
            }
            self.inner.sessions.forget(&session);
        }
    }

    fn next_request(&self) -> u64 {
        self.inner.request.fetch_add(1, Ordering::Relaxed)
    }

    /// The session for a lock. Where no node serves, all are asked once, and again until the time is over.
    async fn session_until(
        &self,
        name: &str,
        until: Instant,
    ) -> Result<Arc<LiveSession>, CallError> {
        let ClientInner {
            api,
            options,
            sessions,
            ..
        } = &*self.inner;
        let mut nodes = api.routes().count();
        let mut pause = Pause::default();
        loop {
            let error = match sessions.of(api, options, name).await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            nodes = nodes.saturating_sub(1);
            let over = (nodes == 0 || !elsewhere(&error)) && Instant::now() >= until;
            if !worth_waiting(&error) || over {
                return Err(error);
            }
            if nodes == 0 || !elsewhere(&error) {
                pause.after(&error, Some(until)).await;
            }
        }
    }

    /// Closes all sessions, which frees their locks at once. Where no leader answers within the timeout, they end with their TTL.
    pub async fn close(&self) {
        let limit = self.inner.options.timeout;
        let sessions = self.inner.sessions.drain();
        let closing = sessions
            .iter()
            .map(|session| session.close(&self.inner.api, limit));
        join_all(closing).await;
    }

    /// The single calls underneath.
    pub fn api(&self) -> &Api {
        &self.inner.api
    }
}

/// A lock held. Dropping it releases in the background; [`Guard::release`] waits for the answer. A process that ends at once
/// has no background: there the lock is free after the TTL.
#[derive(Debug)]
pub struct Guard {
    client: Client,
    session: Arc<LiveSession>,
    name: String,
    token: u64,
    /// One release, however often it is sent.
    release_id: u64,
    done: bool,
}

impl Guard {
    /// The fencing token: send it with every write to the resource.
    pub fn fence(&self) -> u64 {
        self.token
    }

    /// May the holder still act? Ask before every write; false for good once the deadline has passed.
    pub fn is_valid(&self) -> bool {
        self.session.is_valid()
    }

    /// The local deadline: last answered keepalive's send time + TTL − margin.
    pub fn deadline(&self) -> Instant {
        self.session.deadline()
    }

    /// Resolves when the lock must be taken for lost.
    pub async fn lost(&self) {
        self.session.lost().await;
    }

    /// Gives the lock back, asking until it is answered or the session is lost. `Ok(false)`: it was not held any more. If this
    /// is dropped before, it goes on in the background.
    pub async fn release(mut self) -> Result<bool, CallError> {
        let id = self.release_id;
        let released = release(&self.client, &self.name, &self.session, self.token, id).await;
        self.done = true;
        released
    }
}

/// One acquire: it is sent again under the same request id while nobody answers it. Until it is decided it may be in the queue,
/// or granted to a session that lives on; dropped before, it is withdrawn in the background.
struct Asked {
    client: Client,
    session: Arc<LiveSession>,
    name: String,
    mode: Mode,
    owner: Option<String>,
    until: Instant,
    request_id: u64,
    decided: bool,
}

/// Why it was not granted.
struct Failed {
    error: CallError,
    /// Nor will it be.
    decided: bool,
}

impl Asked {
    /// Asks until the lock is had, `until` has passed or, where an answer was lost, `give_up` has.
    async fn run(&self, give_up: Instant) -> Result<u64, Failed> {
        let mut pause = Pause::default();
        // Nothing that a node refuses later says that the request of a lost answer did nothing.
        let mut unknown = false;
        let session = &self.session;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let options = AcquireOptions {
                mode: self.mode,
                wait_ms: left.as_millis() as u64,
                owner: self.owner.clone(),
                request_id: Some(self.request_id),
                ..AcquireOptions::default()
            };
            let api = self.client.api();
            let mut epochs = session.epochs();
            let answer = tokio::select! {
                answer = api.acquire(&self.name, &session.info.session, &options) => answer,
                // The leader that was asked may never answer; the wait goes on under the next one.
                Ok(()) = epochs.changed() => {
                    unknown = true;
                    continue;
                }
                () = session.lost() => return Err(lost()),
            };
            let error = match answer {
                Outcome::Ok(grant) if session.is_valid() => return Ok(grant.token),
                // Whoever stood still until the lease was over does not have it.
                Outcome::Ok(_) => return Err(lost()),
                Outcome::DefiniteFail(error) => error,
                Outcome::Unknown(error) => {
                    unknown = true;
                    error
                }
            };
            let decided = !unknown || is_verdict(&error);
            let last = if unknown { give_up } else { self.until };
            if !worth_waiting(&error) || Instant::now() >= last || !session.is_valid() {
                return Err(Failed { error, decided });
            }
            pause.after(&error, Some(last)).await;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.decided {
            return;
        }
        let (client, session) = (self.client.clone(), Arc::clone(&self.session));
        let (name, id) = (std::mem::take(&mut self.name), self.request_id);
        self.session
            .runtime
            .spawn(async move { withdraw(&client, &name, &session, id).await });
    }
}

/// Pauses between attempts: longer every time, not below what the node advises.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Pause(Duration::from_millis(20))
    }
}

impl Pause {
    /// Ends at `last` at the latest.
    async fn after(&mut self, error: &CallError, last: Option<Instant>) {
        let advised = Duration::from_millis(error.retry_after_ms.unwrap_or(0));
        let wake = Instant::now() + jitter(self.0).max(advised);
        sleep_until(last.map_or(wake, |last| wake.min(last))).await;
        self.0 = (self.0 * 2).min(Duration::from_millis(500));
    }
}

/// Was it no refusal of the request itself?
fn elsewhere(error: &CallError) -> bool {
    matches!(error.retry, Retry::OtherNode | Retry::SameRequest)
        || matches!(error.code.as_str(), "no_leader" | "no_map" | "overloaded")
}

/// May the same be done a little later?
fn worth_waiting(error: &CallError) -> bool {
    let full = ["queue_full", "rate_limited", "too_many_sessions"];
    elsewhere(error) || full.contains(&error.code.as_str())
}

/// Does it say what became of an acquire, whatever was sent of it before?
fn is_verdict(error: &CallError) -> bool {
    let of_the_lock = [
        "busy",
        "delayed",
        "wait_timeout",
        "queue_full",
        "mode_mismatch",
    ];
    error.retry == Retry::NewSession || of_the_lock.contains(&error.code.as_str())
}

fn lost() -> Failed {
    let why = "the session was lost before the lock was had";
    Failed {
        error: CallError::local("session_unknown", why, Retry::NewSession),
        decided: true,
    }
}

async fn release(
    client: &Client,
    name: &str,
    session: &LiveSession,
    token: u64,
    request_id: u64,
) -> Result<bool, CallError> {
    let mut pause = Pause::default();
    let mut unknown = false;
    loop {
        let api = client.api();
        let asked = api.release(name, &session.info.session, token, Some(request_id));
        let error = match asked.await {
            Outcome::Ok(_) => return Ok(true),
            // Nobody else gives this grant back: the answer was lost, and is not remembered any more.
            Outcome::DefiniteFail(error) if error.code == "not_held" => return Ok(unknown),
            Outcome::DefiniteFail(error) if error.retry == Retry::NewSession => return Ok(false),
            Outcome::DefiniteFail(error) => error,
            Outcome::Unknown(error) => {
                unknown = true;
                error
            }
        };
        if !session.is_valid() {
            return Err(error);
        }
        pause.after(&error, None).await;
    }
}

/// Undoes an acquire, asking until it is answered or the session is lost.
async fn withdraw(client: &Client, name: &str, session: &LiveSession, request_id: u64) {
    let mut pause = Pause::default();
    while session.is_valid() {
        let api = client.api();
        let asked = api.withdraw(name, &session.info.session, request_id);
        let error = match asked.await {
            Outcome::Ok(_) => return,
            Outcome::DefiniteFail(error) if !worth_waiting(&error) => return,
            Outcome::DefiniteFail(error) | Outcome::Unknown(error) => error,
        };
        pause.after(&error, None).await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (client, session) = (self.client.clone(), Arc::clone(&self.session));
        let (name, token, id) = (std::mem::take(&mut self.name), self.token, self.release_id);
        self.session.runtime.spawn(async move {
            let _ = release(&client, &name, &session, token, id).await;
        });
    }
}
