//! A client in the simulation: takes locks, holds them a while, gives them back; now and then it does what it should not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_history::{EventType, Value as Word};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::record::{self, int, map, word};
use super::session::{Held, Session, TTL_MS, Told};
use super::{LOCKS, Shape};
use crate::{chance, host};

const CALL: Duration = Duration::from_millis(500);

thread_local! {
    /// The last token of each lock that anybody got: what one may try to release who does not hold it.
    static SEEN: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets the tokens of the run before.
pub fn reset() {
    SEEN.with_borrow_mut(BTreeMap::clear);
}

pub struct Client {
    session: Session,
    shape: Shape,
    process: u64,
    request: u64,
}

fn below(limit: u64) -> u64 {
    chance::random() % limit
}

fn soon(ms: u64) -> Instant {
    host::now() + Duration::from_millis(ms)
}

/// Runs a client for good. In the `calm` part it asks with patience.
pub async fn run(worker: u32, node: u64, shape: Shape, calm: tokio::sync::watch::Receiver<bool>) {
    let mut client = Client {
        session: Session::new(worker, node),
        shape,
        process: record::process(),
        request: 0,
    };
    loop {
        let calm = *calm.borrow();
        client.round(calm).await;
    }
}

impl Client {
    async fn round(&mut self, calm: bool) {
        if !self.session.valid() && !self.session.open().await {
            self.session.idle(soon(20 + below(40))).await;
            return;
        }
        let lock = format!("lock-{}", below(LOCKS));
        let wait_ms = if calm {
            [800, 3000][below(2) as usize]
        } else {
            [0, 300, 2500][below(3) as usize]
        };
        self.acquire(lock, wait_ms).await;
        if !self.session.held.is_empty() && below(5) == 0 {
            self.acquire(format!("lock-{}", below(LOCKS)), 0).await;
        }
        let hold = match below(8) {
            0 => 0,
            1 if !calm => below(4 * TTL_MS),
            _ => below(300),
        };
        self.session.idle(soon(hold)).await;
        if !calm && below(20) == 0 {
            // Silent: the session runs out.
            self.session.alive = false;
            self.session.idle(soon(TTL_MS + below(500))).await;
            self.session.alive = true;
        }
        while let Some(held) = self.session.held.first().cloned() {
            if !self.session.valid() && below(2) == 0 {
                return;
            }
            self.check(&held, true).await;
            if below(6) == 0 {
                self.trespass(&held.lock).await;
            }
            self.release(&held).await;
        }
        self.session.idle(soon(below(60))).await;
    }

    /// Acquires, repeating the same request while its outcome is unknown and the session lives.
    async fn acquire(&mut self, lock: String, wait_ms: u64) {
        let Some(id) = self.session.id.clone() else {
            return;
        };
        if self.session.held.iter().any(|held| held.lock == lock) {
            return;
        }
        self.request += 1;
        let worker = self.session.worker;
        let begun = host::now();
        let value = map([
            ("worker", int(worker)),
            ("mode", word(self.shape.mode)),
            ("ttl_ms", int(TTL_MS)),
            ("wait_ms", int(wait_ms)),
        ]);
        record::op(
            self.process,
            EventType::Invoke,
            "acquire",
            &lock,
            value,
            None,
        );
        let mut ask = json!({"op": "acquire", "session": id, "lock": lock, "wait_ms": wait_ms, "request_id": self.request});
        if self.shape.mode != "exclusive" {
            ask["mode"] = json!(self.shape.mode);
        }
        if self.shape.mode == "semaphore" {
            ask["permits"] = json!(self.shape.permits);
        }
        let process = self.process;
        let queued = || {
            record::note(
                &format!("w{worker}"),
                "queued",
                None,
                map([("process", int(process))]),
            );
        };
        let mut unsure = false;
        // Some give up before the answer has come; before any fault that would look like a service that does not answer.
        let hasty = below(8) == 0 && record::faulted();
        let limit = match hasty {
            true => Duration::from_millis(below(60)),
            false => CALL + Duration::from_millis(wait_ms),
        };
        let told = loop {
            let told = self.session.ask_queued(ask.clone(), limit, queued).await;
            match &told {
                Told::Unknown => unsure = true,
                Told::No(code) if elsewhere(code) => self.session.idle(soon(20)).await,
                _ => break told,
            }
            if hasty && unsure {
                break Told::Unknown;
            }
            let patience = Duration::from_millis(wait_ms + 3 * TTL_MS);
            if !self.session.valid() || host::now() > begun + patience {
                break if unsure { Told::Unknown } else { told };
            }
        };
        match told {
            Told::Ok(answer) => {
                self.granted(lock, &id, answer["token"].as_u64().unwrap_or(0), begun)
            }
            Told::No(code) if !unsure => {
                let error = if code == "wait_timeout" {
                    "busy"
                } else {
                    &code
                };
                record::op(
                    self.process,
                    EventType::Fail,
                    "acquire",
                    &lock,
                    Word::Null,
                    Some(error),
                );
                if code == "session_unknown" {
                    self.session.unknown_session();
                }
            }
            _ => {
                record::op(
                    self.process,
                    EventType::Info,
                    "acquire",
                    &lock,
                    Word::Null,
                    Some("unknown"),
                );
                self.process = record::process();
                if !self.withdraw(&lock, &ask).await {
                    // It may hold the lock unknowingly: the session is left to run out.
                    self.session.drop_session("an acquire of unknown outcome");
                }
            }
        }
    }

    /// Undoes an acquire of unknown outcome; false if that is unknown as well.
    async fn withdraw(&mut self, lock: &str, acquire: &Value) -> bool {
        let ask = json!({
            "op": "withdraw", "lock": lock, "session": acquire["session"], "request_id": acquire["request_id"],
        });
        while self.session.valid() {
            match self.session.ask(ask.clone(), CALL).await {
                Told::Ok(_) => break,
                Told::No(code) if elsewhere(&code) => self.session.idle(soon(20)).await,
                Told::No(_) => return false,
                Told::Unknown => {}
            }
        }
        if !self.session.valid() {
            return false;
        }
        if let Told::Ok(answer) = self.session.ask(acquire.clone(), CALL).await {
            record::broken(format!(
                "worker {} withdrew an acquire of {lock}, and it was granted after that: {answer}",
                self.session.worker
            ));
        }
        true
    }

    fn granted(&mut self, lock: String, session: &str, token: u64, begun: Instant) {
        let owner = format!("{session}#{token}");
        let valid = self.session.id.as_deref() == Some(session) && self.session.valid();
        let end = if valid {
            host::now() + self.session.left()
        } else {
            begun
        };
        let ttl_ms = end.saturating_duration_since(begun).as_millis() as u64;
        let value = map([
            ("owner", word(&owner)),
            ("fence", int(token)),
            ("ttl_ms", int(ttl_ms)),
        ]);
        record::op(self.process, EventType::Ok, "acquire", &lock, value, None);
        SEEN.with_borrow_mut(|seen| seen.insert(lock.clone(), token));
        let held = Held { lock, owner, token };
        self.session.held.push(held);
        if !valid {
            self.session.drop_session("granted too late");
        }
    }

    async fn release(&mut self, held: &Held) {
        self.begin_release(held);
        self.session.held.retain(|other| other.token != held.token);
        let told = loop {
            let told = self.say_release(held).await;
            match &told {
                Told::Unknown => {}
                Told::No(code) if elsewhere(code) => self.session.idle(soon(20)).await,
                _ => break told,
            }
            if !self.session.valid() {
                break Told::Unknown;
            }
        };
        let valid = self.session.valid();
        let outcome = match told {
            Told::Ok(_) => Some(true),
            Told::No(code) => {
                if valid && matches!(code.as_str(), "not_held" | "session_unknown") {
                    record::broken(format!(
                        "worker {} gives back {} under token {} within its lease and is told {code}",
                        self.session.worker, held.lock, held.token
                    ));
                }
                Some(false)
            }
            Told::Unknown => None,
        };
        self.end_release(&held.lock, outcome);
        match outcome {
            None => self.session.drop_session("a release of unknown outcome"),
            Some(true) if below(4) == 0 => {
                self.check(held, false).await;
                self.release_again(held).await;
            }
            _ => {}
        }
    }

    fn begin_release(&mut self, held: &Held) {
        self.request += 1;
        let value = map([
            ("worker", int(self.session.worker)),
            ("owner", word(&held.owner)),
            ("fence", int(held.token)),
        ]);
        record::op(
            self.process,
            EventType::Invoke,
            "release",
            &held.lock,
            value,
            None,
        );
    }

    async fn say_release(&mut self, held: &Held) -> Told {
        let session = held.owner.split('#').next();
        let ask = json!({"op": "release", "session": session, "lock": held.lock, "token": held.token, "request_id": self.request});
        self.session.ask(ask, CALL).await
    }

    fn end_release(&mut self, lock: &str, held: Option<bool>) {
        let (kind, value) = match held {
            Some(held) => (EventType::Ok, map([("held", Word::Bool(held))])),
            None => (EventType::Info, Word::Null),
        };
        record::op(self.process, kind, "release", lock, value, None);
        if held.is_none() {
            self.process = record::process();
        }
    }

    /// Gives back what it gave back already, as a new request.
    async fn release_again(&mut self, held: &Held) {
        self.begin_release(held);
        let told = self.say_release(held).await;
        let outcome = match told {
            Told::Ok(_) => Some(true),
            Told::No(_) => Some(false),
            Told::Unknown => None,
        };
        self.end_release(&held.lock, outcome);
    }

    /// Tries to release another's grant.
    async fn trespass(&mut self, lock: &str) {
        let Some(session) = self.session.id.clone() else {
            return;
        };
        let other = format!("lock-{}", below(LOCKS));
        let lock = if below(2) == 0 { lock } else { &other };
        let Some(token) = SEEN.with_borrow(|seen| seen.get(lock).copied()) else {
            return;
        };
        if self.session.held.iter().any(|held| held.token == token) {
            return;
        }
        let owner = format!("{session}#{token}");
        let lock = lock.to_owned();
        self.release_again(&Held { lock, owner, token }).await;
    }

    /// Asks whether a token is the current one: of a valid grant it is, of one that was given back it is not.
    async fn check(&mut self, held: &Held, current: bool) {
        if below(3) != 0 || !self.session.valid() {
            return;
        }
        let ask = json!({"op": "check", "lock": held.lock, "token": held.token});
        if let Told::Ok(answer) = self.session.ask(ask, CALL).await
            && answer["current"] != current
            && (!current || self.session.valid())
        {
            let (worker, lock, token) = (self.session.worker, &held.lock, held.token);
            let word = if current { "held" } else { "given back" };
            record::broken(format!(
                "worker {worker}: a read after token {token} of {lock} was {word} does not know it"
            ));
        }
    }
}

/// The request was not taken: the same again at another replica or later.
fn elsewhere(code: &str) -> bool {
    matches!(
        code,
        "not_leader" | "no_leader" | "no_map" | "no_connection" | "stopping" | "overloaded"
    )
}
