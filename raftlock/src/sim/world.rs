//! The machines of a run: replicas that are started, killed, paused and stopped, and clients.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::disk::SimDisk;
use super::process::{Clock, Process};
use super::record::{self, map, word};
use super::{CLIENTS, REPLICAS, Shape, client, net, node};

/// Number of the first client's machine.
pub const FIRST_CLIENT: u16 = 11;

struct Replica {
    disk: SimDisk,
    clock: Clock,
    stall: watch::Sender<Duration>,
    process: Option<Arc<Process>>,
    stop: Option<oneshot::Sender<()>>,
    /// It was told to fail, or its disk was.
    doomed: Arc<Mutex<bool>>,
}

/// All machines.
pub struct World {
    pub start: Instant,
    shape: Shape,
    replicas: Vec<Replica>,
    clients: Vec<Arc<Process>>,
    /// The worker that each client's machine runs.
    pub workers: Vec<u32>,
    pub calm: watch::Sender<bool>,
    next_worker: u32,
}

impl World {
    /// Starts everything.
    pub fn new(shape: Shape, rng: &mut SmallRng) -> Self {
        let start = Instant::now();
        let mut clock = || Clock {
            rate: 1.0 + f64::from(rng.random_range(-9..=9_i32)) / 1000.0,
            wall_ms: rng.random_range(0..1 << 40),
            behind: Duration::ZERO,
        };
        let replicas = (0..REPLICAS)
            .map(|_| Replica {
                disk: SimDisk::default(),
                clock: clock(),
                stall: watch::channel(Duration::ZERO).0,
                process: None,
                stop: None,
                doomed: Arc::default(),
            })
            .collect();
        let clocks: Vec<Clock> = (0..CLIENTS).map(|_| clock()).collect();
        let mut world = World {
            start,
            shape,
            replicas,
            clients: Vec::new(),
            workers: Vec::new(),
            calm: watch::channel(false).0,
            next_worker: 0,
        };
        (1..=REPLICAS).for_each(|id| world.start_replica(id));
        for clock in clocks {
            let machine = FIRST_CLIENT + world.clients.len() as u16;
            world.workers.push(world.next_worker);
            let process = world.start_client(machine, clock);
            world.clients.push(process);
        }
        world
    }

    fn start_client(&mut self, machine: u16, clock: Clock) -> Arc<Process> {
        let worker = self.next_worker;
        self.next_worker += 1;
        let process = Process::new(machine, self.start, clock);
        let node = u64::from(worker) % REPLICAS + 1;
        process.spawn(client::run(worker, node, self.shape, self.calm.subscribe()));
        process
    }

    fn replica(&mut self, id: u64) -> &mut Replica {
        &mut self.replicas[id as usize - 1]
    }

    /// Starts a replica on what its disk has.
    pub fn start_replica(&mut self, id: u64) {
        let (start, lock_delay) = (self.start, self.shape.lock_delay);
        let calm = self.calm.subscribe();
        net::dark(id as u16, false);
        let replica = self.replica(id);
        let process = Process::new(id as u16, start, replica.clock);
        let (stop, stopped) = oneshot::channel();
        let setup = node::Setup {
            id,
            disk: replica.disk.clone(),
            lock_delay,
            stall: replica.stall.subscribe(),
            calm,
        };
        *replica
            .doomed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = false;
        let doomed = Arc::clone(&replica.doomed);
        process.spawn(async move {
            let ended = node::run(setup, stopped).await;
            if let Err(error) = ended
                && !*doomed.lock().unwrap_or_else(PoisonError::into_inner)
            {
                record::broken(format!("replica {id} stopped by itself: {error}"));
            }
        });
        replica.process = Some(process);
        replica.stop = Some(stop);
    }

    /// Ends a replica at once; with `dark`, as a power cut does.
    pub fn kill_replica(&mut self, id: u64, dark: bool, rng: &mut SmallRng) {
        if dark {
            net::dark(id as u16, true);
        }
        let replica = self.replica(id);
        if let Some(process) = replica.process.take() {
            process.kill();
        }
        replica.stop = None;
        replica.disk.crash(rng);
        replica.disk.fail(false);
    }

    /// Asks a replica to hand over its leaderships and stop.
    pub fn stop_replica(&mut self, id: u64) {
        let replica = self.replica(id);
        if let Some(stop) = replica.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Its disk fails from now on: it must stop by itself.
    pub fn break_disk(&mut self, id: u64) {
        let replica = self.replica(id);
        *replica
            .doomed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        replica.disk.fail(true);
    }

    /// Syncs take longer by so much.
    pub fn stall_disk(&mut self, id: u64, by: Duration) {
        let _ = self.replica(id).stall.send_replace(by);
    }

    /// Stops or continues a machine's process.
    pub fn pause(&mut self, machine: u16, paused: bool) {
        let process = match machine.checked_sub(FIRST_CLIENT) {
            Some(client) => self.clients.get(usize::from(client)),
            None => self.replica(u64::from(machine)).process.as_ref(),
        };
        if let Some(process) = process {
            process.pause(paused);
        }
    }

    /// Steps a replica's wall clock.
    pub fn step_wall(&mut self, id: u64, ms: i64) {
        if let Some(process) = &self.replica(id).process {
            process.step_wall(ms);
        }
    }

    /// Sets a replica's monotonic clock back, for good.
    pub fn step_back(&mut self, id: u64, by: Duration) {
        let replica = self.replica(id);
        replica.clock.behind += by;
        if let Some(process) = &replica.process {
            process.step_back(by);
        }
    }

    /// The worker that runs on a client's machine dies; another takes its place.
    pub fn replace_client(&mut self, machine: u16, rng: &mut SmallRng) {
        let at = usize::from(machine - FIRST_CLIENT);
        self.clients[at].kill();
        let dead = self.workers[at];
        record::note(
            &format!("w{dead}"),
            "exit",
            None,
            map([
                ("reason", word("killed")),
                ("expected", fencepost_history::Value::Bool(true)),
            ]),
        );
        let clock = Clock {
            rate: 1.0 + f64::from(rng.random_range(-9..=9_i32)) / 1000.0,
            wall_ms: 0,
            behind: Duration::ZERO,
        };
        self.workers[at] = self.next_worker;
        self.clients[at] = self.start_client(machine, clock);
    }

    /// Ends everything.
    pub fn end(self) {
        for replica in &self.replicas {
            if let Some(process) = &replica.process {
                process.kill();
            }
        }
        self.clients.iter().for_each(|process| process.kill());
    }
}
