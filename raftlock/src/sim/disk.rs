//! A simulated disk: what is written reaches it in part, in any order or not at all until a sync is done; and it can fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::wal::{Dir, LogFile};

const SECTOR: usize = 512;

enum Step {
    Write(String, usize, Vec<u8>),
    Sync,
    Create(String),
    Remove(String),
}

#[derive(Default)]
struct State {
    durable: BTreeMap<String, Vec<u8>>,
    /// Asked for since the last sync that is done.
    pending: Vec<Step>,
    failing: bool,
}

/// A machine's disk; survives its processes.
#[derive(Default, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The syncs that were asked for are done.
    pub fn settle(&self) {
        let mut state = self.state();
        let Some(synced) = state
            .pending
            .iter()
            .rposition(|step| matches!(step, Step::Sync))
        else {
            return;
        };
        let done: Vec<Step> = state.pending.drain(..=synced).collect();
        done.into_iter().for_each(|step| state.apply(step));
    }

    /// Power is lost at a random moment since the last sync that is done.
    pub fn crash(&self, rng: &mut SmallRng) {
        let mut state = self.state();
        let mut pending = std::mem::take(&mut state.pending);
        pending.truncate(rng.random_range(0..=pending.len()));
        let synced = pending.iter().rposition(|step| matches!(step, Step::Sync));
        let loose = pending.split_off(synced.map_or(0, |at| at + 1));
        pending.into_iter().for_each(|step| state.apply(step));
        for step in loose {
            match step {
                Step::Write(name, offset, bytes) => state.tear(&name, offset, &bytes, rng),
                other if rng.random() => state.apply(other),
                _ => {}
            }
        }
    }

    /// All writes and syncs fail from now on, or no longer.
    pub fn fail(&self, failing: bool) {
        self.state().failing = failing;
    }
}

impl State {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Write(name, offset, bytes) => self.put(&name, offset, &bytes),
            Step::Create(name) => drop(self.durable.entry(name).or_default()),
            Step::Remove(name) => drop(self.durable.remove(&name)),
            Step::Sync => {}
        }
    }

    fn put(&mut self, name: &str, offset: usize, bytes: &[u8]) {
        let file = self.durable.entry(name.to_owned()).or_default();
        let end = offset + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset..end].copy_from_slice(bytes);
    }

    /// Whole, a beginning, some sectors, or nothing of a write.
    fn tear(&mut self, name: &str, offset: usize, bytes: &[u8], rng: &mut SmallRng) {
        match rng.random_range(0..4) {
            0 => {}
            1 => self.put(name, offset, &bytes[..rng.random_range(0..=bytes.len())]),
            2 => self.put(name, offset, bytes),
            _ => {
                let mut at = 0;
                while at < bytes.len() {
                    let end = bytes
                        .len()
                        .min((offset + at) / SECTOR * SECTOR + SECTOR - offset);
                    if rng.random() {
                        self.put(name, offset + at, &bytes[at..end]);
                    }
                    at = end;
                }
            }
        }
    }

    fn ask(&mut self, step: Step) -> io::Result<()> {
        if self.failing {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.pending.push(step);
        Ok(())
    }
}

impl Dir for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().durable.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let found = self.state().durable.get(name).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&self, name: &str, _size: u64) -> io::Result<Box<dyn LogFile>> {
        self.state().ask(Step::Create(name.to_owned()))?;
        Ok(Box::new(SimFile {
            state: Arc::clone(&self.state),
            name: name.to_owned(),
        }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if state.failing {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        state.durable.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().ask(Step::Remove(name.to_owned()))
    }

    fn simulated(&self) -> bool {
        true
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    name: String,
}

impl SimFile {
    fn ask(&self, step: Step) -> io::Result<()> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ask(step)
    }
}

impl LogFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.ask(Step::Write(
            self.name.clone(),
            offset as usize,
            bytes.to_vec(),
        ))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.ask(Step::Sync)
    }
}
