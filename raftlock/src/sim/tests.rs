#![cfg(test)]
#![allow(clippy::unwrap_used)]

use super::*;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Runs seeds until one fails.
fn seeds(first: u64, count: u64, flaw: Option<Flaw>) -> Result<Summary, String> {
    let mut total = Summary::default();
    for seed in first..first + count {
        let run = Run::of(seed, flaw);
        if let Some(file) = std::env::var_os("FENCEPOST_HISTORY") {
            std::fs::write(file, record::text(&run.events)).unwrap();
        }
        let summary = run.judge().map_err(|broken| {
            format!(
                "seed {seed}: {broken}\nrepeat: FENCEPOST_FIRST_SEED={seed} FENCEPOST_SEEDS=1 cargo test -p raftlock --lib sim::tests::seeds_hold -- --nocapture"
            )
        })?;
        total.add(&summary);
    }
    Ok(total)
}

/// docs/raftlock.md says how to run more.
#[test]
fn seeds_hold() {
    let begun = std::time::Instant::now();
    let (first, count) = (
        number("FENCEPOST_FIRST_SEED", 1),
        number("FENCEPOST_SEEDS", 100),
    );
    let total = seeds(first, count, None).unwrap_or_else(|broken| panic!("{broken}"));
    println!("{count} seeds in {:?}: {total:?}", begun.elapsed());
    for check in [
        "double-holder.service",
        "fence-monotonic",
        "owner-only",
        "fair",
        "freed-in-time",
        "linearizable",
        "available",
    ] {
        let exercised = total.exercised[check];
        assert!(
            count < 20 || exercised > count / 2,
            "{check} had little to look at: {exercised} in {count} seeds"
        );
    }
}

#[test]
fn a_seed_gives_the_same_history() {
    for seed in [7, 18, 1_000_003] {
        let first = record::text(&Run::of(seed, None).events);
        let second = record::text(&Run::of(seed, None).events);
        let same = first
            .iter()
            .zip(&second)
            .take_while(|(left, right)| left == right);
        let lines = same.filter(|(left, _)| **left == b'\n').count();
        assert!(
            first == second,
            "seed {seed}: they differ after {lines} lines"
        );
    }
}

/// Seeds within which a seeded bug must show.
const FLAW_SEEDS: u64 = 300;

/// The first seed whose run shows a bug, as `look` sees it.
fn is_found(flaw: Flaw, look: fn(&Run) -> Option<String>) {
    let found = (1..=number("FENCEPOST_FLAW_SEEDS", FLAW_SEEDS))
        .find_map(|seed| Some((seed, look(&Run::of(seed, Some(flaw)))?)));
    match found {
        Some((seed, broken)) => println!("{flaw:?}: seed {seed}: {broken}"),
        None => panic!("{flaw:?} was not found: the simulation does not look there"),
    }
}

macro_rules! found {
    ($($test:ident: $flaw:ident,)*) => {
        $(#[test] fn $test() { is_found(Flaw::$flaw, |run| run.judge().err()); })*
    };
}

found! {
    flaw_skip_sync: SkipSync,
    flaw_keepalive_without_quorum: KeepaliveWithoutQuorum,
    flaw_no_extension: NoExtension,
    flaw_token_from_memory: TokenFromMemory,
    flaw_release_by_anyone: ReleaseByAnyone,
    flaw_grant_to_dead: GrantToDead,
    flaw_clock_in_apply: ClockInApply,
    flaw_no_dedup: NoDedup,
    flaw_snapshot_without_sessions: SnapshotWithoutSessions,
}

/// By the votes themselves; that openraft stops over its log is another matter.
#[test]
fn flaw_forget_vote() {
    is_found(Flaw::ForgetVote, |run| {
        let of_votes = |broken: &&String| broken.contains(votes::BROKEN);
        run.broken.iter().find(of_votes).cloned()
    });
}
