//! The client for applications: sessions opened when needed, retries where they are safe, guards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::api::{AcquireOptions, Api, Mode};
use crate::error::{CallError, Outcome, Retry};
use crate::secure::Security;
use crate::session::{LiveSession, jitter};

/// Sessions opened for one lock before giving up.
const SESSIONS: u32 = 3;

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
    /// Sessions by namespace and group.
    sessions: Mutex<HashMap<(String, u32), Arc<LiveSession>>>,
    request: AtomicU64,
}

impl Client {
    /// A client for the nodes at `endpoints`; it connects with the first request.
    pub fn new(endpoints: &[String], options: ClientOptions) -> Result<Self, CallError> {
        let api = Api::secured(endpoints, options.timeout, options.security.clone())?;
        let inner = ClientInner {
            api,
            options,
            sessions: Mutex::default(),
            // Ids need to be unique within a session only; a random start keeps two clients' logs apart.
            request: AtomicU64::new(rand::random::<u64>() >> 12),
        };
        Ok(Client {
            inner: Arc::new(inner),
        })
    }

    /// Takes a lock, waiting at most `wait` (zero: try only; a node takes 5 minutes at most). If this is dropped before it is done, what it is granted is given
    /// back in the background.
    pub async fn lock(&self, name: &str, mode: Mode, wait: Duration) -> Result<Guard, CallError> {
        let until = Instant::now() + wait;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let session = self.session_until(name, until).await?;
            let request_id = Some(self.inner.request.fetch_add(1, Ordering::Relaxed));
            let mut abandoned = Abandoned {
                ask: Some((self.clone(), name.to_owned(), Arc::clone(&session))),
                mode,
                until,
                request_id,
            };
            let give_up = Some(until + 2 * self.inner.options.timeout);
            let result = self
                .attempt(name, mode, (until, give_up), request_id, &session)
                .await;
            if let Err(error) = &result
                && error.retry == Retry::SameRequest
            {
                // It may still be granted.
                return Err(error.clone());
            }
            abandoned.ask = None;
            match result {
                Err(error) if error.retry == Retry::NewSession && attempt < SESSIONS => {
                    self.forget(&session).await;
                }
                Err(error) => return Err(error),
                Ok(token) => {
                    return Ok(Guard {
                        client: self.clone(),
                        session,
                        name: name.to_owned(),
                        token,
                        done: false,
                    });
                }
            }
        }
    }

    /// One acquire, repeated under the same request id while its outcome is unknown or no leader answers: for the lock until
    /// the first time, for an outcome until the second.
    async fn attempt(
        &self,
        name: &str,
        mode: Mode,
        (until, give_up): (Instant, Option<Instant>),
        request_id: Option<u64>,
        session: &LiveSession,
    ) -> Result<u64, CallError> {
        let mut pause = Duration::from_millis(20);
        loop {
            let wait_ms = until.saturating_duration_since(Instant::now()).as_millis() as u64;
            let options = AcquireOptions {
                mode,
                wait_ms,
                request_id,
                ..AcquireOptions::default()
            };
            let api = &self.inner.api;
            let mut epochs = session.epochs();
            let answer = tokio::select! {
                answer = api.acquire(name, &session.info.session, &options) => answer,
                // The leader that was asked may never answer; the wait goes on under the next one.
                Ok(()) = epochs.changed() => continue,
                () = session.lost() => return Err(lost()),
            };
            let error = match answer {
                Outcome::Ok(grant) => return Ok(grant.token),
                Outcome::DefiniteFail(error) | Outcome::Unknown(error) => error,
            };
            let again = elsewhere(&error) || error.code == "queue_full";
            let last = match error.retry {
                Retry::SameRequest => give_up,
                _ => Some(until),
            };
            if !again || !session.is_valid() || last.is_some_and(|last| Instant::now() >= last) {
                return Err(error);
            }
            sleep(jitter(pause)).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// The session for a lock. Where no node serves, all are asked once, and again until the time is over.
    async fn session_until(
        &self,
        name: &str,
        until: Instant,
    ) -> Result<Arc<LiveSession>, CallError> {
        let mut nodes = self.inner.api.routes().count();
        let mut pause = Duration::from_millis(20);
        loop {
            let error = match self.session(name).await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            nodes = nodes.saturating_sub(1);
            if !elsewhere(&error) || (nodes == 0 && Instant::now() >= until) {
                return Err(error);
            }
            if nodes == 0 {
                sleep(jitter(pause)).await;
                pause = (pause * 2).min(Duration::from_millis(500));
            }
        }
    }

    async fn session(&self, name: &str) -> Result<Arc<LiveSession>, CallError> {
        let namespace = namespace_of(name).to_owned();
        let mut sessions = self.inner.sessions.lock().await;
        let known = self.inner.api.map().await.ok();
        if let Some(group) = known.and_then(|map| map.group_of(name))
            && let Some(session) = sessions.get(&(namespace.clone(), group))
            && session.is_valid()
        {
            return Ok(Arc::clone(session));
        }
        let options = &self.inner.options;
        let session = LiveSession::open(&self.inner.api, options.ttl, &options.label, name).await?;
        sessions.insert((namespace, session.info.group), Arc::clone(&session));
        Ok(session)
    }

    async fn forget(&self, session: &Arc<LiveSession>) {
        let mut sessions = self.inner.sessions.lock().await;
        sessions.retain(|_, known| !Arc::ptr_eq(known, session));
    }

    /// Closes all sessions, which frees their locks at once.
    pub async fn close(&self) {
        let sessions: Vec<_> = self.inner.sessions.lock().await.drain().collect();
        for (_, session) in sessions {
            session.close(&self.inner.api).await;
        }
    }

    /// The single calls underneath.
    pub fn api(&self) -> &Api {
        &self.inner.api
    }
}

/// A lock held. Dropping it releases in the background; [`Guard::release`] waits for the answer.
#[derive(Debug)]
pub struct Guard {
    client: Client,
    session: Arc<LiveSession>,
    name: String,
    token: u64,
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

    /// Gives the lock back. `Ok(false)`: it was not held any more.
    pub async fn release(mut self) -> Result<bool, CallError> {
        self.done = true;
        release(&self.client, &self.name, &self.session, self.token).await
    }
}

/// An acquire whose caller may go away: it stays in the queue and may be granted, to a session that lives on.
struct Abandoned {
    ask: Option<(Client, String, Arc<LiveSession>)>,
    mode: Mode,
    until: Instant,
    request_id: Option<u64>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let (mode, until, request_id) = (self.mode, self.until, self.request_id);
        if let Some((client, name, session)) = self.ask.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let asked = client.attempt(&name, mode, (until, None), request_id, &session);
                if let Ok(token) = asked.await {
                    let _ = release(&client, &name, &session, token).await;
                }
            });
        }
    }
}

