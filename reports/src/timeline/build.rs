//! Folds the events of one lock into holds, operations and marks.

use std::collections::HashMap;

use fencepost_history::{Event, EventType, Process, Value, names};

use super::live::Live;
use super::{Answer, At, End, Focus, Hold, Mark, Op, Who};

/// Ended holds and loose operations that are kept.
const MAX_HOLDS: usize = 4_000;
const MAX_LOOSE: usize = 2_000;
const MAX_MARKS: usize = 400;
const MAX_OPS_A_HOLD: usize = 400;

/// Everything known of the focused lock within its window.
#[derive(Debug, Default)]
pub struct Built {
    pub holds: Vec<Hold>,
    pub loose: Vec<(Who, Op)>,
    pub marks: Vec<(Who, Mark)>,
    /// How much did not fit within the bounds.
    pub dropped: u64,
}

/// The fold; feed it events in the order of their index.
pub struct Builder<'a> {
    focus: &'a Focus,
    margin: &'a dyn Fn(i64) -> i64,
    asked: HashMap<u64, (At, Who)>,
    pending: HashMap<u64, Op>,
    whose: HashMap<u64, Who>,
    releases: HashMap<u64, (String, Option<u64>)>,
    renewals: HashMap<u64, (At, String, Option<u64>)>,
    live: Live,
    built: Built,
}

impl<'a> Builder<'a> {
    /// `margin` gives the slack before a lease's end, in ns, for a TTL in ns.
    pub fn new(focus: &'a Focus, margin: &'a dyn Fn(i64) -> i64) -> Self {
        Builder {
            focus,
            margin,
            asked: HashMap::new(),
            pending: HashMap::new(),
            whose: HashMap::new(),
            releases: HashMap::new(),
            renewals: HashMap::new(),
            live: Live::default(),
            built: Built::default(),
        }
    }

    /// Takes one event; `false` once the window is over.
    pub fn push(&mut self, event: &Event) -> bool {
        if event.time > self.focus.to {
            return false;
        }
        match &event.process {
            Process::Client(id) => self.operation(*id, event),
            Process::Named(name) => {
                if let Some(worker) = name.strip_prefix('w').and_then(|n| n.parse().ok()) {
                    self.worker(worker, event);
                }
            }
        }
        true
    }

    pub fn finish(mut self) -> Built {
        let unanswered = std::mem::take(&mut self.pending);
        let mut unanswered: Vec<(u64, Op)> = unanswered.into_iter().collect();
        unanswered.sort_by_key(|(_, op)| op.invoked);
        for (process, op) in unanswered {
            self.place(process, op);
        }
        for hold in self.live.drain() {
            self.keep(hold);
        }
        self.built.holds.sort_by_key(|h| h.granted);
        self.built
    }

    fn operation(&mut self, process: u64, event: &Event) {
        let at = At {
            time: event.time,
            index: event.index,
        };
        if event.kind == EventType::Invoke {
            if event.key == self.focus.key {
                self.invoked(process, at, event);
            }
            return;
        }
        match &*event.f {
            names::ACQUIRE => self.granted(process, at, event),
            names::RELEASE => {
                if let Some((owner, fence)) = self.releases.remove(&process)
                    && event.kind == EventType::Fail
                    && let Some(hold) = self.live.find(&owner, fence)
                {
                    hold.end = None;
                }
            }
            names::RENEW => {
                if let Some((sent, owner, fence)) = self.renewals.remove(&process)
                    && event.kind == EventType::Ok
                {
                    self.renewed(&owner, fence, sent, ttl_of(&event.value));
                }
            }
            _ => {
                if let Some(mut op) = self.pending.remove(&process) {
                    op.answered = Some(at);
                    op.answer = match event.kind {
                        EventType::Ok => Answer::Accepted,
                        EventType::Fail => {
                            Answer::Refused(event.error.as_deref().unwrap_or("refused").to_string())
                        }
                        _ => Answer::Unknown,
                    };
                    self.place(process, op);
                }
            }
        }
    }

    fn invoked(&mut self, process: u64, at: At, event: &Event) {
        let worker = event.value.get("worker").and_then(Value::as_u64);
        let who = worker.map_or(Who::Process(process), Who::Worker);
        self.whose.insert(process, who);
        let (owner, fence) = grant_of(&event.value);
        match &*event.f {
            names::ACQUIRE => {
                self.asked.insert(process, (at, who));
            }
            names::RELEASE => {
                if let Some(hold) = self.live.find(&owner, fence) {
                    hold.believed = hold.believed.max(at.time);
                    hold.end.get_or_insert((End::Released, at));
                }
                self.releases.insert(process, (owner, fence));
            }
            names::RENEW => {
                self.renewals.insert(process, (at, owner, fence));
            }
            _ => {
                if let Some(hold) = self.live.find(&owner, fence) {
                    hold.believed = hold.believed.max(at.time);
                }
                let value = event
                    .value
                    .get("value")
                    .or_else(|| event.value.get("element"));
                let op = Op {
                    f: event.f.clone(),
                    owner,
                    fence,
                    value: value.cloned().unwrap_or_default(),
                    invoked: at,
                    answered: None,
                    answer: Answer::Unknown,
                };
                self.pending.insert(process, op);
            }
        }
    }

