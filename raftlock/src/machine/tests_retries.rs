//! Requests asked again, and request ids used again.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::tests::{Rig, token};
use super::*;

fn release(request: RequestId, name: &str, token: Token) -> Release {
    Release {
        session: 1,
        request,
        epoch: None,
        name: Arc::from(name),
        token,
    }
}

const REUSED: Reply = Reply::Refused(Refusal::RequestReused);

#[test]
fn an_answer_is_told_for_its_own_lock_only() {
    let mut rig = Rig::new(&[1]);
    let first = rig.ask(1, "a", Mode::Exclusive, 0);
    let a = token(rig.run(Op::Acquire(first.clone())));
    let of_another = Acquire {
        name: Arc::from("b"),
        ..first.clone()
    };
    assert_eq!(rig.run(Op::Acquire(of_another.clone())), REUSED);
    let b = token(rig.take(1, "b", Mode::Exclusive, 0));
    let done = Reply::Released { remaining: 0 };
    assert_eq!(rig.run(Op::Release(release(5, "a", a))), done);
    assert_eq!(rig.run(Op::Release(release(5, "b", b))), REUSED);
    assert_eq!(rig.run(Op::Release(release(5, "a", b))), REUSED);
    assert_eq!(rig.run(Op::Release(release(5, "a", a))), done);
    assert!(rig.machine.token_is_current("b", b));
    assert_eq!(rig.run(Op::Acquire(of_another)), REUSED);
}

/// A session of many tasks: far more than is remembered succeeds before one asks again.
#[test]
fn a_grant_is_told_again_as_long_as_it_is_held() {
    let mut rig = Rig::new(&[1, 2]);
    let ask = rig.ask(1, "a", Mode::Exclusive, 100);
    let first = rig.run(Op::Acquire(ask.clone()));
    let held = token(rig.take(2, "w", Mode::Exclusive, 0));
    let wait = rig.ask(1, "w", Mode::Exclusive, 100);
    rig.run(Op::Acquire(wait.clone()));
    rig.give(2, "w", held);
    let woken = rig.woken()[0].1;
    for number in 0..300 {
        let name = format!("n{number}");
        let other = token(rig.take(1, &name, Mode::Exclusive, 0));
        rig.give(1, &name, other);
    }
    let mut back = Rig::new(&[]);
    back.machine = Machine::from_bytes(&rig.machine.to_bytes().unwrap()).unwrap();
    back.index = rig.index;
    for rig in [&mut rig, &mut back] {
        assert_eq!(rig.run(Op::Acquire(ask.clone())), first);
        assert_eq!(token(rig.run(Op::Acquire(wait.clone()))), woken);
        let of_another = Acquire {
            name: Arc::from("b"),
            ..ask.clone()
        };
        assert_eq!(rig.run(Op::Acquire(of_another)), REUSED);
        let reused = release(ask.request, "a", token(first));
        assert_eq!(rig.run(Op::Release(reused)), REUSED);
        assert_eq!(rig.machine.counts().waiting, 0);
    }
}

/// A restored cluster counts its terms anew.
#[test]
fn an_epoch_of_another_history_is_refused() {
    let mut rig = Rig::new(&[1]);
    rig.run(Op::Lead { term: 2 });
    for (epoch, fits) in [(1, false), (2, true), (57, false)] {
        let ask = rig.ask(1, &format!("n{epoch}"), Mode::Exclusive, 0);
        let ask = Acquire {
            epoch: Some(epoch),
            ..ask
        };
        let granted = rig.run(Op::Acquire(ask));
        assert_eq!(
            matches!(granted, Reply::Granted { .. }),
            fits,
            "{granted:?}"
        );
    }
    let held = token(rig.take(1, "a", Mode::Exclusive, 0));
    let stale = Release {
        epoch: Some(57),
        ..release(5, "a", held)
    };
    let refused = Reply::Refused(Refusal::StaleEpoch { current: 2 });
    assert_eq!(rig.run(Op::Release(stale)), refused);
}