/// Was it no refusal of the request itself?
fn elsewhere(error: &CallError) -> bool {
    matches!(error.retry, Retry::OtherNode | Retry::SameRequest)
        || matches!(error.code.as_str(), "no_leader" | "no_map" | "overloaded")
}

fn lost() -> CallError {
    let why = "the session was lost before the lock was had";
    CallError::local("session_unknown", why, Retry::NewSession)
}

/// What stands before the first `/` of a lock's name; a session is of one namespace.
fn namespace_of(name: &str) -> &str {
    name.split_once('/').map_or("default", |(first, _)| first)
}

async fn release(
    client: &Client,
    name: &str,
    session: &LiveSession,
    token: u64,
) -> Result<bool, CallError> {
    let request = Some(client.inner.request.fetch_add(1, Ordering::Relaxed));
    let mut pause = Duration::from_millis(20);
    loop {
        let error = match client
            .inner
            .api
            .release(name, &session.info.session, token, request)
            .await
        {
            Outcome::Ok(_) => return Ok(true),
            Outcome::DefiniteFail(error)
                if error.code == "not_held" || error.retry == Retry::NewSession =>
            {
                return Ok(false);
            }
            Outcome::DefiniteFail(error) | Outcome::Unknown(error) => error,
        };
        if !session.is_valid() {
            return Err(error);
        }
        sleep(jitter(pause)).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (client, session) = (self.client.clone(), Arc::clone(&self.session));
        let (name, token) = (std::mem::take(&mut self.name), self.token);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = release(&client, &name, &session, token).await;
            });
        }
    }
}
