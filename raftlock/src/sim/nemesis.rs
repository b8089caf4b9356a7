//! Faults, drawn from the seed: when, what, on whom and for how long. At most a few at a time; each run uses only some kinds.

use std::time::Duration;

use fencepost_history::Value;
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep_until};

use super::record::{self, map, word};
use super::session::TTL_MS;
use super::world::{FIRST_CLIENT, World};
use super::{CLIENTS, REPLICAS, net};

/// Faults in force at once.
const AT_ONCE: usize = 3;

/// A kind of fault, and what it needs to be undone.
#[derive(Debug, Clone)]
enum Fault {
    Kill(u64, bool),
    KillAll,
    KillClient(u16),
    Stop(u64),
    Isolate(u64),
    OneWay(u16, u16),
    Client(u16, u64),
    Slow(net::Shape),
    Pause(u16),
    Stall(u64, Duration),
    BreakDisk(u64),
    Wall(u64, i64),
    StepBack(u64, Duration),
}

impl Fault {
    fn kind(&self) -> &'static str {
        match self {
            Fault::Kill(..) | Fault::KillAll | Fault::KillClient(_) | Fault::Stop(_) => "kill",
            Fault::Isolate(_) | Fault::OneWay(..) | Fault::Client(..) => "cut",
            Fault::Slow(_) => "packets",
            Fault::Pause(_) => "pause",
            Fault::Stall(..) | Fault::BreakDisk(_) => "disk",
            Fault::Wall(..) | Fault::StepBack(..) => "clock",
        }
    }

    fn replicas(&self) -> Vec<u64> {
        match self {
            Fault::Kill(id, _) | Fault::Stop(id) | Fault::BreakDisk(id) => vec![*id],
            Fault::KillAll => (1..=REPLICAS).collect(),
            _ => Vec::new(),
        }
    }

    fn affects(&self, world: &World) -> Vec<String> {
        let worker = |machine: u16| match machine.checked_sub(FIRST_CLIENT) {
            Some(at) => format!("worker:{}", world.workers[usize::from(at)]),
            None => format!("node:{machine}"),
        };
        match self {
            Fault::Kill(id, _)
            | Fault::Stop(id)
            | Fault::Isolate(id)
            | Fault::Stall(id, _)
            | Fault::BreakDisk(id)
            | Fault::Wall(id, _)
            | Fault::StepBack(id, _) => vec![format!("node:{id}")],
            Fault::OneWay(from, to) => vec![worker(*from), worker(*to)],
            Fault::Client(machine, _) | Fault::Pause(machine) | Fault::KillClient(machine) => {
                vec![worker(*machine)]
            }
            Fault::Slow(_) => (FIRST_CLIENT..FIRST_CLIENT + CLIENTS as u16)
                .map(worker)
                .collect(),
            Fault::KillAll => (1..=REPLICAS).map(|id| format!("node:{id}")).collect(),
        }
    }
}

struct Running {
    number: u64,
    fault: Fault,
    affects: Vec<String>,
    until: Instant,
}

/// Draws and undoes faults.
pub struct Nemesis<'a> {
    world: &'a mut World,
    rng: &'a mut SmallRng,
    kinds: Vec<u32>,
    running: Vec<Running>,
    count: u64,
    usual: net::Shape,
}

const KINDS: u32 = 13;

impl<'a> Nemesis<'a> {
    /// Draws which kinds of fault the run has.
    pub fn new(world: &'a mut World, rng: &'a mut SmallRng) -> Self {
        let usual = net::Shape {
            delay: (200, rng.random_range(800..8_000)),
            lost: 0,
        };
        net::shape(usual);
        let kinds = (0..KINDS).filter(|_| rng.random_range(0..3) > 0).collect();
        Nemesis {
            world,
            rng,
            kinds,
            running: Vec::new(),
            count: 0,
            usual,
        }
    }

    /// Faults until `end`, all undone by then.
    pub async fn run(&mut self, end: Instant) {
        let mut next = Instant::now() + Duration::from_millis(self.rng.random_range(300..1200));
        loop {
            let undo = self.running.iter().map(|running| running.until).min();
            let wake = undo.map_or(next, |undo| undo.min(next)).min(end);
            sleep_until(wake).await;
            let now = Instant::now();
            while let Some(at) = self
                .running
                .iter()
                .position(|running| running.until <= now || now >= end)
            {
                let running = self.running.remove(at);
                self.undo(running);
            }
            if now >= end {
                return;
            }
            if now >= next {
                next = now + Duration::from_millis(self.rng.random_range(100..1500));
                if self.running.len() < AT_ONCE
                    && let Some(fault) = self.draw()
                {
                    self.inflict(fault);
                }
            }
        }
    }

    /// In the calm part a client dies, with all that it holds and waits for, and another takes its place.
    pub fn kill_client(&mut self) {
        let machine = FIRST_CLIENT + self.rng.random_range(0..CLIENTS) as u16;
        self.inflict(Fault::KillClient(machine));
    }

