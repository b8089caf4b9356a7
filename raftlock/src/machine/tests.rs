#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;

/// Applies one operation an entry and keeps the effects.
pub struct Rig {
    pub machine: Machine,
    pub index: u64,
    pub effects: Vec<Effect>,
    request: u64,
}

impl Rig {
    pub fn new(sessions: &[u64]) -> Self {
        let mut rig = Rig {
            machine: Machine::new(),
            index: 0,
            effects: Vec::new(),
            request: 1000,
        };
        for id in sessions {
            rig.run(Op::Open {
                session: *id,
                ttl_ms: 1000,
                label: Arc::from("t"),
                namespace: Arc::from(DEFAULT_NAMESPACE),
                max_sessions: 100,
            });
        }
        rig.effects.clear();
        rig
    }

    pub fn run(&mut self, op: Op) -> Reply {
        self.index += 1;
        self.machine
            .apply(self.index, 7, &[op], &mut self.effects)
            .remove(0)
    }

    pub fn ask(&mut self, session: u64, name: &str, mode: Mode, wait_ms: u32) -> Acquire {
        self.request += 1;
        Acquire {
            session,
            request: self.request,
            epoch: None,
            name: Arc::from(name),
            mode,
            wait_ms,
            owner: None,
            max_waiters: 500,
            delay_ms: 0,
        }
    }

    pub fn take(&mut self, session: u64, name: &str, mode: Mode, wait_ms: u32) -> Reply {
        let ask = self.ask(session, name, mode, wait_ms);
        self.run(Op::Acquire(ask))
    }

    pub fn give(&mut self, session: u64, name: &str, token: Token) -> Reply {
        self.request += 1;
        let request = self.request;
        self.run(Op::Release(Release {
            session,
            request,
            epoch: None,
            name: Arc::from(name),
            token,
        }))
    }

    pub fn woken(&mut self) -> Vec<(u64, Token)> {
        let all = std::mem::take(&mut self.effects);
        all.into_iter()
            .filter_map(|effect| match effect {
                Effect::Woken { session, token, .. } => Some((session, token)),
                _ => None,
            })
            .collect()
    }
}

