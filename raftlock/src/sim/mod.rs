//! The whole service in one thread under a seed: Raft, log, machine, timers and client protocol are the real ones; time
//! is tokio's paused clock, which jumps to whatever is due next; network, disks, clocks and randomness are simulated.
//!
//! A run has three replicas and a few clients. While the clients take and give back locks, replicas are killed, stopped
//! and paused, lose unsynced writes or their disks, links are cut and slowed, clocks differ and jump. Then all is mended and the
//! service must recover. The history is judged by the checks of the harness. The same seed gives the same history, byte for byte.
//!
//! docs/raftlock.md has the commands.

mod client;
mod disk;
mod judge;
mod leads;
mod maps;
mod nemesis;
mod net;
mod node;
pub mod process;
mod record;
mod session;
mod tests;
mod votes;
pub mod watch;
mod wire;
mod world;

use std::time::Duration;

use fencepost_history::Event;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use self::judge::Summary;
use self::nemesis::{Nemesis, phase};
use self::world::World;
use crate::chance;
use crate::flaw::{self, Flaw};

const REPLICAS: u64 = 3;
const CLIENTS: u64 = 4;
const LOCKS: u64 = 2;
const CLIENT_PORT: u16 = 70;
const PEER_PORT: u16 = 71;
/// Simulated time with faults, and afterwards without.
const FAULTS: Duration = Duration::from_secs(8);
const CALM: Duration = Duration::from_secs(6);

/// What a run's locks are like.
#[derive(Debug, Clone, Copy)]
struct Shape {
    mode: &'static str,
    permits: u64,
    lock_delay: Duration,
}

impl Shape {
    fn draw(rng: &mut SmallRng) -> Self {
        Shape {
            mode: [
                "exclusive",
                "exclusive",
                "exclusive",
                "exclusive",
                "shared",
                "semaphore",
            ][rng.random_range(0..6)],
            permits: 2,
            lock_delay: Duration::from_millis([0, 0, 0, 300][rng.random_range(0..4)]),
        }
    }
}

/// One run: its history, and what clients saw broken.
struct Run {
    shape: Shape,
    events: Vec<Event>,
    broken: Vec<String>,
}

impl Run {
    fn of(seed: u64, flaw: Option<Flaw>) -> Run {
        chance::seed(seed);
        flaw::seed(flaw);
        net::reset();
        client::reset();
        leads::reset();
        votes::reset();
        maps::reset();
        let mut rng = SmallRng::seed_from_u64(seed);
        let shape = Shape::draw(&mut rng);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("invariant: a runtime without I/O needs nothing of the system");
        runtime.block_on(simulate(shape, &mut rng));
        drop(runtime);
        flaw::seed(None);
        let (events, broken) = record::end();
        Run {
            shape,
            events,
            broken,
        }
    }

    fn judge(&self) -> Result<Summary, String> {
        judge::judge(&self.shape, &self.events, &self.broken)
    }
}

async fn simulate(shape: Shape, rng: &mut SmallRng) {
    let start = tokio::time::Instant::now();
    record::begin(start);
    phase("load");
    let mut world = World::new(shape, rng);
    let calm = world.calm.clone();
    let mut nemesis = Nemesis::new(&mut world, rng);
    nemesis.run(start + FAULTS).await;
    phase("faults-end");
    let _ = calm.send_replace(true);
    sleep(CALM / 6).await;
    phase("healed");
    nemesis.kill_client();
    sleep(CALM / 6).await;
    nemesis.kill_client();
    sleep(CALM * 2 / 3).await;
    phase("end");
    maps::end();
    world.end();
}
