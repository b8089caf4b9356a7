//! The driver: one task for each group and node.
//!
//! It proposes what clients ask in batches, confirms the leadership for keepalives and reads in shared rounds, and
//! while it leads it measures time and proposes what is due.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::applier::Applied;
use super::timers::Timers;
use super::{Answer, Batch, Cmd, ReplyTo, Shared};
use crate::host;
use crate::machine::{Op, SessionId};

/// Operations in one log entry at most.
const BATCH: usize = 1024;
/// Entries proposed and not yet answered at most.
const IN_FLIGHT: usize = 4;
/// A timer this late means that the process stood still.
const STALL: Duration = Duration::from_millis(60);
const TICK: Duration = Duration::from_millis(20);
/// How long requests that will only join a queue may wait for one that brings something about: a hand-over is then one
/// entry, not two.
const LINGER: Duration = Duration::from_millis(1);
/// How long keepalives wait for others, so that thousands a second share a round. A lease counts from the receipt all the same.
const GATHER: Duration = Duration::from_millis(20);

/// Why a proposal failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposeError {
    /// It was not taken; nothing happens.
    NotLeader(Option<u64>),
    /// It may still be committed.
    Unknown(&'static str),
}

type Job<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A batch's number, how many operations it has, and what became of it.
type Proposed = (u64, usize, Result<(), ProposeError>);

/// What puts batches into a log and tells who leads.
pub trait Backend: Send + Sync + 'static {
    /// Proposes; resolves once the batch is applied here.
    fn propose(&self, batch: Batch) -> Job<Result<(), ProposeError>>;
    /// Confirms the leadership by a round begun now.
    fn confirm(&self) -> Job<Result<(), ProposeError>>;
    /// The term in which this node leads, as it changes.
    fn leading(&self) -> watch::Receiver<Option<u64>>;
    /// Another node that leads now.
    fn leader(&self) -> Option<u64>;
}

enum Asked {
    Keepalive(SessionId, ReplyTo),
    Read(ReplyTo),
}

/// The driver's state.
pub struct Driver<B> {
    backend: Arc<B>,
    shared: Arc<Shared>,
    group: u32,
    node: u64,
    boot: u64,
    sequence: u64,
    leading: Option<u64>,
    /// Set once this node's own `Lead` entry was applied.
    timers: Option<(u64, Timers)>,
    announced: Option<u64>,
    /// Requests that came after this node began to lead and before its `Lead` entry was applied.
    early: Vec<Cmd>,
    /// What time demanded and is on its way to the log, by batch. A leader that hears no majority refuses for a
    /// while and goes on to lead: what it refused is proposed again.
    demanded: BTreeMap<u64, Vec<Op>>,
    again: Vec<Op>,
    queue: Vec<(Op, ReplyTo)>,
    /// Until then all of the queue can wait.
    linger: Option<Instant>,
    proposals: FuturesUnordered<Job<Proposed>>,
    /// Operations in them.
    on_the_way: usize,
    asked: Vec<Asked>,
    /// When the round for them begins, unless somebody asks who cannot wait.
    gathering: Option<Instant>,
    round: Option<Job<Result<(), ProposeError>>>,
    in_round: Vec<Asked>,
}

impl<B: Backend> Driver<B> {
    /// A driver that has not started.
    pub fn new(backend: Arc<B>, shared: Arc<Shared>, group: u32, node: u64, boot: u64) -> Self {
        Driver {
            backend,
            shared,
            group,
            node,
            boot,
            sequence: 0,
            leading: None,
            timers: None,
            announced: None,
            early: Vec::new(),
            demanded: BTreeMap::new(),
            again: Vec::new(),
            queue: Vec::new(),
            linger: None,
            proposals: FuturesUnordered::new(),
            on_the_way: 0,
            asked: Vec::new(),
            gathering: None,
            round: None,
            in_round: Vec::new(),
        }
    }

