//! A simulated client's session: keepalives between and during its requests, and its own deadline.

use std::time::Duration;

use fencepost_history::Value as Word;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::record::{self, int, map, word};
use super::wire::Wire;
use crate::host;

/// TTL that clients ask for.
pub const TTL_MS: u64 = 1000;
/// An answer to a keepalive that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_millis(250);

/// A lock that a client holds, as far as it knows.
#[derive(Clone)]
pub struct Held {
    pub lock: String,
    pub owner: String,
    pub token: u64,
}

struct Ping {
    line: u64,
    sent: Instant,
    stamp: Word,
}

/// What a request came to.
pub enum Told {
    Ok(Value),
    /// Surely nothing happened; the code.
    No(String),
    Unknown,
}

/// A client's session and connection.
pub struct Session {
    pub worker: u32,
    pub id: Option<String>,
    pub held: Vec<Held>,
    wire: Wire,
    deadline: Instant,
    ping: Option<Ping>,
    next_ping: Instant,
    line: u64,
    /// Keepalives are sent.
    pub alive: bool,
}

impl Session {
    /// No session yet.
    pub fn new(worker: u32, node: u64) -> Self {
        let now = host::now();
        Session {
            worker,
            id: None,
            held: Vec::new(),
            wire: Wire::new(node),
            deadline: now,
            ping: None,
            next_ping: now,
            line: 1,
            alive: true,
        }
    }

    fn named(&self) -> String {
        format!("w{}", self.worker)
    }

    /// What the client counts on by its own clock: a margin covers the difference of two clocks.
    fn lease() -> Duration {
        Duration::from_millis(TTL_MS).mul_f64(0.98)
    }