    fn draw(&mut self) -> Option<Fault> {
        if self.kinds.is_empty() {
            return None;
        }
        let kind = self.kinds[self.rng.random_range(0..self.kinds.len())];
        let one = self.rng.random_range(1..=REPLICAS);
        let other = (one + self.rng.random_range(0..REPLICAS - 1)) % REPLICAS + 1;
        let client = FIRST_CLIENT + self.rng.random_range(0..CLIENTS) as u16;
        let fault = match kind {
            0 => Fault::Kill(one, self.rng.random()),
            1 => Fault::KillAll,
            2 => Fault::Stop(one),
            3 => Fault::Isolate(one),
            4 if self.rng.random() => Fault::OneWay(one as u16, other as u16),
            4 if self.rng.random() => Fault::OneWay(one as u16, client),
            4 => Fault::OneWay(client, one as u16),
            5 => Fault::Client(client, one),
            6 => Fault::Slow(net::Shape {
                delay: (200, self.rng.random_range(5_000..80_000)),
                lost: self.rng.random_range(0..120),
            }),
            7 => Fault::Pause(if self.rng.random() {
                client
            } else {
                one as u16
            }),
            8 => Fault::Stall(one, Duration::from_millis(self.rng.random_range(20..1500))),
            9 => Fault::BreakDisk(one),
            10 => Fault::KillClient(client),
            11 => Fault::Wall(one, self.rng.random_range(-100_000..100_000)),
            _ => Fault::StepBack(one, Duration::from_millis(self.rng.random_range(1..1500))),
        };
        let taken = fault.replicas();
        let collides = |running: &Running| {
            std::mem::discriminant(&running.fault) == std::mem::discriminant(&fault)
                || running.fault.replicas().iter().any(|id| taken.contains(id))
                || matches!(running.fault, Fault::Pause(machine) if taken.contains(&u64::from(machine)))
        };
        (!self.running.iter().any(collides)).then_some(fault)
    }

    fn inflict(&mut self, fault: Fault) {
        self.count += 1;
        let length = match self.rng.random_range(0..4) {
            // Until its session surely has run out.
            _ if matches!(fault, Fault::KillClient(_)) => 4 * TTL_MS,
            0 => self.rng.random_range(20..300),
            3 => self.rng.random_range(2000..4500),
            _ => self.rng.random_range(300..2500),
        };
        let affects = fault.affects(self.world);
        let running = Running {
            number: self.count,
            affects,
            fault,
            until: Instant::now() + Duration::from_millis(length),
        };
        tell(&running, "install", "started");
        self.begin(&running.fault.clone());
        tell(&running, "install", "installed");
        self.running.push(running);
    }

    fn begin(&mut self, fault: &Fault) {
        match *fault {
            Fault::Kill(id, dark) => self.world.kill_replica(id, dark, self.rng),
            Fault::KillAll => {
                (1..=REPLICAS).for_each(|id| self.world.kill_replica(id, true, self.rng))
            }
            Fault::KillClient(machine) => self.world.replace_client(machine, self.rng),
            Fault::Stop(id) => self.world.stop_replica(id),
            Fault::Isolate(id) => links(id).into_iter().for_each(|(a, b)| net::cut(a, b)),
            Fault::OneWay(from, to) => net::cut(from, to),
            Fault::Client(machine, id) => {
                net::cut(machine, id as u16);
                net::cut(id as u16, machine);
            }
            Fault::Slow(shape) => net::shape(shape),
            Fault::Pause(machine) => self.world.pause(machine, true),
            Fault::Stall(id, by) => self.world.stall_disk(id, by),
            Fault::BreakDisk(id) => self.world.break_disk(id),
            Fault::Wall(id, ms) => self.world.step_wall(id, ms),
            Fault::StepBack(id, by) => self.world.step_back(id, by),
        }
    }

    fn undo(&mut self, running: Running) {
        tell(&running, "heal", "started");
        match running.fault {
            Fault::Kill(id, _) => self.world.start_replica(id),
            Fault::KillAll => (1..=REPLICAS).for_each(|id| self.world.start_replica(id)),
            Fault::Stop(id) | Fault::BreakDisk(id) => {
                let dark = self.rng.random();
                self.world.kill_replica(id, dark, self.rng);
                self.world.start_replica(id);
            }
            Fault::Isolate(id) => links(id).into_iter().for_each(|(a, b)| net::mend(a, b)),
            Fault::OneWay(from, to) => net::mend(from, to),
            Fault::Client(machine, id) => {
                net::mend(machine, id as u16);
                net::mend(id as u16, machine);
            }
            Fault::Slow(_) => net::shape(self.usual),
            Fault::Pause(machine) => self.world.pause(machine, false),
            Fault::Stall(id, _) => self.world.stall_disk(id, Duration::ZERO),
            // A monotonic clock that is set forward may end leases early.
            Fault::KillClient(_) | Fault::Wall(..) | Fault::StepBack(..) => {}
        }
        tell(&running, "heal", "healed");
    }
}

/// Both directions of a replica's links to the others.
fn links(id: u64) -> Vec<(u16, u16)> {
    let others = (1..=REPLICAS).filter(|other| *other != id);
    others
        .flat_map(|other| [(id as u16, other as u16), (other as u16, id as u16)])
        .collect()
}

fn tell(running: &Running, action: &str, status: &str) {
    let words = |list: &[String]| Value::List(list.iter().map(|text| word(text)).collect());
    record::note(
        "nemesis",
        "fault",
        None,
        map([
            ("id", word(&format!("f{}", running.number))),
            ("fault", word(&format!("{:?}", running.fault))),
            ("kind", word(running.fault.kind())),
            ("action", word(action)),
            ("targets", words(&running.affects)),
            ("affects", words(&running.affects)),
            ("status", word(status)),
        ]),
    );
}

/// The run's part that begins now.
pub fn phase(name: &str) {
    record::note("controller", "phase", None, map([("phase", word(name))]));
}
