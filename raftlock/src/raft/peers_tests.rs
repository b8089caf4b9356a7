#![allow(clippy::unwrap_used)]

use super::*;
use crate::wal::RealDir;

fn book(path: &std::path::Path, id: u64) -> PeerBook {
    flushed(path, id, 0)
}

/// A replica's book in a run that begins with this flush.
fn flushed(path: &std::path::Path, id: u64, sequence: u64) -> PeerBook {
    let dir = Arc::new(RealDir::open(path).unwrap());
    let stats = Arc::new(FlushStats::default());
    stats.set_sequence(sequence);
    let failed = watch::channel(None).0;
    PeerBook::open(id, 1..=3, "test", String::new(), dir, stats, failed).unwrap()
}

fn dirs<const COUNT: usize>() -> [tempfile::TempDir; COUNT] {
    std::array::from_fn(|_| tempfile::tempdir().unwrap())
}

fn is_rolled_back(admitted: Result<(), PeerError>) -> bool {
    matches!(admitted, Err(PeerError::RolledBack { .. }))
}

#[test]
fn a_late_greeting_is_no_sign_of_a_roll_back() {
    let [one, two] = dirs();
    let first = book(one.path(), 1);
    let second = flushed(two.path(), 2, 40);
    let late = second.hello(1, None);
    second.stats.set_sequence(50);
    first.admit(&second.hello(1, None)).unwrap();
    let why = first.admit(&late).unwrap_err();
    assert!(!why.to_string().contains("rolled back"), "{why}");
    drop(second);
    // In a run of its own, however it goes on.
    first
        .admit(&flushed(two.path(), 2, 51).hello(1, None))
        .unwrap();
    let again = flushed(two.path(), 2, 49);
    assert!(is_rolled_back(first.admit(&again.hello(1, None))));
}

#[test]
fn a_wiped_replica_is_refused_by_those_who_knew_it() {
    let [one, two, new, anew] = dirs();
    let first = book(one.path(), 1);
    let hello = book(two.path(), 2).hello(1, None);
    first.admit(&hello).unwrap();
    let second = flushed(new.path(), 2, 99);
    let wiped = second.hello(1, None);
    assert_eq!(first.admit(&wiped), Err(PeerError::Wiped { from: 2 }));
    drop(first);
    let first = book(one.path(), 1);
    assert_eq!(
        first.admit(&wiped),
        Err(PeerError::Wiped { from: 2 }),
        "remembered across a restart"
    );
    let stranger = Hello {
        cluster: 7,
        ..hello.clone()
    };
    let nobody = Hello { from: 4, ..hello };
    for hello in [stranger, nobody] {
        let refused = first.admit(&hello);
        assert!(matches!(refused, Err(PeerError::Stranger { .. })));
    }
    let of_old = first.told();
    // A replica that begins anew does not know it.
    let first = book(anew.path(), 1);
    first.admit(&wiped).unwrap();
    // What is still told of the old directory is nothing to the new one.
    first.learn(&of_old).unwrap();
    second.learn(&of_old).unwrap();
    first.admit(&second.hello(1, None)).unwrap();
    first.write_down().unwrap();
    drop((first, second));
    let first = book(anew.path(), 1);
    let rolled_back = flushed(new.path(), 2, 98).hello(1, None);
    assert!(
        is_rolled_back(first.admit(&rolled_back)),
        "remembered as well, if it was written down"
    );
}

#[test]
fn who_was_set_back_is_refused_also_once_it_is_as_far_again() {
    let [one, two] = dirs();
    let first = book(one.path(), 1);
    let second = flushed(two.path(), 2, 10);
    first.admit(&second.hello(1, None)).unwrap();
    first.acknowledged(2, second.run, 40);
    drop(second);
    let second = flushed(two.path(), 2, 39);
    first.acknowledged(2, second.run, 60);
    assert!(is_rolled_back(first.admit(&second.hello(1, None))));
    second.stats.set_sequence(60);
    assert!(is_rolled_back(first.admit(&second.hello(1, None))));
}

#[test]
fn what_one_heard_the_others_know() {
    let [one, two, three] = dirs();
    let (first, third) = (book(one.path(), 1), book(three.path(), 3));
    let second = flushed(two.path(), 2, 10);
    for other in [&first, &third] {
        other.admit(&second.hello(other.id, None)).unwrap();
    }
    first.acknowledged(2, second.run, 40);
    third.admit(&first.hello(3, None)).unwrap();
    drop(second);
    let second = flushed(two.path(), 2, 39);
    assert!(is_rolled_back(third.admit(&second.hello(3, None))));
    // Told by the answer, it does not go on, not even where it would not be noticed.
    let mut failed = second.failed.subscribe();
    let refused = third.hello(2, Some("rolled back".to_owned()));
    let own = PeerError::SetBack {
        seen: 40,
        began: 39,
    };
    assert_eq!(second.admit(&refused), Err(own.clone()));
    assert_eq!(*failed.borrow_and_update(), Some(own.to_string()));
    let stranger = book(dirs::<1>()[0].path(), 1);
    assert_eq!(second.admit(&stranger.hello(2, None)), Err(own.clone()));
    let dir = Arc::clone(&second.dir);
    let stats = Arc::new(FlushStats::default());
    stats.set_sequence(99);
    let failed = watch::channel(None).0;
    let again = PeerBook::open(2, 1..=3, "test", String::new(), dir, stats, failed);
    assert_eq!(again.err().unwrap().to_string(), own.to_string());
}

#[test]
fn a_restart_is_no_roll_back_whoever_tells_of_it_first() {
    let [one, two, three] = dirs();
    let (first, third) = (book(one.path(), 1), book(three.path(), 3));
    for (began, flushed_to) in [(10, 13), (13, 13), (13, 13), (13, 17), (20, 20)] {
        let second = flushed(two.path(), 2, began);
        let early = second.hello(3, None);
        first.admit(&second.hello(1, None)).unwrap();
        first.acknowledged(2, second.run, flushed_to);
        second.stats.set_sequence(flushed_to);
        third.learn(&first.told()).unwrap();
        // Before the first time the directory is unknown, and nothing told of it is taken.
        let greeted = third.admit(&early);
        assert!(greeted.is_ok() || greeted == Err(PeerError::Late { from: 2 }));
        third.admit(&second.hello(3, None)).unwrap();
        second.learn(&third.told()).unwrap();
        first.learn(&third.told()).unwrap();
    }
}
