//! Committed entries into the machine; its replies and effects to those who wait for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Answer, Batch, ReplyTo, Shared};
use crate::machine::{Effect, Ended, Name, Op, Reply, RequestId, SessionId, Token};

/// What a session's stream is told without asking.
#[derive(Debug, Clone)]
pub enum Notice {
    /// The session ended with these grants.
    Ended {
        session: SessionId,
        why: Ended,
        lost: Vec<(Name, Token)>,
    },
    /// This node no longer leads: what the stream waited for is unknown.
    Deposed,
}

/// Those who wait for something on this node.
#[derive(Default)]
pub struct Hub {
    pending: BTreeMap<u64, (Instant, Vec<ReplyTo>)>,
    wakes: BTreeMap<(SessionId, RequestId), Vec<ReplyTo>>,
    sessions: BTreeMap<SessionId, Vec<mpsc::UnboundedSender<Notice>>>,
}

impl Hub {
    /// A batch is about to be proposed: its replies go to these, and so do the wake-ups of its waits.
    pub fn proposed(&mut self, sequence: u64, ops: &[Op], to: Vec<ReplyTo>) {
        for (op, to) in ops.iter().zip(&to) {
            if let Op::Acquire(ask) = op
                && ask.wait_ms > 0
            {
                self.wakes_also(ask.session, ask.request, to);
            }
        }
        self.pending.insert(sequence, (Instant::now(), to));
    }

    /// Takes the callers of a batch.
    pub fn take(&mut self, sequence: u64) -> Vec<ReplyTo> {
        self.take_timed(sequence).1
    }

    /// The same, with the time of the proposal.
    fn take_timed(&mut self, sequence: u64) -> (Option<Instant>, Vec<ReplyTo>) {
        let taken = self.pending.remove(&sequence);
        taken.map_or((None, Vec::new()), |(since, to)| (Some(since), to))
    }

    /// The acquire did not queue: its caller is not woken. Others may wait under that id: what was refused may have been a reuse
    /// of it.
    fn forget(&mut self, session: SessionId, request: RequestId, to: &ReplyTo) {
        let ReplyTo::Many(tx, id) = to else { return };
        if let Some(waiting) = self.wakes.get_mut(&(session, request)) {
            waiting.retain(|other| {
                !matches!(other, ReplyTo::Many(other, at) if at == id && other.same_channel(tx))
            });
            if waiting.is_empty() {
                self.wakes.remove(&(session, request));
            }
        }
    }

    /// The answer of this wait, which may go on already, is this caller's as well.
    fn wakes_also(&mut self, session: SessionId, request: RequestId, to: &ReplyTo) {
        if let ReplyTo::Many(tx, id) = to {
            let again = ReplyTo::Many(tx.clone(), *id);
            let waiting = self.wakes.entry((session, request)).or_default();
            waiting.push(again);
        }
    }

    /// Tells `tx` when the session ends; false if it would have been told already.
    pub fn watch(&mut self, session: SessionId, tx: &mpsc::UnboundedSender<Notice>) -> bool {
        let watchers = self.sessions.entry(session).or_default();
        watchers.retain(|other| !other.is_closed());
        let new = !watchers.iter().any(|other| other.same_channel(tx));
        if new {
            watchers.push(tx.clone());
        }
        new
    }

    /// Tells `tx` nothing of this session any more.
    pub fn unwatch(&mut self, session: SessionId, tx: &mpsc::UnboundedSender<Notice>) {
        if let Some(watchers) = self.sessions.get_mut(&session) {
            watchers.retain(|other| !other.same_channel(tx));
            if watchers.is_empty() {
                self.sessions.remove(&session);
            }
        }
    }

    /// The leadership is gone: all that wait learn that their outcome is unknown.
    pub fn deposed(&mut self) {
        let pending = std::mem::take(&mut self.pending).into_values();
        let pending = pending.map(|(_, to)| to);
        let wakes = std::mem::take(&mut self.wakes).into_values();
        for to in pending.flatten().chain(wakes.flatten()) {
            to.send(Answer::Unknown(
                "the leader changed before the outcome was known",
            ));
        }
        let sessions = std::mem::take(&mut self.sessions).into_values();
        for tx in sessions.flatten() {
            let _ = tx.send(Notice::Deposed);
        }
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Woken {
                session,
                request,
                token,
                ..
            } => {
                self.wake(*session, *request, &Answer::Woken { token: *token });
            }
            Effect::WaitEnded {
                session,
                request,
                expired,
                ..
            } => {
                self.wake(*session, *request, &Answer::WaitEnded { expired: *expired });
            }
            Effect::SessionEnded { session, why, lost } => {
                for tx in self.sessions.remove(session).unwrap_or_default() {
                    let _ = tx.send(Notice::Ended {
                        session: *session,
                        why: *why,
                        lost: lost.clone(),
                    });
                }
            }
            Effect::SessionOpened { .. } | Effect::Waiting { .. } | Effect::Delayed { .. } => {}
        }
    }

    fn wake(&mut self, session: SessionId, request: RequestId, answer: &Answer) {
        for to in self.wakes.remove(&(session, request)).unwrap_or_default() {
            to.send(answer.clone());
        }
    }
}

