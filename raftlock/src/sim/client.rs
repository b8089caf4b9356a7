//! A client in the simulation: keeps a session, takes locks, holds them a while, gives them back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use turmoil::net::TcpStream;
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::history::{Grant, History};
use super::node::CLIENT_PORT;
use super::{LOCKS, REPLICAS, replica};
use crate::chance;

const TTL_MS: u64 = 1500;
const CALL: Duration = Duration::from_millis(700);

struct Wire {
    reader: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

enum Told {
    Ok(Value),
    /// Surely nothing happened; the code.
    No(String),
    Unknown,
}

struct Client {
    id: u64,
    history: Arc<Mutex<History>>,
    wire: Option<Wire>,
    node: u64,
    next: u64,
    /// How fast this client's clock runs.
    drift: f64,
    session: Option<String>,
    /// The client's own deadline for its session.
    deadline: Instant,
}

/// Runs a client until the given simulated time.
pub async fn run(
    id: u64,
    history: Arc<Mutex<History>>,
    until: Duration,
    drift: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let now = Instant::now();
    let mut client = Client {
        id,
        history,
        wire: None,
        node: id % REPLICAS + 1,
        next: 1,
        drift,
        session: None,
        deadline: now,
    };
    while turmoil::sim_elapsed().unwrap_or_default() < until {
        client.round().await;
    }
    Ok(())
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

impl Client {
    fn note(&self, with: impl FnOnce(&mut History)) {
        with(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn round(&mut self) {
        if self.session.is_none() || Instant::now() >= self.deadline {
            self.open().await;
            return;
        }
        let lock = format!("lock-{}", chance::random() % LOCKS);
        let wait_ms = [0, 300, 2000][(chance::random() % 3) as usize];
        let request = self.next + 1_000_000;
        let asked = now();
        let Some(session) = self.session.clone() else {
            return;
        };
        let ask = json!({"op": "acquire", "session": session, "lock": lock, "wait_ms": wait_ms, "request_id": request});
        // Repeated under the same request id while the outcome is unknown.
        let told = loop {
            let limit = CALL + Duration::from_millis(wait_ms);
            match self.call(ask.clone(), limit).await {
                Told::Unknown if Instant::now() < self.deadline => self.keepalive().await,
                told => break told,
            }
        };
        match told {
            Told::Ok(answer) => {
                let token = answer["token"].as_u64().unwrap_or(0);
                self.hold(lock, token, asked).await;
            }
            Told::No(code) => self.refused(&code).await,
            Told::Unknown => self.session = None,
        }
    }

    async fn hold(&mut self, lock: String, token: u64, asked: Duration) {
        let from = now();
        if Instant::now() >= self.deadline {
            return;
        }
        self.note(|history| {
            history.last.insert(lock.clone(), from);
        });
        let end = Instant::now() + Duration::from_millis(chance::random() % 1200);
        while Instant::now() < end && Instant::now() < self.deadline {
            sleep(Duration::from_millis(1 + chance::random() % 300)).await;
            self.keepalive().await;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        let valid = !left.is_zero();
        let session = self.session.clone().unwrap_or_default();
        // Certain until the release is sent, or until the lease ended by this client's own clock.
        let until = if valid {
            now()
        } else {
            now() - Instant::now().saturating_duration_since(self.deadline)
        };
        let (client, name) = (self.id, lock.clone());
        self.note(|history| {
            history.grants.push(Grant {
                client,
                lock: name,
                token,
                asked,
                from,
                until,
            })
        });
        let request = self.next + 1_000_000;
        let ask = json!({"op": "release", "session": session, "lock": lock, "token": token, "request_id": request});
        let mut first = true;
        loop {
            match self.call(ask.clone(), CALL).await {
                Told::Ok(_) => {
                    self.note(|history| history.releases += 1);
                    return;
                }
                Told::No(code)
                    if valid && matches!(code.as_str(), "not_held" | "session_unknown") =>
                {
                    // Repeated later than the deadline it may be gone; before that it may not.
                    if first || Instant::now() < self.deadline {
                        let id = self.id;
                        let broken = format!(
                            "client {id} lost {lock} under token {token} within its lease: {code}"
                        );
                        self.note(|history| history.broken.push(broken));
                    }
                    self.session = None;
                    return;
                }
                Told::No(code) if code == "session_unknown" => {
                    self.session = None;
                    return;
                }
                _ if Instant::now() >= self.deadline => {
                    self.session = None;
                    return;
                }
                Told::No(_) | Told::Unknown => {
                    first = false;
                    self.keepalive().await;
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    async fn refused(&mut self, code: &str) {
        self.note(|history| history.refused += 1);
        if code == "session_unknown" {
            if Instant::now() < self.deadline {
                let broken = format!("client {}: its session ended within its lease", self.id);
                self.note(|history| history.broken.push(broken));
            }
            self.session = None;
        }
        sleep(Duration::from_millis(10 + chance::random() % 50)).await;
    }

    async fn open(&mut self) {
        if self.session.take().is_some() {
            self.note(|history| history.sessions_lost += 1);
        }
        let sent = Instant::now();
        match self
            .call(
                json!({"op": "open", "ttl_ms": TTL_MS, "lock": "lock-0"}),
                CALL,
            )
            .await
        {
            Told::Ok(answer) => {
                self.session = answer["session"].as_str().map(str::to_owned);
                self.deadline = sent + self.lease();
            }
            _ => sleep(Duration::from_millis(50)).await,
        }
    }

    /// The TTL by this client's clock, less a margin of 2 %, which covers the drifts.
    fn lease(&self) -> Duration {
        Duration::from_millis(TTL_MS).mul_f64(0.98 * self.drift.min(1.0))
    }

    async fn keepalive(&mut self) {
        let Some(session) = self.session.clone() else {
            return;
        };
        let sent = Instant::now();
        match self
            .call(
                json!({"op": "keepalive", "session": session}),
                Duration::from_millis(400),
            )
            .await
        {
            Told::Ok(_) => self.deadline = self.deadline.max(sent + self.lease()),
            Told::No(code) if code == "session_unknown" => {
                if Instant::now() < self.deadline {
                    let broken = format!(
                        "client {}: a keepalive within its lease found no session",
                        self.id
                    );
                    self.note(|history| history.broken.push(broken));
                }
                self.deadline = Instant::now();
            }
            _ => sleep(Duration::from_millis(20)).await,
        }
    }

    /// One request to the node that this client believes to lead. An unknown outcome drops the connection.
    async fn call(&mut self, mut ask: Value, limit: Duration) -> Told {
        self.next += 1;
        let id = self.next;
        ask["id"] = json!(id);
        let until = Instant::now() + limit;
        let told = match timeout_at(until, self.exchange(id, &ask)).await {
            Ok(Some(answer)) => match answer.get("error") {
                None => Told::Ok(answer),
                Some(error) => {
                    match error["leader"]
                        .as_str()
                        .and_then(|url| url.chars().find(char::is_ascii_digit))
                    {
                        Some(digit) => self.turn_to(u64::from(digit as u8 - b'0')),
                        None if matches!(
                            error["code"].as_str(),
                            Some("no_leader" | "unknown_outcome")
                        ) =>
                        {
                            self.turn_to(self.node % REPLICAS + 1);
                        }
                        None => {}
                    }
                    if error["effect"] == "none" {
                        Told::No(error["code"].as_str().unwrap_or("?").to_owned())
                    } else {
                        Told::Unknown
                    }
                }
            },
            _ => {
                self.turn_to(self.node % REPLICAS + 1);
                Told::Unknown
            }
        };
        if matches!(told, Told::Unknown) {
            self.note(|history| history.unknown += 1);
        }
        told
    }

    fn turn_to(&mut self, node: u64) {
        self.wire = None;
        self.node = node;
    }

    /// Sends a line and reads on to its answer; `None` where the connection broke.
    async fn exchange(&mut self, id: u64, ask: &Value) -> Option<Value> {
        if self.wire.is_none() {
            let dialling = TcpStream::connect((replica(self.node), CLIENT_PORT));
            let stream = timeout(Duration::from_millis(300), dialling)
                .await
                .ok()?
                .ok()?;
            let (reader, writer) = stream.into_split();
            self.wire = Some(Wire {
                reader: BufReader::new(reader).lines(),
                writer,
            });
        }
        let wire = self.wire.as_mut()?;
        wire.writer
            .write_all(format!("{ask}\n").as_bytes())
            .await
            .ok()?;
        loop {
            let line = wire.reader.next_line().await.ok()??;
            let answer: Value = serde_json::from_str(&line).ok()?;
            if answer["id"] == id && answer.get("queued").is_none() {
                return Some(answer);
            }
        }
    }
}
