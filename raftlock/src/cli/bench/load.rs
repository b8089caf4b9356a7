//! Load for benchmarks: closed loops of many clients, whatever the service.

use std::future::Future;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::mpsc;

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Acquires, releases, keepalives and reads, 20:20:4:6, each client on a lock of its own
    Mix,
    /// Acquire and release, each client on a lock of its own
    Cycles,
    /// Acquire and release, all clients waiting for one lock
    Contended,
}

/// How clients reach the service; the other service's likewise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Connections {
    /// Four to each node and a session for 16 clients, as by the proxies of a fleet
    Shared,
    /// A connection and a session for each client, as programs on their own have
    Each,
}

impl Connections {
    /// As the command line has it.
    pub fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Over how many connections so many clients go, where sharing ones have `shared`.
    pub fn among(self, clients: usize, shared: usize) -> usize {
        match self {
            Connections::Shared => shared.min(clients),
            Connections::Each => clients,
        }
    }

    /// Clients of one session. A contended lock is for clients with sessions of their own.
    pub fn per_session(self, work: Work) -> usize {
        match (self, work) {
            (Connections::Each, _) | (_, Work::Contended) => 1,
            (Connections::Shared, Work::Mix | Work::Cycles) => 16,
        }
    }
}

/// One client of a service, with its lock.
pub trait Caller: Send + 'static {
    /// Takes the lock, in turn with the others that want it.
    fn acquire(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// Gives it back.
    fn release(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// Keeps the session alive. Only the mix asks for it.
    fn keepalive(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        async { Ok(()) }
    }
    /// Looks at the lock, linearizably. Only the mix asks for it.
    fn read(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        async { Ok(()) }
    }
}

/// How long and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What is done.
    pub work: Work,
    /// Over what.
    pub connections: Connections,
    /// Not measured, at the beginning.
    pub warm: Duration,
    /// Measured.
    pub seconds: Duration,
    /// Cycles a second of all clients together; as fast as answers come without.
    pub rate: Option<f64>,
}

/// What came out.
pub struct Outcome {
    /// Requests answered ok.
    pub operations: u64,
    /// Acquire + release cycles.
    pub cycles: u64,
    /// Requests that failed.
    pub failures: u64,
    /// The first failure's words.
    pub why: Option<String>,
    /// Time measured.
    pub elapsed: Duration,
    /// Acquires, microseconds.
    pub acquire: Histogram<u64>,
    /// All operations, microseconds.
    pub all: Histogram<u64>,
}

impl Outcome {
    fn new(elapsed: Duration) -> Self {
        Outcome {
            operations: 0,
            cycles: 0,
            failures: 0,
            why: None,
            elapsed,
            acquire: histogram(),
            all: histogram(),
        }
    }

    fn add(&mut self, part: &Outcome) {
        self.operations += part.operations;
        self.cycles += part.cycles;
        self.failures += part.failures;
        self.why = self.why.take().or_else(|| part.why.clone());
        let _ = self.acquire.add(&part.acquire);
        let _ = self.all.add(&part.all);
    }

    /// Acquire + release cycles a second.
    pub fn cycles_per_s(&self) -> f64 {
        self.cycles as f64 / self.elapsed.as_secs_f64()
    }

    /// A quantile of the acquires, ms.
    pub fn acquire_ms(&self, quantile: f64) -> f64 {
        self.acquire.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Microseconds, three digits, as long as need be.
pub fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits are allowed");
    histogram.auto(true);
    histogram
}

/// Runs each client in a closed loop by the plan.
pub async fn drive<C: Caller>(clients: Vec<C>, plan: Plan) -> Outcome {
    let count = clients.len() as f64;
    let (tx, mut rx) = mpsc::unbounded_channel();
    let begin = Instant::now() + plan.warm;
    for (number, client) in clients.into_iter().enumerate() {
        let gap = plan.rate.map(|rate| Duration::from_secs_f64(count / rate));
        let meter = Meter {
            begin,
            outcome: Box::new(Outcome::new(Duration::ZERO)),
        };
        let tx = tx.clone();
        tokio::spawn(async move {
            let outcome = one_client(number as u64, client, plan, gap, meter).await;
            let _ = tx.send(outcome);
        });
    }
    drop(tx);
    let mut outcome = Outcome::new(plan.seconds);
    while let Some(part) = rx.recv().await {
        outcome.add(&part);
    }
    outcome
}

struct Meter {
    begin: Instant,
    outcome: Box<Outcome>,
}

impl Meter {
    /// Counts an operation that was due at `due`; false if it failed.
    fn count(&mut self, acquire: bool, due: Instant, done: anyhow::Result<()>) -> bool {
        let ok = done.is_ok();
        if due < self.begin {
            return ok;
        }
        if let Err(error) = done {
            self.outcome.failures += 1;
            self.outcome.why.get_or_insert_with(|| error.to_string());
            return ok;
        }
        let micros = due.elapsed().as_micros() as u64;
        self.outcome.operations += 1;
        let _ = self.outcome.all.record(micros);
        if acquire {
            let _ = self.outcome.acquire.record(micros);
        }
        ok
    }
}

async fn one_client<C: Caller>(
    number: u64,
    mut client: C,
    plan: Plan,
    gap: Option<Duration>,
    mut meter: Meter,
) -> Box<Outcome> {
    let end = meter.begin + plan.seconds;
    let spread = (number * 61 % 97) as f64 / 97.0;
    let mut due = Instant::now() + gap.unwrap_or_default().mul_f64(spread);
    let mut turn = number;
    while Instant::now() < end {
        match gap {
            // Stamped when it was due, so that a slow answer does not hide the requests behind it.
            Some(gap) => {
                tokio::time::sleep_until(due.into()).await;
                let taken = client.acquire().await;
                let ok = meter.count(true, due, taken);
                due += gap;
                if !ok {
                    continue;
                }
            }
            None => {
                let sent = Instant::now();
                let taken = client.acquire().await;
                if !meter.count(true, sent, taken) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            }
        }
        let sent = Instant::now();
        let released = client.release().await;
        let ok = meter.count(false, sent, released);
        meter.outcome.cycles += u64::from(ok && sent >= meter.begin);
        turn += 1;
        // Of ten cycles two are followed by a keepalive and three by a read: 20:20:4:6.
        let sent = Instant::now();
        if plan.work == Work::Mix && turn % 10 < 2 {
            let kept = client.keepalive().await;
            meter.count(false, sent, kept);
        } else if plan.work == Work::Mix && turn % 10 < 5 {
            let seen = client.read().await;
            meter.count(false, sent, seen);
        }
    }
    meter.outcome
}