    /// Time left by the client's own clock.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(host::now())
    }

    /// Is there a session that by this client's clock still lives?
    pub fn valid(&self) -> bool {
        self.id.is_some() && !self.left().is_zero()
    }

    /// Opens a session; false if that did not work.
    pub async fn open(&mut self) -> bool {
        self.drop_session("expired by the client's own clock");
        let sent = host::now();
        let ask = json!({"op": "open", "ttl_ms": TTL_MS, "lock": "lock-0"});
        let Told::Ok(answer) = self.ask(ask, Duration::from_millis(600)).await else {
            return false;
        };
        self.id = answer["session"].as_str().map(str::to_owned);
        self.deadline = sent + Self::lease();
        self.next_ping = sent + Duration::from_millis(TTL_MS / 3);
        true
    }

    /// The session is gone or given up: so are its locks.
    pub fn drop_session(&mut self, why: &str) {
        self.id = None;
        self.ping = None;
        let after = record::stamp();
        for held in std::mem::take(&mut self.held) {
            let value = map([
                ("owner", word(&held.owner)),
                ("fence", int(held.token)),
                ("reason", word(why)),
                ("after", after.clone()),
            ]);
            record::note(&self.named(), "lost", Some(&held.lock), value);
        }
    }

    /// The service says that the session does not exist.
    fn ended(&mut self, how: &str) {
        if self.valid() {
            let (worker, left) = (self.worker, self.left());
            record::broken(format!(
                "the session of worker {worker} ended {left:?} before its lease did: {how}"
            ));
        }
        self.drop_session("the service ended it");
    }

    /// Keeps the session until `until` by this client's clock.
    pub async fn idle(&mut self, until: Instant) {
        while host::now() < until {
            self.pump(until, None, |_| {}).await;
        }
    }

    /// Sends a request once and waits for its answer.
    pub async fn ask(&mut self, ask: Value, limit: Duration) -> Told {
        self.ask_queued(ask, limit, || {}).await
    }

    /// [`Session::ask`]; `queued` is called when the service says so.
    pub async fn ask_queued(&mut self, mut ask: Value, limit: Duration, queued: impl Fn()) -> Told {
        self.line += 1;
        let line = self.line;
        ask["id"] = json!(line);
        let until = host::now() + limit;
        if !self.wire.send(&ask).await {
            host::sleep_until(host::now() + Duration::from_millis(20)).await;
            return Told::No("no_connection".to_owned());
        }
        let turns = self.wire.turns();
        while host::now() < until {
            // A keepalive may have found that another replica leads.
            if self.wire.turns() != turns {
                return Told::Unknown;
            }
            let seen = |value: &Value| {
                if value["id"] == line && value.get("queued").is_some() {
                    queued();
                }
            };
            match self.pump(until, Some(line), seen).await {
                Pumped::Answer(answer) => return self.told(answer),
                Pumped::Broken => return Told::Unknown,
                Pumped::Nothing => {}
            }
        }
        self.wire.turn();
        Told::Unknown
    }

    fn told(&mut self, answer: Value) -> Told {
        let Some(error) = answer.get("error") else {
            return Told::Ok(answer);
        };
        let code = error["code"].as_str().unwrap_or("?").to_owned();
        let leader = error["leader"]
            .as_str()
            .and_then(|url| url.split(':').next()?.parse().ok());
        match leader {
            Some(node) => self.wire.turn_to(node),
            None if matches!(code.as_str(), "no_leader" | "unknown_outcome" | "stopping") => {
                self.wire.turn()
            }
            None => {}
        }
        if error["effect"] == "none" {
            Told::No(code)
        } else {
            Told::Unknown
        }
    }

    /// One thing that happens: a line comes, a keepalive is due, or `until` is reached.
    async fn pump(&mut self, until: Instant, want: Option<u64>, seen: impl Fn(&Value)) -> Pumped {
        let pinging = self.alive && self.id.is_some();
        let wake = if pinging {
            self.next_ping.min(until)
        } else {
            until
        };
        tokio::select! {
            biased;
            line = self.wire.next() => {
                let Some(line) = line else {
                    self.ping = None;
                    return Pumped::Broken;
                };
                seen(&line);
                return self.heard(line, want);
            }
            () = host::sleep_until(wake) => {}
        }
        if pinging && host::now() >= self.next_ping {
            self.send_ping().await;
        }
        Pumped::Nothing
    }

    fn heard(&mut self, line: Value, want: Option<u64>) -> Pumped {
        let id = line["id"].as_u64();
        if id.is_some() && id == want && line.get("queued").is_none() {
            return Pumped::Answer(line);
        }
        if let Some(ping) = self.ping.take_if(|ping| Some(ping.line) == id) {
            self.pinged(ping, line);
        } else if let Some(lost) = line.get("lost")
            && lost["session"].as_str() == self.id.as_deref()
            && self.id.is_some()
        {
            self.ended("a lost notice");
        }
        Pumped::Nothing
    }

    async fn send_ping(&mut self) {
        let Some(id) = self.id.clone() else { return };
        if self.ping.take().is_some() {
            // The last one was not answered.
            self.wire.turn();
        }
        self.line += 1;
        let ping = Ping {
            line: self.line,
            sent: host::now(),
            stamp: record::stamp(),
        };
        let sent = self
            .wire
            .send(&json!({"id": self.line, "op": "keepalive", "session": id}))
            .await;
        self.next_ping = host::now()
            + if sent {
                PATIENCE
            } else {
                Duration::from_millis(30)
            };
        self.ping = sent.then_some(ping);
    }

    fn pinged(&mut self, ping: Ping, line: Value) {
        self.next_ping = ping.sent + Duration::from_millis(TTL_MS / 3);
        match self.told(line) {
            Told::Ok(_) if self.valid() => {
                self.deadline = self.deadline.max(ping.sent + Self::lease());
                let ttl_ms = Self::lease().as_millis() as u64;
                for held in &self.held {
                    let value = map([
                        ("owner", word(&held.owner)),
                        ("fence", int(held.token)),
                        ("ok", Word::Bool(true)),
                        ("ttl_ms", int(ttl_ms)),
                        ("after", ping.stamp.clone()),
                    ]);
                    record::note(&self.named(), "renew", Some(&held.lock), value);
                }
            }
            Told::No(code) if code == "session_unknown" => self.ended("a keepalive found none"),
            Told::Ok(_) => {}
            Told::No(_) | Told::Unknown => self.next_ping = host::now() + Duration::from_millis(20),
        }
    }

    /// The answer to a request named no such session.
    pub fn unknown_session(&mut self) {
        self.ended("a request found none");
    }
}

enum Pumped {
    Answer(Value),
    Broken,
    Nothing,
}