/// What the driver hears from the applier, in log order.
pub enum Applied {
    /// Effects of one entry.
    Effects(Vec<Effect>),
    /// A `Lead` entry of this term was applied.
    Led(u64),
}

/// Applies committed batches of one group on one node.
pub struct Applier {
    shared: Arc<Shared>,
    node: u64,
    boot: u64,
    driver: mpsc::UnboundedSender<Applied>,
    #[cfg(test)]
    flawed: crate::flaw::OwnClock,
}

impl Applier {
    /// `boot` is the number this run of the node writes into its batches.
    pub fn new(
        shared: Arc<Shared>,
        node: u64,
        boot: u64,
    ) -> (Self, mpsc::UnboundedReceiver<Applied>) {
        let (driver, events) = mpsc::unbounded_channel();
        (
            Applier {
                shared,
                node,
                boot,
                driver,
                #[cfg(test)]
                flawed: crate::flaw::OwnClock::default(),
            },
            events,
        )
    }

    /// Applies one committed batch.
    pub fn apply(&self, position: u64, batch: &Batch) {
        #[cfg(test)]
        let flawed = self.flawed.apply(batch);
        #[cfg(test)]
        let batch = &flawed;
        let mut effects = Vec::new();
        let replies = self
            .shared
            .machine()
            .apply(position, batch.at_ms, &batch.ops, &mut effects);
        let mut hub = self.shared.hub();
        if batch.origin == self.node && batch.boot == self.boot {
            let watch = &self.shared.watch;
            watch.applied(batch.at_ms, &batch.ops, &replies, &effects);
            let (since, callers) = hub.take_timed(batch.sequence);
            if let Some(since) = since {
                watch.commits.add(since.elapsed());
            }
            for ((op, reply), to) in batch.ops.iter().zip(replies).zip(callers) {
                let queued = matches!(reply, Reply::Queued { .. });
                match op {
                    Op::Acquire(ask) if ask.wait_ms > 0 && !queued => {
                        hub.forget(ask.session, ask.request, &to);
                    }
                    Op::Acquire(ask) if ask.wait_ms == 0 && queued => {
                        hub.wakes_also(ask.session, ask.request, &to);
                    }
                    _ => {}
                }
                to.send(Answer::Reply(reply));
            }
        }
        for effect in &effects {
            hub.effect(effect);
        }
        drop(hub);
        if !effects.is_empty() {
            let _ = self.driver.send(Applied::Effects(effects));
        }
        for op in &batch.ops {
            if let Op::Lead { term } = op {
                let _ = self.driver.send(Applied::Led(*term));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Acquire, Machine, Mode};

    #[test]
    fn who_watches_a_session_twice_is_told_once_and_may_stop() {
        let mut hub = Hub::default();
        let (tx, mut rx) = mpsc::unbounded_channel();
        let (other, mut others) = mpsc::unbounded_channel();
        assert!(hub.watch(1, &tx) && !hub.watch(1, &tx) && hub.watch(1, &other));
        let ended = Effect::SessionEnded {
            session: 1,
            why: Ended::Closed,
            lost: Vec::new(),
        };
        hub.effect(&ended);
        assert!(rx.try_recv().is_ok() && rx.try_recv().is_err());
        assert!(others.try_recv().is_ok());
        hub.watch(2, &tx);
        hub.unwatch(2, &tx);
        assert!(hub.sessions.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn a_refused_request_takes_nobodys_wake_up() {
        let shared = Shared::new(Machine::new());
        let (applier, _events) = Applier::new(Arc::clone(&shared), 1, 1);
        let mut sequence = 0;
        let mut apply = |op: Op, to: ReplyTo| {
            sequence += 1;
            let batch = Batch {
                origin: 1,
                boot: 1,
                sequence,
                at_ms: 0,
                ops: vec![op],
            };
            shared.hub().proposed(sequence, &batch.ops, vec![to]);
            applier.apply(sequence, &batch);
        };
        let open = |session| Op::Open {
            session,
            ttl_ms: 1000,
            label: Arc::from(""),
            namespace: Arc::from("default"),
            max_sessions: 9,
        };
        let acquire = |session, request, name: &str, wait_ms| {
            Op::Acquire(Acquire {
                session,
                request,
                epoch: None,
                name: Arc::from(name),
                mode: Mode::Exclusive,
                wait_ms,
                owner: None,
                max_waiters: 9,
                delay_ms: 0,
            })
        };
        let (tx, mut rx) = mpsc::unbounded_channel();
        let to = |id| ReplyTo::Many(tx.clone(), id);
        apply(open(1), ReplyTo::Nobody);
        apply(open(2), ReplyTo::Nobody);
        apply(acquire(1, 5, "a", 0), ReplyTo::Nobody);
        apply(acquire(2, 7, "a", 1000), to(1));
        apply(acquire(2, 7, "b", 500), to(2));
        apply(Op::Close { session: 1 }, ReplyTo::Nobody);
        let mut woken = Vec::new();
        while let Ok((id, answer)) = rx.try_recv() {
            if matches!(answer, Answer::Woken { .. }) {
                woken.push(id);
            }
        }
        assert_eq!(woken, [1]);
        assert!(shared.hub().wakes.is_empty(), "nothing is kept of it");
    }
}
