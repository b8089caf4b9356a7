//! Acquires given up by their clients.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::tests::{Rig, token};
use super::*;

fn withdraw(rig: &mut Rig, ask: &Acquire) -> Reply {
    rig.run(Op::Withdraw(Withdrawal {
        session: ask.session,
        request: ask.request,
        name: Arc::clone(&ask.name),
    }))
}

const REFUSED: Reply = Reply::Refused(Refusal::Withdrawn);
const NOTHING: Reply = Reply::Withdrawn(Undone::Nothing);

#[test]
fn a_waiter_leaves_the_queue_and_those_behind_it_move_up() {
    let mut rig = Rig::new(&[1, 2, 3, 4]);
    let reader = token(rig.take(1, "a", Mode::Shared, 0));
    let writer = rig.ask(2, "a", Mode::Exclusive, 9000);
    rig.run(Op::Acquire(writer.clone()));
    rig.take(3, "a", Mode::Shared, 9000);
    rig.effects.clear();
    let left = Reply::Withdrawn(Undone::Wait);
    assert_eq!(withdraw(&mut rig, &writer), left);
    // The writer was all that kept the second reader out.
    assert_eq!(rig.woken()[0].0, 3);
    assert_eq!(rig.machine.counts().waiting, 0);
    assert_eq!(
        withdraw(&mut rig, &writer),
        left,
        "the same answer as before"
    );
    assert_eq!(rig.run(Op::Acquire(writer.clone())), REFUSED);
    assert!(rig.machine.token_is_current("a", reader));
}

#[test]
fn a_grant_is_given_back_once_and_only_by_its_own_request() {
    let mut rig = Rig::new(&[1, 2]);
    let ask = rig.ask(1, "a", Mode::Exclusive, 0);
    let held = token(rig.run(Op::Acquire(ask.clone())));
    rig.take(2, "a", Mode::Exclusive, 9000);
    rig.effects.clear();
    let of_another = Acquire {
        session: 2,
        ..ask.clone()
    };
    assert_eq!(withdraw(&mut rig, &of_another), NOTHING);
    let elsewhere = Acquire {
        name: Arc::from("b"),
        ..ask.clone()
    };
    assert_eq!(
        withdraw(&mut rig, &elsewhere),
        Reply::Refused(Refusal::RequestReused)
    );
    assert!(rig.machine.token_is_current("a", held));
    let given = Reply::Withdrawn(Undone::Grant(held));
    assert_eq!(withdraw(&mut rig, &ask), given);
    let next = rig.woken();
    assert_eq!((next.len(), next[0].0), (1, 2));
    assert_eq!(withdraw(&mut rig, &ask), given);
    assert!(
        rig.machine.token_is_current("a", next[0].1),
        "the next holder's grant is not touched"
    );
}

/// The withdrawal overtakes the acquire.
#[test]
fn an_acquire_that_comes_late_is_refused() {
    let mut rig = Rig::new(&[1]);
    let ask = rig.ask(1, "a", Mode::Exclusive, 9000);
    assert_eq!(withdraw(&mut rig, &ask), NOTHING);
    let mut back = Rig::new(&[]);
    back.machine = Machine::from_bytes(&rig.machine.to_bytes().unwrap()).unwrap();
    assert_eq!(rig.run(Op::Acquire(ask.clone())), REFUSED);
    assert_eq!(back.run(Op::Acquire(ask)), REFUSED, "after a snapshot");
    assert!(rig.machine.lock("a").is_none());
}

#[test]
fn a_reentrant_acquire_takes_back_its_own_count() {
    let mut rig = Rig::new(&[1]);
    let mut asks = [(); 2].map(|()| rig.ask(1, "a", Mode::Exclusive, 0));
    for ask in &mut asks {
        ask.owner = Some(Arc::from("me"));
    }
    let held = token(rig.run(Op::Acquire(asks[0].clone())));
    rig.run(Op::Acquire(asks[1].clone()));
    let given = Reply::Withdrawn(Undone::Grant(held));
    assert_eq!(withdraw(&mut rig, &asks[0]), given);
    assert!(rig.machine.token_is_current("a", held));
    assert_eq!(rig.run(Op::Acquire(asks[0].clone())), REFUSED);
    assert_eq!(withdraw(&mut rig, &asks[1]), given);
    assert!(rig.machine.lock("a").is_none());
    let gone = Acquire {
        session: 9,
        ..asks[0].clone()
    };
    assert_eq!(
        withdraw(&mut rig, &gone),
        Reply::Refused(Refusal::SessionUnknown)
    );
}