    /// Runs until the group's handles are dropped.
    pub async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Cmd>,
        mut applied: mpsc::UnboundedReceiver<Applied>,
    ) {
        let mut leading = self.backend.leading();
        leading.mark_changed();
        let mut commands = Vec::with_capacity(BATCH);
        let mut tick = host::now() + TICK;
        loop {
            let wake = self
                .timers
                .as_ref()
                .and_then(|(_, timers)| timers.next())
                .map_or(tick, |due| due.min(tick));
            let gathered = self.gathering.filter(|_| self.round.is_none());
            let wake = self
                .linger
                .into_iter()
                .chain(gathered)
                .fold(wake, Instant::min);
            let has_room = self.queue.len() < 16 * BATCH;
            tokio::select! {
                biased;
                changed = leading.changed() => {
                    if changed.is_err() { return; }
                    let now = *leading.borrow_and_update();
                    self.change_role(now);
                }
                Some(event) = applied.recv() => self.heard(event),
                Some((sequence, count, result)) = self.proposals.next(), if !self.proposals.is_empty() => {
                    self.on_the_way -= count;
                    let demanded = self.demanded.remove(&sequence);
                    if let Err(error) = result {
                        self.again.extend(demanded.into_iter().flatten());
                        self.failed(sequence, error);
                    }
                }
                result = poll_round(&mut self.round), if self.round.is_some() => self.round_over(result),
                () = host::sleep_until(wake) => {
                    let now = host::now();
                    self.time_passed(now, now.saturating_duration_since(wake));
                    tick = now + TICK;
                }
                count = inbox.recv_many(&mut commands, BATCH), if has_room => {
                    if count == 0 { return; }
                    // What came in the same message is still being handed over: it goes into the same entry.
                    tokio::task::yield_now().await;
                    while commands.len() < BATCH && let Ok(cmd) = inbox.try_recv() {
                        commands.push(cmd);
                    }
                    for cmd in commands.drain(..) { self.command(cmd); }
                }
            }
            self.propose_queued();
            self.begin_round();
        }
    }

    fn change_role(&mut self, leading: Option<u64>) {
        let was = std::mem::replace(&mut self.leading, leading);
        if was != leading {
            self.timers = None;
            self.demanded.clear();
            self.again.clear();
            if was.is_some() {
                self.refuse_all();
                self.shared.hub().deposed();
            }
        }
        if let Some(term) = leading
            && self.announced != Some(term)
        {
            self.announced = Some(term);
            self.enqueue(Op::Lead { term }, ReplyTo::Nobody);
        }
    }

    fn refuse_all(&mut self) {
        let leader = self.backend.leader();
        for (_, to) in self.queue.drain(..) {
            to.send(Answer::NotLeader { leader });
        }
        for asked in self.asked.drain(..).chain(self.in_round.drain(..)) {
            asked.to().send(Answer::NotLeader { leader });
        }
        (self.round, self.gathering) = (None, None);
        for cmd in self.early.drain(..) {
            cmd.to().send(Answer::NotLeader { leader });
        }
    }

    fn heard(&mut self, event: Applied) {
        match event {
            Applied::Effects(effects) => {
                if let Some((_, timers)) = &mut self.timers {
                    timers.effects(&effects, host::now());
                }
            }
            Applied::Led(term) if self.leading == Some(term) => {
                let timers = Timers::of(&self.shared.machine(), host::now());
                self.timers = Some((term, timers));
                tracing::info!(
                    group = self.group,
                    term,
                    "leading; every session starts a full TTL"
                );
                for cmd in std::mem::take(&mut self.early) {
                    self.command(cmd);
                }
            }
            Applied::Led(_) => {}
        }
    }

    fn command(&mut self, cmd: Cmd) {
        let Some((_, timers)) = &mut self.timers else {
            if self.leading.is_some() && self.early.len() < BATCH {
                self.early.push(cmd);
                return;
            }
            cmd.to().send(Answer::NotLeader {
                leader: self.backend.leader(),
            });
            return;
        };
        match cmd {
            Cmd::Propose { op, to } => self.enqueue(op, to),
            Cmd::Confirm { to } => {
                self.gathering = None;
                self.asked.push(Asked::Read(to));
            }
            Cmd::Keepalive { session, to } => {
                // Also "no such session" is told only after the round: a deposed leader does not know.
                let now = host::now();
                timers.prolong(session, now);
                if self.asked.is_empty() {
                    self.gathering = Some(now + GATHER);
                }
                self.asked.push(Asked::Keepalive(session, to));
            }
        }
    }

    fn time_passed(&mut self, now: Instant, late: Duration) {
        let Some((term, timers)) = &mut self.timers else {
            self.change_role(self.leading);
            return;
        };
        if late > STALL {
            timers.lengthen(late);
        }
        let due = timers.due(now, *term);
        let due: Vec<Op> = self.again.drain(..).chain(due).collect();
        for op in due {
            self.enqueue(op, ReplyTo::Nobody);
        }
    }

    fn enqueue(&mut self, op: Op, to: ReplyTo) {
        // What is on its way may free the lock.
        let can_wait = self.proposals.is_empty()
            && (self.queue.is_empty() || self.linger.is_some())
            && matches!(&op, Op::Acquire(ask) if self.shared.machine().would_queue(ask));
        if can_wait {
            self.linger.get_or_insert_with(|| host::now() + LINGER);
        } else {
            self.linger = None;
        }
        self.queue.push((op, to));
    }

    fn propose_queued(&mut self) {
        if self.linger.is_some_and(|until| host::now() < until) {
            return;
        }
        self.linger = None;
        while !self.queue.is_empty() && self.proposals.len() < IN_FLIGHT && self.worth_an_entry() {
            let rest = self.queue.split_off(self.queue.len().min(BATCH));
            let (ops, to): (Vec<Op>, Vec<ReplyTo>) =
                std::mem::replace(&mut self.queue, rest).into_iter().unzip();
            self.sequence += 1;
            let sequence = self.sequence;
            let demanded: Vec<Op> = ops
                .iter()
                .filter(|op| op.is_demanded_by_time())
                .cloned()
                .collect();
            if !demanded.is_empty() {
                self.demanded.insert(sequence, demanded);
            }
            let batch = Batch {
                origin: self.node,
                boot: self.boot,
                sequence,
                at_ms: host::wall_ms(),
                ops,
            };
            self.shared.hub().proposed(sequence, &batch.ops, to);
            let count = batch.ops.len();
            self.on_the_way += count;
            let proposal = self.backend.propose(batch);
            self.proposals
                .push(Box::pin(async move { (sequence, count, proposal.await) }));
        }
    }

    /// Beside entries that are on the way goes only one that is not much smaller: the few wait, and more join them.
    fn worth_an_entry(&self) -> bool {
        self.queue.len() * 2 >= self.on_the_way
    }

    fn failed(&mut self, sequence: u64, error: ProposeError) {
        let callers = self.shared.hub().take(sequence);
        for to in callers {
            to.send(match error {
                ProposeError::NotLeader(leader) => Answer::NotLeader { leader },
                ProposeError::Unknown(why) => Answer::Unknown(why),
            });
        }
        // A Lead entry that was lost must be proposed again, or this leader would never serve; the next tick does it,
        // since a replica that is stopping refuses at once and for ever.
        if self.timers.is_none() && self.announced == self.leading {
            self.announced = None;
        }
    }

    /// One round at a time: those who ask during a round wait for the next, which begins after their request.
    fn begin_round(&mut self) {
        let gathers = self.gathering.is_some_and(|until| host::now() < until);
        if self.round.is_none() && !self.asked.is_empty() && !gathers {
            self.gathering = None;
            self.in_round = std::mem::take(&mut self.asked);
            self.round = Some(self.backend.confirm());
        }
    }

    fn round_over(&mut self, result: Result<(), ProposeError>) {
        self.round = None;
        let term = self.timers.as_ref().map(|(term, _)| *term);
        for asked in std::mem::take(&mut self.in_round) {
            let answer = match (&asked, result, term) {
                (_, Err(_), _) | (_, _, None) => Answer::NotLeader {
                    leader: self.backend.leader(),
                },
                (Asked::Read(_), Ok(()), _) => Answer::Confirmed,
                (Asked::Keepalive(session, _), Ok(()), Some(epoch)) => {
                    self.still_alive(*session, epoch)
                }
            };
            asked.to().send(answer);
        }
    }

    fn still_alive(&self, session: SessionId, epoch: u64) -> Answer {
        let ttl = self
            .timers
            .as_ref()
            .and_then(|(_, timers)| timers.alive(session));
        ttl.map_or(Answer::NoSession, |ttl_ms| Answer::Alive { ttl_ms, epoch })
    }
}

impl Asked {
    fn to(self) -> ReplyTo {
        match self {
            Asked::Keepalive(_, to) | Asked::Read(to) => to,
        }
    }
}

async fn poll_round(round: &mut Option<Job<Result<(), ProposeError>>>) -> Result<(), ProposeError> {
    match round {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
