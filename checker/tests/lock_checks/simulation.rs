//! Random histories of a correct lease lock, with pauses, lost replies, expiries and delays: never
//! flagged as the service's fault. The same lock with one thing broken: found.

use fencepost_checker::checks::Lineup;
use fencepost_checker::judge::facts::Facts;
use fencepost_checker::verdict::Verdict;
use fencepost_history::{Event, EventType, Process, Value};
use proptest::prelude::*;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bug {
    None,
    /// Grants a lock that is held.
    Grants,
    /// Leases last a third of what they promise.
    Short,
    /// The fence stands still at every third grant.
    Fence,
    /// Releases whatever lock there is, whoever asks.
    Release,
    /// The renewal of a lapsed lease takes the lock back.
    Revive,
}

const MS: i64 = 1_000_000;
const TTL: i64 = 1000 * MS;

struct Rng(u64);

impl Rng {
    /// Below `n`.
    fn up_to(&mut self, n: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as i64
    }

    fn one_in(&mut self, n: i64) -> bool {
        self.up_to(n) == 0
    }
}

#[derive(Clone, Debug)]
struct Hold {
    owner: String,
    fence: i128,
    ends: i64,
}

/// Something that is recorded at a time; ties are broken by `order`.
struct Draft {
    time: i64,
    order: u64,
    process: Process,
    kind: EventType,
    f: &'static str,
    value: Value,
    error: Option<&'static str>,
}

struct Client {
    worker: i64,
    process: u64,
    /// When its next step takes effect, and since when it has been free to begin it.
    next: i64,
    free: i64,
    holds: Option<Hold>,
    renew_at: i64,
}

struct Sim {
    rng: Rng,
    bug: Bug,
    held: Option<Hold>,
    fence: i128,
    grants: u64,
    drafts: Vec<Draft>,
    processes: u64,
}

fn text(s: &str) -> Value {
    Value::Str(s.into())
}

fn map(members: Vec<(&str, Value)>) -> Value {
    Value::Map(members.into_iter().map(|(k, v)| (k.into(), v)).collect())
}

impl Sim {
    fn record(
        &mut self,
        time: i64,
        process: Process,
        kind: EventType,
        f: &'static str,
        value: Value,
        error: Option<&'static str>,
    ) {
        let order = self.drafts.len() as u64;
        self.drafts.push(Draft {
            time,
            order,
            process,
            kind,
            f,
            value,
            error,
        });
    }

    /// The holder at this time, by the service's own clock.
    fn holder(&self, now: i64) -> Option<&Hold> {
        self.held.as_ref().filter(|h| h.ends > now)
    }

    fn try_acquire(&mut self, now: i64, owner: &str) -> Option<Hold> {
        let free = self.holder(now).is_none();
        let broken = self.bug == Bug::Grants && self.rng.one_in(3);
        if !free && !broken {
            return None;
        }
        self.grants += 1;
        if self.bug != Bug::Fence || !self.grants.is_multiple_of(3) {
            self.fence += 1;
        }
        let ttl = if self.bug == Bug::Short { TTL / 3 } else { TTL };
        let hold = Hold {
            owner: owner.to_owned(),
            fence: self.fence,
            ends: now + ttl,
        };
        self.held = Some(hold.clone());
        Some(hold)
    }

    fn release(&mut self, now: i64, owner: &str) -> bool {
        let mine = self.holder(now).is_some_and(|h| h.owner == owner);
        let any = self.bug == Bug::Release && self.holder(now).is_some();
        if mine || any {
            self.held = None;
        }
        mine || any
    }

    fn renew(&mut self, now: i64, hold: &Hold) -> bool {
        if let Some(h) = self
            .held
            .as_mut()
            .filter(|h| h.ends > now && h.owner == hold.owner)
        {
            h.ends = now + TTL;
            return true;
        }
        if self.bug == Bug::Revive {
            self.held = Some(Hold {
                ends: now + TTL,
                ..hold.clone()
            });
            return true;
        }
        false
    }

