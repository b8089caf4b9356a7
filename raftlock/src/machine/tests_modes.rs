#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::tests::{Rig, token};
use super::*;

#[test]
fn readers_share_and_queue_behind_a_waiting_writer() {
    let mut rig = Rig::new(&[1, 2, 3, 4]);
    let one = token(rig.take(1, "a", Mode::Shared, 0));
    let two = token(rig.take(2, "a", Mode::Shared, 0));
    assert_ne!(one, two);
    assert!(matches!(
        rig.take(3, "a", Mode::Exclusive, 100),
        Reply::Queued { ahead: 0 }
    ));
    assert_eq!(
        rig.take(4, "a", Mode::Shared, 0),
        Reply::Refused(Refusal::Busy)
    );
    assert!(matches!(
        rig.take(4, "a", Mode::Shared, 100),
        Reply::Queued { ahead: 1 }
    ));
    rig.give(1, "a", one);
    assert!(rig.woken().is_empty());
    rig.give(2, "a", two);
    let writer = rig.woken();
    assert_eq!(writer.len(), 1);
    assert_eq!(writer[0].0, 3);
    rig.give(3, "a", writer[0].1);
    assert_eq!(rig.woken()[0].0, 4);
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let mut rig = Rig::new(&[1, 2, 3]);
    rig.take(1, "a", Mode::Shared, 0);
    let writer = rig.ask(2, "a", Mode::Exclusive, 100);
    rig.run(Op::Acquire(writer.clone()));
    rig.take(3, "a", Mode::Shared, 100);
    rig.effects.clear();
    assert_eq!(
        rig.run(Op::Cancel {
            session: 2,
            request: writer.request
        }),
        Reply::Done
    );
    assert_eq!(rig.woken()[0].0, 3);
}

#[test]
fn a_semaphore_has_its_capacity_and_no_more() {
    let mut rig = Rig::new(&[1, 2, 3]);
    let first = token(rig.take(1, "s", Mode::Semaphore(2), 0));
    token(rig.take(2, "s", Mode::Semaphore(2), 0));
    assert_eq!(
        rig.take(3, "s", Mode::Semaphore(2), 0),
        Reply::Refused(Refusal::Busy)
    );
    assert_eq!(
        rig.take(3, "s", Mode::Semaphore(3), 0),
        Reply::Refused(Refusal::ModeMismatch)
    );
    rig.take(3, "s", Mode::Semaphore(2), 100);
    rig.give(1, "s", first);
    assert_eq!(rig.woken()[0].0, 3);
}

#[test]
fn reentrancy_is_opt_in_and_counted() {
    let mut rig = Rig::new(&[1, 2]);
    let mut ask = rig.ask(1, "a", Mode::Exclusive, 0);
    ask.owner = Some(Arc::from("thread-1"));
    let held = token(rig.run(Op::Acquire(ask.clone())));
    ask.request = 1;
    assert_eq!(
        rig.run(Op::Acquire(ask.clone())),
        Reply::Granted {
            token: held,
            count: 2
        }
    );
    ask.request = 2;
    ask.owner = Some(Arc::from("thread-2"));
    assert_eq!(rig.run(Op::Acquire(ask)), Reply::Refused(Refusal::Busy));
    assert_eq!(
        rig.take(1, "a", Mode::Exclusive, 0),
        Reply::Refused(Refusal::Busy)
    );
    assert_eq!(rig.give(1, "a", held), Reply::Released { remaining: 1 });
    assert_eq!(
        rig.take(2, "a", Mode::Exclusive, 0),
        Reply::Refused(Refusal::Busy)
    );
    assert_eq!(rig.give(1, "a", held), Reply::Released { remaining: 0 });
    token(rig.take(2, "a", Mode::Exclusive, 0));
}

#[test]
fn lock_delay_only_after_a_failure() {
    let mut rig = Rig::new(&[1, 2]);
    let mut ask = rig.ask(1, "a", Mode::Exclusive, 0);
    ask.delay_ms = 50;
    let held = token(rig.run(Op::Acquire(ask.clone())));
    rig.give(1, "a", held);
    assert!(rig.machine.lock("a").is_none());
    ask.request = 2;
    let held = token(rig.run(Op::Acquire(ask)));
    rig.run(Op::Expire {
        session: 1,
        epoch: 0,
    });
    assert_eq!(rig.machine.delayed().collect::<Vec<_>>(), [(held, 50)]);
    assert_eq!(
        rig.take(2, "a", Mode::Exclusive, 0),
        Reply::Refused(Refusal::Delayed)
    );
    rig.take(2, "a", Mode::Exclusive, 100);
    rig.effects.clear();
    rig.run(Op::EndDelay { token: held });
    assert_eq!(rig.woken()[0].0, 2);
}

#[test]
fn a_closing_session_never_hands_its_lock_to_its_own_wait() {
    let mut rig = Rig::new(&[1, 2]);
    token(rig.take(1, "a", Mode::Exclusive, 0));
    rig.take(1, "a", Mode::Exclusive, 100);
    rig.take(2, "a", Mode::Exclusive, 100);
    rig.effects.clear();
    assert_eq!(
        rig.run(Op::Close { session: 1 }),
        Reply::Ended { released: 1 }
    );
    let woken = rig.woken();
    assert_eq!(woken.len(), 1);
    assert_eq!(woken[0].0, 2);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let mut rig = Rig::new(&[1, 2, 3]);
    token(rig.take(1, "a", Mode::Exclusive, 0));
    rig.take(2, "a", Mode::Exclusive, 100);
    let mut ask = rig.ask(3, "a", Mode::Exclusive, 100);
    ask.max_waiters = 1;
    assert_eq!(
        rig.run(Op::Acquire(ask)),
        Reply::Refused(Refusal::QueueFull)
    );
}