pub fn token(reply: Reply) -> Token {
    match reply {
        Reply::Granted { token, .. } => token,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn one_holder_and_a_token_from_the_log_position() {
    let mut rig = Rig::new(&[1, 2]);
    let first = token(rig.take(1, "a", Mode::Exclusive, 0));
    assert_eq!(first, rig.index);
    assert_eq!(
        rig.take(2, "a", Mode::Exclusive, 0),
        Reply::Refused(Refusal::Busy)
    );
    assert_eq!(rig.give(2, "a", first), Reply::Refused(Refusal::NotHeld));
    assert_eq!(rig.give(1, "a", first), Reply::Released { remaining: 0 });
    let second = token(rig.take(2, "a", Mode::Exclusive, 0));
    assert!(second > first);
    assert!(rig.machine.token_is_current("a", second) && !rig.machine.token_is_current("a", first));
}

#[test]
fn tokens_rise_within_one_entry_and_after_the_name_was_forgotten() {
    let mut rig = Rig::new(&[1, 2, 3]);
    let held = token(rig.take(1, "a", Mode::Exclusive, 0));
    rig.take(2, "a", Mode::Shared, 100);
    rig.take(3, "a", Mode::Shared, 100);
    rig.give(1, "a", held);
    let woken = rig.woken();
    assert_eq!(
        woken
            .iter()
            .map(|(session, _)| *session)
            .collect::<Vec<_>>(),
        [2, 3]
    );
    assert!(held < woken[0].1 && woken[0].1 < woken[1].1);
    rig.give(2, "a", woken[0].1);
    rig.give(3, "a", woken[1].1);
    assert!(rig.machine.lock("a").is_none());
    assert!(token(rig.take(1, "a", Mode::Exclusive, 0)) > woken[1].1);
}

#[test]
fn waiters_are_served_in_order_and_dead_ones_are_skipped() {
    let mut rig = Rig::new(&[1, 2, 3, 4]);
    let held = token(rig.take(1, "a", Mode::Exclusive, 0));
    for session in [2, 3, 4] {
        assert!(matches!(
            rig.take(session, "a", Mode::Exclusive, 100),
            Reply::Queued { .. }
        ));
    }
    rig.run(Op::Expire {
        session: 2,
        epoch: 0,
    });
    rig.woken();
    rig.give(1, "a", held);
    assert_eq!(
        rig.woken()
            .into_iter()
            .map(|(session, _)| session)
            .collect::<Vec<_>>(),
        [3]
    );
    // Session 3 dies holding it: 4 gets it.
    rig.run(Op::Expire {
        session: 3,
        epoch: 0,
    });
    assert_eq!(rig.woken().len(), 1);
    assert_eq!(
        rig.machine.counts(),
        Counts {
            sessions: 2,
            held: 1,
            waiting: 0
        }
    );
}

#[test]
fn an_expiry_measured_under_an_old_epoch_is_refused() {
    let mut rig = Rig::new(&[1]);
    rig.run(Op::Lead { term: 5 });
    assert_eq!(
        rig.run(Op::Expire {
            session: 1,
            epoch: 4
        }),
        Reply::Refused(Refusal::StaleEpoch { current: 5 })
    );
    let mut ask = rig.ask(1, "a", Mode::Exclusive, 0);
    ask.epoch = Some(4);
    assert_eq!(
        rig.run(Op::Acquire(ask)),
        Reply::Refused(Refusal::StaleEpoch { current: 5 })
    );
    assert_eq!(
        rig.run(Op::Expire {
            session: 1,
            epoch: 5
        }),
        Reply::Ended { released: 0 }
    );
}

#[test]
fn a_repeated_request_gets_the_same_answer() {
    let mut rig = Rig::new(&[1, 2]);
    let ask = rig.ask(1, "a", Mode::Exclusive, 0);
    let first = rig.run(Op::Acquire(ask.clone()));
    assert_eq!(rig.run(Op::Acquire(ask)), first);
    let release = Release {
        session: 1,
        request: 5,
        epoch: None,
        name: Arc::from("a"),
        token: token(first),
    };
    assert_eq!(
        rig.run(Op::Release(release.clone())),
        Reply::Released { remaining: 0 }
    );
    assert_eq!(
        rig.run(Op::Release(release)),
        Reply::Released { remaining: 0 }
    );
    // A queued request asked again keeps its place, and learns its grant.
    let held = token(rig.take(1, "a", Mode::Exclusive, 0));
    let wait = rig.ask(2, "a", Mode::Exclusive, 100);
    assert_eq!(
        rig.run(Op::Acquire(wait.clone())),
        Reply::Queued { ahead: 0 }
    );
    assert_eq!(
        rig.run(Op::Acquire(wait.clone())),
        Reply::Queued { ahead: 0 }
    );
    rig.give(1, "a", held);
    let granted = rig.woken();
    assert_eq!(granted.len(), 1);
    assert_eq!(token(rig.run(Op::Acquire(wait))), granted[0].1);
}

#[test]
fn a_restore_lifts_tokens_above_the_lost_history() {
    let mut rig = Rig::new(&[1]);
    rig.machine.restore(1, true);
    assert!(token(rig.take(1, "a", Mode::Exclusive, 0)) > 1 << 48);
}

#[test]
fn bytes_and_back() {
    let mut rig = Rig::new(&[1, 2, 3]);
    rig.take(1, "default/a", Mode::Exclusive, 0);
    rig.take(2, "default/a", Mode::Exclusive, 100);
    rig.take(3, "default/s", Mode::Semaphore(2), 0);
    let bytes = rig.machine.to_bytes().unwrap();
    let back = Machine::from_bytes(&bytes).unwrap();
    assert_eq!(back.counts(), rig.machine.counts());
    assert_eq!(back.to_bytes().unwrap(), bytes);
    assert!(Machine::from_bytes(&bytes[..bytes.len() / 2]).is_err());
}

#[test]
fn a_namespace_has_so_many_sessions_and_no_more() {
    let mut rig = Rig::new(&[]);
    let open = |session, namespace: &str| Op::Open {
        session,
        ttl_ms: 1000,
        label: Arc::from(""),
        namespace: Arc::from(namespace),
        max_sessions: 2,
    };
    assert_eq!(rig.run(open(1, "a")), Reply::Opened { session: 1 });
    assert_eq!(rig.run(open(2, "a")), Reply::Opened { session: 2 });
    rig.machine = Machine::from_bytes(&rig.machine.to_bytes().unwrap()).unwrap();
    let full = Reply::Refused(Refusal::TooManySessions);
    assert_eq!(rig.run(open(3, "a")), full, "also after a snapshot");
    assert_eq!(rig.run(open(3, "b")), Reply::Opened { session: 3 });
    rig.run(Op::Close { session: 1 });
    assert_eq!(rig.run(open(4, "a")), Reply::Opened { session: 4 });
    let (session, epoch) = (2, rig.machine.epoch());
    rig.run(Op::Expire { session, epoch });
    assert_eq!(rig.run(open(5, "a")), Reply::Opened { session: 5 });
    assert_eq!(rig.run(open(6, "a")), full);
}

#[test]
fn the_bucket_map_changes_version_by_version() {
    let mut rig = Rig::new(&[]);
    let set = |expected, version, change: u32| {
        let mut map = BucketMap::even(4);
        (map.version, map.groups[7]) = (version, change);
        Op::SetMap {
            expected,
            map: StoredMap::V1(Arc::new(map)),
        }
    };
    let stale = |current| Reply::Refused(Refusal::StaleMap { current });
    assert_eq!(rig.machine.map(), None);
    assert_eq!(rig.run(set(0, 2, 1)), stale(0), "the first is version 1");
    assert_eq!(rig.run(set(0, 1, 1)), Reply::Done);
    assert_eq!(
        rig.run(set(0, 1, 2)),
        stale(1),
        "who comes second is refused"
    );
    assert_eq!(rig.run(set(1, 2, 2)), Reply::Done);
    let part = BucketMap {
        version: 3,
        groups: vec![0; 9],
    };
    let map = StoredMap::V1(Arc::new(part));
    assert_eq!(rig.run(Op::SetMap { expected: 2, map }), stale(2));
    let again = Machine::from_bytes(&rig.machine.to_bytes().unwrap()).unwrap();
    let map = again.map().unwrap();
    assert_eq!((map.version, map.groups[7]), (2, 2));
    assert_eq!(again.to_bytes(), rig.machine.to_bytes());
}
