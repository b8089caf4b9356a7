#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep};

use super::applier::Applied;
use super::*;
use crate::machine::{Acquire, Mode, Release};

/// Entries as they were proposed; each stays on the way until its sender is used.
type Log = Arc<Mutex<Vec<(Batch, oneshot::Sender<()>)>>>;

struct Paper {
    log: Log,
    rounds: Arc<AtomicU32>,
    leading: watch::Receiver<Option<u64>>,
}

impl Backend for Paper {
    fn propose(
        &self,
        batch: Batch,
    ) -> Pin<Box<dyn Future<Output = Result<(), ProposeError>> + Send>> {
        let (tx, rx) = oneshot::channel();
        self.log.lock().unwrap().push((batch, tx));
        Box::pin(async move {
            rx.await
                .map_err(|_| ProposeError::Unknown("the test is over"))
        })
    }

    fn confirm(&self) -> Pin<Box<dyn Future<Output = Result<(), ProposeError>> + Send>> {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn leading(&self) -> watch::Receiver<Option<u64>> {
        self.leading.clone()
    }

    fn leader(&self) -> Option<u64> {
        None
    }
}

struct Led {
    log: Log,
    rounds: Arc<AtomicU32>,
    group: Group,
    _leading: watch::Sender<Option<u64>>,
    _applied: mpsc::UnboundedSender<Applied>,
}

/// A leader of a group in which session 1 holds the lock `a`.
async fn led() -> Led {
    let mut machine = Machine::new();
    let open = |session| Op::Open {
        session,
        ttl_ms: 60_000,
        label: "".into(),
        namespace: "default".into(),
        max_sessions: 9,
    };
    machine.apply(1, 0, &[open(1), open(2), acquire(1, "a")], &mut Vec::new());
    let shared = Shared::new(machine);
    let (leading, seen) = watch::channel(Some(1));
    let log = Log::default();
    let rounds = Arc::default();
    let paper = Paper {
        log: Arc::clone(&log),
        rounds: Arc::clone(&rounds),
        leading: seen,
    };
    let (group, inbox) = Group::new(0, Arc::clone(&shared));
    let (applied, events) = mpsc::unbounded_channel();
    tokio::spawn(Driver::new(Arc::new(paper), shared, 0, 1, 7).run(inbox, events));
    let led = Led {
        log,
        rounds,
        group,
        _leading: leading,
        _applied: applied,
    };
    settle().await;
    led.committed(0).await;
    led._applied.send(Applied::Led(1)).ok().unwrap();
    settle().await;
    led
}

impl Led {
    async fn ask(&self, op: Op) {
        let to = ReplyTo::Nobody;
        self.group.send(Cmd::Propose { op, to });
        settle().await;
    }

    async fn committed(&self, entry: usize) {
        let (_, done) = &mut self.log.lock().unwrap()[entry];
        let (unused, _) = oneshot::channel();
        std::mem::replace(done, unused).send(()).unwrap();
    }

    /// Operations in each entry after the one that announced the leader.
    fn entries(&self) -> Vec<usize> {
        let log = self.log.lock().unwrap();
        log[1..].iter().map(|(batch, _)| batch.ops.len()).collect()
    }
}

/// Lets the driver do all that it can do now.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

fn acquire(session: u64, name: &str) -> Op {
    Op::Acquire(Acquire {
        session,
        request: session,
        epoch: None,
        name: name.into(),
        mode: Mode::Exclusive,
        wait_ms: 1_000,
        owner: None,
        max_waiters: 9,
        delay_ms: 0,
    })
}

fn release(name: &str) -> Op {
    Op::Release(Release {
        session: 1,
        request: 99,
        epoch: None,
        name: name.into(),
        token: 1,
    })
}

#[tokio::test(start_paused = true)]
async fn who_will_only_queue_goes_with_the_next_release() {
    let led = led().await;
    led.ask(acquire(2, "a")).await;
    assert_eq!(led.entries(), [0; 0], "it can wait");
    led.ask(release("a")).await;
    assert_eq!(led.entries(), [2]);
    let log = led.log.lock().unwrap();
    assert!(
        matches!(log[1].0.ops[..], [Op::Acquire(_), Op::Release(_)]),
        "in the order of arrival"
    );
}

#[tokio::test(start_paused = true)]
async fn who_will_only_queue_waits_a_moment_at_most() {
    let led = led().await;
    let begun = Instant::now();
    led.ask(acquire(2, "a")).await;
    while led.entries().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(
        begun.elapsed() <= Duration::from_millis(3),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_be_granted_waits_for_nothing() {
    let led = led().await;
    led.ask(acquire(2, "b")).await;
    assert_eq!(led.entries(), [1], "the lock is free");
    led.ask(acquire(2, "a")).await;
    assert_eq!(led.entries(), [1, 1], "what is on the way could free it");
}

#[tokio::test(start_paused = true)]
async fn a_few_wait_for_the_many_that_are_on_the_way() {
    let led = led().await;
    for lock in ["b", "c", "d", "e"] {
        led.group.send(Cmd::Propose {
            op: acquire(2, lock),
            to: ReplyTo::Nobody,
        });
    }
    settle().await;
    assert_eq!(led.entries(), [4]);
    led.ask(acquire(2, "f")).await;
    assert_eq!(led.entries(), [4], "one waits");
    led.ask(acquire(2, "g")).await;
    assert_eq!(led.entries(), [4, 2], "two are half of what is on the way");
    led.ask(acquire(2, "h")).await;
    assert_eq!(led.entries(), [4, 2]);
    led.committed(1).await;
    led.committed(2).await;
    settle().await;
    assert_eq!(led.entries(), [4, 2, 1], "nothing is on the way any more");
}

#[tokio::test(start_paused = true)]
async fn keepalives_share_a_round_and_a_read_waits_for_nothing() {
    let led = led().await;
    let rounds = || led.rounds.load(Ordering::Relaxed);
    let (tx, mut answers) = mpsc::unbounded_channel();
    let keepalive = |session| {
        let to = ReplyTo::Many(tx.clone(), session);
        led.group.send(Cmd::Keepalive { session, to });
    };
    let begun = Instant::now();
    for session in [1, 2] {
        keepalive(session);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rounds(), 0);
    for _ in 0..2 {
        let (_, answer) = answers.recv().await.unwrap();
        assert!(matches!(answer, Answer::Alive { .. }));
    }
    assert!(begun.elapsed() <= Duration::from_millis(23));
    assert_eq!(rounds(), 1);
    keepalive(1);
    let begun = Instant::now();
    let read = led.group.call(|to| Cmd::Confirm { to }).await;
    assert!(matches!(read, Answer::Confirmed));
    let (_, answer) = answers.recv().await.unwrap();
    assert!(matches!(answer, Answer::Alive { .. }));
    assert_eq!((rounds(), begun.elapsed()), (2, Duration::ZERO));
}
