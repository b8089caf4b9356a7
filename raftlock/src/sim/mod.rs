//! The whole service in one thread under a seed: network by turmoil, disks and randomness of ours.
//!
//! A run has three replicas and a few clients. While the clients take and give back locks, replicas crash (unsynced
//! writes are lost or torn), links are cut and mended, clocks run at different rates, and snapshots are
//! taken. What the clients were told is judged afterwards.
//!
//! `SIM_SEEDS=10000 cargo test --release -p raftlock --lib sim::many_seeds -- --ignored --nocapture` runs as many seeds as you like;
//! `SIM_FIRST=7 SIM_SEEDS=1 …` repeats one.

mod client;
mod disk;
mod history;
mod net;
mod node;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use self::disk::SimDir;
use self::history::History;
use crate::chance;
use crate::flaw::{self, Flaw};

const REPLICAS: u64 = 3;
const CLIENTS: u64 = 5;
const LOCKS: u64 = 3;
/// Simulated time with faults, and afterwards without.
const FAULTS: Duration = Duration::from_secs(20);
const CALM: Duration = Duration::from_secs(12);

fn replica(id: u64) -> String {
    format!("replica-{id}")
}

/// Runs one seed; `Err` says what promise was broken.
fn run(seed: u64, flaw: Option<Flaw>) -> Result<history::Summary, String> {
    chance::seed(seed);
    flaw::seed(flaw);
    let outcome = simulate(seed);
    flaw::seed(None);
    outcome
}

fn simulate(seed: u64) -> Result<history::Summary, String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut sim = turmoil::Builder::new()
        .simulation_duration(Duration::from_secs(120))
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_micros(200))
        .max_message_latency(Duration::from_millis(rng.random_range(2..20)))
        .tcp_capacity(1 << 20)
        .rng_seed(seed)
        .build();
    let disks: Vec<Arc<SimDir>> = (0..REPLICAS).map(|_| Arc::new(SimDir::default())).collect();
    for id in 1..=REPLICAS {
        let disk = Arc::clone(&disks[id as usize - 1]);
        sim.host(replica(id), move || node::run(id, Arc::clone(&disk)));
    }
    let history = Arc::new(Mutex::new(History::default()));
    for id in 1..=CLIENTS {
        let history = Arc::clone(&history);
        let drift = 1.0 + f64::from(rng.random_range(-10..=10)) / 1000.0;
        sim.client(
            format!("client-{id}"),
            client::run(id, history, FAULTS + CALM, drift),
        );
    }
    let mut nemesis = Nemesis {
        down: None,
        cut: Vec::new(),
        next: Duration::from_secs(2),
    };
    loop {
        let done = sim
            .step()
            .map_err(|error| format!("the simulation failed: {error}"))?;
        if done {
            break;
        }
        nemesis.act(&mut sim, &disks, &mut rng);
    }
    drop(sim);
    let history = history.lock().map_err(|_| "a client panicked")?;
    history.judge(FAULTS)
}

/// Crashes and partitions, drawn from the seed.
struct Nemesis {
    down: Option<u64>,
    cut: Vec<(String, String)>,
    next: Duration,
}

impl Nemesis {
    fn act(&mut self, sim: &mut turmoil::Sim<'_>, disks: &[Arc<SimDir>], rng: &mut SmallRng) {
        let now = sim.elapsed();
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(rng.random_range(200..2500));
        if now >= FAULTS {
            self.heal(sim);
            self.next = Duration::MAX;
            return;
        }
        match rng.random_range(0..10) {
            0..=2 => self.crash_or_start(sim, disks, rng),
            3..=5 => {
                let one = rng.random_range(1..=REPLICAS);
                for other in (1..=REPLICAS).filter(|other| *other != one) {
                    self.cut(sim, replica(one), replica(other));
                }
            }
            6 => {
                let (client, one) = (
                    rng.random_range(1..=CLIENTS),
                    rng.random_range(1..=REPLICAS),
                );
                self.cut(sim, format!("client-{client}"), replica(one));
            }
            7 => {
                // All at once, as in a power cut.
                for id in 1..=REPLICAS {
                    if self.down != Some(id) {
                        sim.crash(replica(id));
                        disks[id as usize - 1].crash(rng);
                    }
                }
                for id in 1..=REPLICAS {
                    sim.bounce(replica(id));
                }
                self.down = None;
            }
            _ => self.heal(sim),
        }
    }

    fn crash_or_start(
        &mut self,
        sim: &mut turmoil::Sim<'_>,
        disks: &[Arc<SimDir>],
        rng: &mut SmallRng,
    ) {
        match self.down.take() {
            Some(id) => sim.bounce(replica(id)),
            None => {
                let id = rng.random_range(1..=REPLICAS);
                sim.crash(replica(id));
                disks[id as usize - 1].crash(rng);
                self.down = Some(id);
            }
        }
    }

    fn cut(&mut self, sim: &turmoil::Sim<'_>, a: String, b: String) {
        sim.partition(a.as_str(), b.as_str());
        self.cut.push((a, b));
    }

    fn heal(&mut self, sim: &mut turmoil::Sim<'_>) {
        for (a, b) in self.cut.drain(..) {
            sim.repair(a.as_str(), b.as_str());
        }
        if let Some(id) = self.down.take() {
            sim.bounce(replica(id));
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
#[ignore = "for release builds; see the module"]
fn many_seeds() {
    let first = number("SIM_FIRST", 1);
    let mut total = history::Summary::default();
    for seed in first..first + number("SIM_SEEDS", 4) {
        match run(seed, None) {
            Ok(summary) => total.add(&summary),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    println!("{total:?}");
    assert!(
        total.grants > 0 && total.releases > 0,
        "the simulation must do something: {total:?}"
    );
}

#[test]
#[ignore = "for release builds; see the module"]
fn one_seed_twice_is_the_same_run() {
    let seed = number("SIM_SEED", 3);
    assert_eq!(run(seed, None), run(seed, None));
}

/// Each seeded bug must be seen within a few seeds.
#[test]
#[ignore = "for release builds; see the module"]
fn seeded_bugs_are_found() {
    let seeds = number("SIM_FLAW_SEEDS", 12);
    let flaws = [
        Flaw::SkipSync,
        Flaw::ForgetVote,
        Flaw::KeepaliveWithoutQuorum,
        Flaw::NoExtension,
        Flaw::TokenFromMemory,
        Flaw::ReleaseByAnyone,
        Flaw::GrantToDead,
        Flaw::AdmitSecond,
        Flaw::NoDedup,
        Flaw::KeepOnExpiry,
    ];
    let mut missed = Vec::new();
    for flaw in flaws {
        match (1..=seeds).find_map(|seed| run(seed, Some(flaw)).err().map(|broken| (seed, broken)))
        {
            Some((seed, broken)) => println!("{flaw:?}: seed {seed}: {broken}"),
            None => missed.push(flaw),
        }
    }
    assert!(missed.is_empty(), "not found in {seeds} seeds: {missed:?}");
}