    fn granted(&mut self, process: u64, at: At, event: &Event) {
        let Some((asked, who)) = self.asked.remove(&process) else {
            return;
        };
        if event.kind != EventType::Ok {
            let error = event.error.as_deref().unwrap_or("no answer").to_string();
            let refused = event.kind == EventType::Fail;
            self.keep_loose(
                who,
                Op {
                    f: event.f.clone(),
                    owner: String::new(),
                    fence: None,
                    value: Value::Null,
                    invoked: asked,
                    answered: Some(at),
                    answer: if refused {
                        Answer::Refused(error)
                    } else {
                        Answer::Unknown
                    },
                },
            );
            return;
        }
        let (owner, fence) = grant_of(&event.value);
        let ttl = ttl_of(&event.value);
        let gone = self.live.push(Hold {
            who,
            process,
            owner,
            fence,
            asked,
            granted: at,
            ttl,
            promised: ttl.map(|ttl| asked.time + ttl - (self.margin)(ttl)),
            renewals: Vec::new(),
            believed: at.time,
            end: None,
            ops: Vec::new(),
        });
        for hold in gone {
            self.keep(hold);
        }
    }

    fn worker(&mut self, worker: u64, event: &Event) {
        let at = At {
            time: event.time,
            index: event.index,
        };
        let who = Who::Worker(worker);
        let text = |name: &str| event.value.get(name).and_then(Value::as_str);
        let (owner, fence) = grant_of(&event.value);
        let sent = event.value.get("after").and_then(|a| a.get("time"));
        let sent = At {
            time: sent.and_then(Value::as_i64).unwrap_or(event.time),
            index: event.index,
        };
        match &*event.f {
            names::CLAIMS => self.claims(event, sent.time),
            "close" => {
                for hold in self.live.of(who) {
                    hold.end.get_or_insert((End::Closed, at));
                }
            }
            names::RENEW if event.value.get("ok").and_then(Value::as_bool) == Some(true) => {
                self.renewed(&owner, fence, sent, ttl_of(&event.value));
            }
            names::LOST => {
                if let Some(hold) = self.live.find(&owner, fence) {
                    hold.end.get_or_insert((End::Lost, at));
                    let reason = text("reason").unwrap_or("no reason given");
                    self.mark(who, at, format!("noticed the loss: {reason}"));
                }
            }
            names::POINT => {
                let process = event.value.get("process").and_then(Value::as_u64);
                let ours = process.is_some_and(|p| self.pending.contains_key(&p));
                if ours && text("state") != Some("go") {
                    let name = text("name").unwrap_or("a point");
                    self.mark(who, at, format!("stopped at {name}"));
                }
            }
            names::EXIT => {
                let mut any = false;
                for hold in self.live.of(who) {
                    any = true;
                    hold.end.get_or_insert((End::Died, at));
                }
                if any {
                    let reason = text("reason").unwrap_or("no reason given");
                    self.mark(who, at, format!("worker ended: {reason}"));
                }
            }
            _ => {}
        }
    }

    fn claims(&mut self, event: &Event, made: i64) {
        let Some(Value::List(grants)) = event.value.get("grants") else {
            return;
        };
        let key = self.focus.key.clone();
        for grant in grants {
            if grant.get("key").and_then(Value::as_str) == key.as_deref() {
                let (owner, fence) = grant_of(grant);
                if let Some(hold) = self.live.find(&owner, fence) {
                    hold.believed = hold.believed.max(made);
                }
            }
        }
    }

    fn renewed(&mut self, owner: &str, fence: Option<u64>, sent: At, ttl: Option<i64>) {
        let margin = self.margin;
        if let Some(hold) = self.live.find(owner, fence)
            && let Some(ttl) = ttl.or(hold.ttl)
        {
            let until = sent.time + ttl - margin(ttl);
            hold.promised = Some(hold.promised.map_or(until, |p| p.max(until)));
            hold.renewals.push(sent);
        }
    }

    fn place(&mut self, process: u64, op: Op) {
        if op.answered.is_some_and(|a| a.time < self.focus.from) {
            return;
        }
        if let Some(hold) = self.live.find(&op.owner, op.fence) {
            if hold.ops.len() < MAX_OPS_A_HOLD {
                hold.ops.push(op);
            } else {
                self.built.dropped += 1;
            }
            return;
        }
        let who = self
            .whose
            .get(&process)
            .copied()
            .unwrap_or(Who::Process(process));
        self.keep_loose(who, op);
    }

    fn keep_loose(&mut self, who: Who, op: Op) {
        if op.answered.is_some_and(|a| a.time < self.focus.from) {
            return;
        }
        if self.built.loose.len() < MAX_LOOSE {
            self.built.loose.push((who, op));
        } else {
            self.built.dropped += 1;
        }
    }

    fn mark(&mut self, who: Who, at: At, what: String) {
        if at.time >= self.focus.from && self.built.marks.len() < MAX_MARKS {
            self.built.marks.push((who, Mark { at, what }));
        }
    }

    fn keep(&mut self, hold: Hold) {
        if hold.last() < self.focus.from {
            return;
        }
        if self.built.holds.len() < MAX_HOLDS {
            self.built.holds.push(hold);
        } else {
            self.built.dropped += 1;
        }
    }
}

fn grant_of(value: &Value) -> (String, Option<u64>) {
    let owner = value.get("owner").and_then(Value::as_str).unwrap_or("");
    (
        owner.to_string(),
        value.get("fence").and_then(Value::as_u64),
    )
}

/// TTL in nanoseconds; `None` for a lock without a lease.
fn ttl_of(value: &Value) -> Option<i64> {
    let ms = value.get("ttl_ms").and_then(Value::as_i64)?;
    ms.checked_mul(1_000_000)
}
