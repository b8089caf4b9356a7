//! Load for benchmarks: closed loops of many clients over streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use raftlock::buckets::BucketMap;
use raftlock_client::{AcquireOptions, CallError, Stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Acquires, releases, keepalives and reads, 20:20:4:6, each client on locks of its own
    Mix,
    /// Acquire and release, each client on a lock of its own
    Cycles,
    /// Acquire and release, all clients waiting for one lock
    Contended,
}

/// One operation's latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Acquire,
    Other,
}

/// What came out.
pub struct Outcome {
    /// Requests answered ok.
    pub operations: u64,
    /// Acquire + release cycles.
    pub cycles: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Time measured.
    pub elapsed: Duration,
    /// Acquires, microseconds.
    pub acquire: Histogram<u64>,
    /// All operations, microseconds.
    pub all: Histogram<u64>,
}

struct Client {
    stream: Stream,
    session: String,
    lock: String,
}

/// Opens streams and sessions for `clients`, each in the group of its lock.
async fn prepare(
    leaders: &[String],
    clients: usize,
    work: Work,
    per_session: usize,
) -> Result<Vec<Client>, CallError> {
    let map = BucketMap::even(leaders.len() as u32);
    let mut streams = HashMap::new();
    let mut sessions: HashMap<(u32, usize), String> = HashMap::new();
    let mut out = Vec::new();
    for number in 0..clients {
        let lock = if work == Work::Contended {
            "bench/one".to_owned()
        } else {
            format!("bench/{number}")
        };
        let group = map.group_of(&lock);
        let url = &leaders[group as usize];
        // A few connections for each node, as a fleet's would be shared by its proxies.
        let key = (url.clone(), number % 4);
        if !streams.contains_key(&key) {
            let (stream, mut events) = Stream::connect(url).await?;
            tokio::spawn(async move { while events.recv().await.is_some() {} });
            streams.insert(key.clone(), stream);
        }
        let stream = streams[&key].clone();
        let slot = (group, number / per_session.max(1));
        let session = match sessions.get(&slot) {
            Some(session) => session.clone(),
            None => {
                let session = stream
                    .create_session(60_000, "bench", &lock)
                    .await
                    .result()?
                    .session;
                sessions.insert(slot, session.clone());
                session
            }
        };
        out.push(Client {
            stream,
            session,
            lock,
        });
    }
    Ok(out)
}

/// Runs `clients` closed loops for `warm` + `seconds` and measures the latter.
pub async fn run(
    leaders: &[String],
    clients: usize,
    work: Work,
    warm: Duration,
    seconds: Duration,
    pace: Option<f64>,
) -> Result<Outcome, CallError> {
    let clients = prepare(leaders, clients, work, 16).await?;
    let count = clients.len() as f64;
    let (tx, mut rx) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let begin = Instant::now() + warm;
    let end = begin + seconds;
    for (number, client) in clients.into_iter().enumerate() {
        let tx = tx.clone();
        let gap = pace.map(|rate| Duration::from_secs_f64(count / rate));
        tasks.spawn(
            async move { one_client(number as u64, client, work, begin, end, gap, &tx).await },
        );
    }
    drop(tx);
    let mut outcome = Outcome {
        operations: 0,
        cycles: 0,
        failures: 0,
        elapsed: seconds,
        acquire: histogram(),
        all: histogram(),
    };
    while let Some(part) = rx.recv().await {
        let part: Box<Outcome> = part;
        outcome.operations += part.operations;
        outcome.cycles += part.cycles;
        outcome.failures += part.failures;
        let _ = outcome.acquire.add(&part.acquire);
        let _ = outcome.all.add(&part.all);
    }
    Ok(outcome)
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap_or_else(|_| {
        Histogram::new_from(&Histogram::<u64>::new(2).expect("2 digits are allowed"))
    });
    histogram.auto(true);
    histogram
}

struct Meter {
    begin: Instant,
    outcome: Box<Outcome>,
}

impl Meter {
    fn count(&mut self, kind: Kind, sent: Instant, ok: bool) {
        if sent < self.begin {
            return;
        }
        if !ok {
            self.outcome.failures += 1;
            return;
        }
        let micros = sent.elapsed().as_micros() as u64;
        self.outcome.operations += 1;
        let _ = self.outcome.all.record(micros);
        if kind == Kind::Acquire {
            let _ = self.outcome.acquire.record(micros);
        }
    }
}

async fn one_client(
    number: u64,
    client: Client,
    work: Work,
    begin: Instant,
    end: Instant,
    gap: Option<Duration>,
    done: &mpsc::UnboundedSender<Box<Outcome>>,
) {
    let outcome = Outcome {
        operations: 0,
        cycles: 0,
        failures: 0,
        elapsed: Duration::ZERO,
        acquire: histogram(),
        all: histogram(),
    };
    let mut meter = Meter {
        begin,
        outcome: Box::new(outcome),
    };
    let (stream, session, lock) = (
        &client.stream,
        client.session.as_str(),
        client.lock.as_str(),
    );
    let wait_ms = if work == Work::Contended { 30_000 } else { 0 };
    let options = Arc::new(AcquireOptions {
        wait_ms,
        ..AcquireOptions::default()
    });
    let mut due = Instant::now() + gap.unwrap_or_default().mul_f64((number % 97) as f64 / 97.0);
    let mut turn = number;
    while Instant::now() < end {
        if let Some(gap) = gap {
            tokio::time::sleep_until(due.into()).await;
            due = (due + gap).max(Instant::now());
        }
        turn += 1;
        let sent = Instant::now();
        let grant = stream.acquire(lock, session, &options).await.result();
        meter.count(Kind::Acquire, sent, grant.is_ok());
        let Ok(grant) = grant else { continue };
        let sent = Instant::now();
        let released = stream
            .release(lock, session, grant.token, None)
            .await
            .result();
        meter.count(Kind::Other, sent, released.is_ok());
        meter.outcome.cycles += u64::from(sent >= begin && released.is_ok());
        if work != Work::Mix {
            continue;
        }
        // Of 10 rounds: 20 acquires and releases belong to 4 keepalives and 6 reads in 20.
        if turn % 10 < 2 {
            let sent = Instant::now();
            let alive = stream.keepalive(session).await.result();
            meter.count(Kind::Other, sent, alive.is_ok());
        } else if turn % 10 < 5 {
            let sent = Instant::now();
            let seen = stream.show(lock).await.result();
            meter.count(Kind::Other, sent, seen.is_ok());
        }
    }
    let _ = done.send(meter.outcome);
}