    /// One step of a client at `c.next`. Steps of all clients are taken in the order of their effect, so
    /// the service sees them in that order; stamps lie around the effect.
    fn step(&mut self, c: &mut Client) {
        let effect = c.next;
        // Now and then a client waits in the service's queue for longer than a lease.
        let waits = c.holds.is_none() && self.rng.one_in(5);
        let room = (effect - c.free - 1).max(1);
        let invoke = effect - 1 - self.rng.up_to(room.min(if waits { 2500 } else { 20 } * MS));
        // Now and then an answer takes longer than a lease: a pause, a lost packet.
        let slow = self.rng.one_in(8);
        let ok = effect + 1 + self.rng.up_to(if slow { 1500 } else { 20 } * MS);
        let lost = self.rng.one_in(10);
        let client = Process::Client(c.process);
        let worker = ("worker", Value::Int(c.worker.into()));
        let Some(hold) = c.holds.clone() else {
            let value = map(vec![worker, ("ttl_ms", Value::Int(1000))]);
            self.record(
                invoke,
                client.clone(),
                EventType::Invoke,
                "acquire",
                value,
                None,
            );
            let owner = format!("{}-{}", c.process, self.drafts.len());
            let got = self.try_acquire(effect, &owner);
            match got {
                _ if lost => {
                    self.record(
                        ok,
                        client,
                        EventType::Info,
                        "acquire",
                        Value::Null,
                        Some("timeout"),
                    );
                    self.processes += 1;
                    c.process = self.processes;
                }
                None => self.record(
                    ok,
                    client,
                    EventType::Fail,
                    "acquire",
                    Value::Null,
                    Some("busy"),
                ),
                Some(h) => {
                    let value = map(vec![
                        ("owner", text(&h.owner)),
                        ("fence", Value::Int(h.fence)),
                        ("ttl_ms", Value::Int(1000)),
                    ]);
                    self.record(ok, client, EventType::Ok, "acquire", value, None);
                    c.holds = Some(h);
                    c.renew_at = ok + 300 * MS;
                }
            }
            c.free = ok;
            let idle = if self.rng.one_in(5) { 3000 } else { 100 };
            c.next = ok + 30 * MS + self.rng.up_to(idle * MS);
            return;
        };
        let named = || {
            vec![
                ("owner", text(&hold.owner)),
                ("fence", Value::Int(hold.fence)),
            ]
        };
        if self.rng.one_in(2) {
            let renewed = self.renew(effect, &hold);
            let mut value = named();
            value.push((
                "ok",
                if lost {
                    Value::Null
                } else {
                    Value::Bool(renewed)
                },
            ));
            value.push(("ttl_ms", Value::Int(1000)));
            value.push(("sent", Value::Int(invoke.into())));
            let name = Process::Named(format!("w{}", c.worker).into());
            self.record(ok, name, EventType::Info, "renew", map(value), None);
            c.free = ok;
            c.next = ok + 30 * MS + self.rng.up_to(500 * MS);
            return;
        }
        let mut value = named();
        value.push(worker);
        self.record(
            invoke,
            client.clone(),
            EventType::Invoke,
            "release",
            map(value),
            None,
        );
        let held = self.release(effect, &hold.owner);
        c.holds = None;
        if lost {
            self.record(
                ok,
                client,
                EventType::Info,
                "release",
                Value::Null,
                Some("timeout"),
            );
            self.processes += 1;
            c.process = self.processes;
        } else {
            let value = map(vec![("held", Value::Bool(held))]);
            self.record(ok, client, EventType::Ok, "release", value, None);
        }
        c.free = ok;
        let idle = if self.rng.one_in(5) { 3000 } else { 100 };
        c.next = ok + 30 * MS + self.rng.up_to(idle * MS);
    }

