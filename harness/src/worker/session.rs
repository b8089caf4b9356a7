//! One worker's side of the protocol: ids, what is pending, what `after` means.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

use fencepost_workloads::protocol::{
    Answer, FromWorker, MAX_LINE, Op, OpName, RawReply, Request, ToWorker, WorkerEvent,
};

use super::error::{WorkerError, shown};
use super::link::{Link, Reading};
use crate::record::Stamp;

/// Stamps kept for `after`. One older than these counts as the run's beginning,
/// which only shortens what a grant is certain to hold.
const STAMPS: usize = 1 << 16;

/// A request without its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub op: OpName,
    /// The client slot that waits for it; none for init, ping and close.
    pub slot: Option<usize>,
    /// Its invocation, or the last event before it and the time of its sending.
    pub stamp: Stamp,
    /// Nanoseconds after which a worker that runs counts as hung.
    pub budget: i64,
}

/// What a worker said.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    Answer {
        asked: Asked,
        answer: Answer,
    },
    /// `after` resolved to a stamp.
    Event {
        event: WorkerEvent,
        after: Stamp,
    },
    /// Too late to matter: the request was given up before.
    Late,
    /// A point or `queued`, with the slot of the operation it names.
    Of {
        event: WorkerEvent,
        slot: usize,
    },
}

/// A running worker.
pub struct Session {
    pub worker: usize,
    link: Link,
    next_id: u64,
    pending: HashMap<u64, Asked>,
    /// Given up: an answer that still comes is no news.
    abandoned: HashSet<u64>,
    stamps: VecDeque<Stamp>,
    lines: u64,
    closed: bool,
}

impl Session {
    pub fn new(worker: usize, link: Link) -> Self {
        Session {
            worker,
            link,
            next_id: 1,
            pending: HashMap::new(),
            abandoned: HashSet::new(),
            stamps: VecDeque::new(),
            lines: 0,
            closed: false,
        }
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub fn send(&mut self) {
        self.link.send();
    }

    pub fn hang_up(&mut self) {
        self.link.hang_up();
    }

    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Stages a request; it leaves at the next [`send`](Self::send).
    pub fn ask(&mut self, op: Op, asked: Asked) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, asked);
        if self.stamps.len() == STAMPS {
            self.stamps.pop_front();
        }
        self.stamps.push_back(asked.stamp);
        ToWorker::Request(Request { id, op }).write_line(self.link.outbox());
        id
    }

    /// Lets an operation go on that stopped at a point.
    pub fn go(&mut self, id: u64) {
        ToWorker::Go(id).write_line(self.link.outbox());
    }

    /// Whether the worker has closed its output.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Notes that the worker has closed its output; nothing is read any more.
    pub fn close_output(&mut self) {
        self.closed = true;
    }

    /// The oldest request that should have been answered by now. The time in which the worker
    /// could not run, up to `resumed`, does not count.
    pub fn overdue(&self, now: i64, resumed: i64) -> Option<(u64, Asked)> {
        let late = |a: &Asked| now.saturating_sub(a.stamp.time.max(resumed)) > a.budget;
        self.pending
            .iter()
            .filter(|(_, a)| late(a))
            .map(|(id, a)| (*id, *a))
            .min_by_key(|(id, _)| *id)
    }

    pub fn asked(&self, id: u64) -> Option<&Asked> {
        self.pending.get(&id)
    }

    /// Everything that was never answered, oldest first; nothing is pending afterwards.
    pub fn abandon(&mut self) -> Vec<(u64, Asked)> {
        let mut left: Vec<_> = self.pending.drain().collect();
        left.sort_unstable_by_key(|(id, _)| *id);
        self.abandoned.extend(left.iter().map(|(id, _)| *id));
        left
    }

    /// Reads what has come and hands every whole line on, in order.
    ///
    /// # Errors
    /// The first thing that is wrong; what came before it was handed on.
    pub fn read(&mut self, mut each: impl FnMut(Heard)) -> Result<Reading, WorkerError> {
        let reading = match self.link.fill() {
            Ok(r) => r,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Reading::Drained,
            Err(_) => Reading::Closed,
        };
        while let Some(line) = self.link.next_line() {
            self.lines += 1;
            let said = match FromWorker::parse(line) {
                Ok(said) => said,
                Err(e) => return Err(self.rubbish(e.to_string())),
            };
            each(self.take(said)?);
        }
        if self.link.unfinished().len() > MAX_LINE {
            return Err(WorkerError::Rubbish {
                worker: self.worker,
                line: self.lines + 1,
                why: format!("longer than {MAX_LINE} bytes"),
                text: shown(self.link.unfinished()),
            });
        }
        Ok(reading)
    }

    fn take(&mut self, said: FromWorker) -> Result<Heard, WorkerError> {
        match said {
            FromWorker::Reply(reply) => self.answer(reply),
            FromWorker::Event(event) => self.event(event),
        }
    }

    fn answer(&mut self, reply: RawReply) -> Result<Heard, WorkerError> {
        let id = reply.id;
        let Some(asked) = self.pending.remove(&id) else {
            if self.abandoned.remove(&id) {
                return Ok(Heard::Late);
            }
            return Err(self.unasked(id));
        };
        match reply.answer(asked.op) {
            Ok(answer) => Ok(Heard::Answer { asked, answer }),
            Err(e) => Err(self.rubbish(format!("no valid answer to request {id}: {e}"))),
        }
    }

    fn event(&mut self, event: WorkerEvent) -> Result<Heard, WorkerError> {
        match &event {
            WorkerEvent::Renew { after, .. } | WorkerEvent::Lost { after, .. } => {
                if *after >= self.next_id {
                    return Err(self.unasked(*after));
                }
                let after = self.stamp(*after);
                Ok(Heard::Event { event, after })
            }
            WorkerEvent::Queued { id }
            | WorkerEvent::Woken { id }
            | WorkerEvent::Point { id, .. } => match self.pending.get(id).and_then(|a| a.slot) {
                Some(slot) => Ok(Heard::Of { event, slot }),
                None if self.abandoned.contains(id) => Ok(Heard::Late),
                None => Err(self.unasked(*id)),
            },
        }
    }

    /// Stamp of a request; the run's beginning when it is too long ago to be kept.
    fn stamp(&self, id: u64) -> Stamp {
        let first = self.next_id - self.stamps.len() as u64;
        id.checked_sub(first)
            .and_then(|n| self.stamps.get(n as usize))
            .copied()
            .unwrap_or_default()
    }

    fn unasked(&self, id: u64) -> WorkerError {
        let (worker, line, text) = (self.worker, self.lines, shown(self.link.last_line()));
        if id > 0 && id < self.next_id {
            WorkerError::Twice {
                worker,
                line,
                id,
                text,
            }
        } else {
            WorkerError::NotAsked {
                worker,
                line,
                id,
                text,
            }
        }
    }

    fn rubbish(&self, why: String) -> WorkerError {
        let (worker, line, text) = (self.worker, self.lines, shown(self.link.last_line()));
        WorkerError::Rubbish {
            worker,
            line,
            why,
            text,
        }
    }
}