    /// Events in the order of their stamps, with `after` of renewals filled in.
    fn events(mut self) -> Vec<Event> {
        self.drafts.sort_by_key(|d| (d.time, d.order));
        let times: Vec<i64> = self.drafts.iter().map(|d| d.time).collect();
        let finish = |index: usize, d: Draft| {
            let sent = d.value.get("sent").and_then(Value::as_i64);
            let value = match (d.value, sent) {
                (Value::Map(mut m), Some(sent)) => {
                    let before = times.partition_point(|t| *t <= sent).saturating_sub(1);
                    let after = map(vec![
                        ("index", Value::Int(before as i128)),
                        ("time", Value::Int(sent.into())),
                    ]);
                    m.push(("after".into(), after));
                    Value::Map(m)
                }
                (v, _) => v,
            };
            Event {
                index: index as u64,
                time: d.time,
                process: d.process,
                kind: d.kind,
                f: d.f.into(),
                key: Some("L0".into()),
                value,
                error: d.error.map(Into::into),
            }
        };
        self.drafts
            .into_iter()
            .enumerate()
            .map(|(i, d)| finish(i, d))
            .collect()
    }
}

pub fn history(seed: u64, bug: Bug, steps: usize) -> Vec<Event> {
    let mut sim = Sim {
        rng: Rng(seed | 1),
        bug,
        held: None,
        fence: 0,
        grants: 0,
        drafts: Vec::new(),
        processes: 3,
    };
    let mut clients: Vec<Client> = (0..3)
        .map(|n| Client {
            worker: n,
            process: n as u64,
            next: 100 * MS + n * 7 * MS,
            free: 0,
            holds: None,
            renew_at: 0,
        })
        .collect();
    for _ in 0..steps {
        if let Some(c) = clients.iter_mut().min_by_key(|c| c.next) {
            sim.step(c);
        }
    }
    sim.events()
}

pub fn facts() -> Facts {
    Facts::parse(
        r#"{"system":{"lease":true,"fence":true,"granularity_ms":1},"lease":{"ttl_ms":1000}}"#,
    )
    .expect("facts")
}

pub fn verdicts(events: &[Event]) -> fencepost_checker::checks::Results {
    let mut lineup = Lineup::new(&facts());
    for e in events {
        lineup.event(e);
    }
    lineup.finish()
}

const SAFETY: [&str; 4] = [
    "double-holder.service",
    "fence-monotonic",
    "owner-only",
    "linearizable",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_correct_service_is_never_flagged(seed in any::<u64>()) {
        let events = history(seed, Bug::None, 60);
        for (name, r) in verdicts(&events) {
            // Not about liveness: clients here wait without any queue, and answers are slow without any fault.
            if name == "available" || name == "freed-in-time" {
                continue;
            }
            prop_assert_ne!(r.verdict, Verdict::Violated, "{}: {} {:?}", name, r.reason, r.evidence);
        }
    }
}

/// In how many of 60 histories some safety check is violated.
fn found(bug: Bug, checks: &[&str]) -> usize {
    (1..=60u64)
        .filter(|seed| {
            let events = history(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), bug, 60);
            let results = verdicts(&events);
            checks
                .iter()
                .any(|c| results[*c].verdict == Verdict::Violated)
        })
        .count()
}

#[test]
fn seeded_bugs_are_found() {
    assert_eq!(found(Bug::None, &SAFETY), 0);
    for (bug, check) in [
        (Bug::Grants, "double-holder.service"),
        (Bug::Short, "double-holder.service"),
        (Bug::Fence, "fence-monotonic"),
        (Bug::Release, "owner-only"),
        (Bug::Revive, "owner-only"),
    ] {
        let n = found(bug, &[check]);
        assert!(n >= 5, "{bug:?} by {check}: {n} of 60");
    }
}

/// The events of the evidence alone, with their renewals, are a violation still.
#[test]
fn evidence_stands_by_itself() {
    let mut stood = 0;
    for seed in 1..=40u64 {
        let events = history(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), Bug::Grants, 60);
        let results = verdicts(&events);
        for check in ["double-holder.service", "fence-monotonic", "owner-only"] {
            let r = &results[check];
            if r.verdict != Verdict::Violated {
                continue;
            }
            let only: Vec<Event> = events
                .iter()
                .filter(|e| r.evidence.contains(&e.index))
                .cloned()
                .collect();
            let again = &verdicts(&only)[check];
            assert_eq!(
                again.verdict,
                Verdict::Violated,
                "{check}: {:?}",
                r.evidence
            );
            assert!(r.evidence.len() <= 8, "{:?}", r.evidence);
            stood += 1;
        }
    }
    assert!(stood > 10, "{stood}");
}
