//! Who the other replicas are, and whether they still are who they were.
//!
//! A replica that lost its directory, or whose directory was rolled back, has forgotten votes and entries that it
//! acknowledged; letting it in could lose grants. Each directory has an incarnation, drawn when it was made, and a flush
//! count that only rises; peers remember both, tell each other, and refuse one that comes back with less. It refuses itself when it
//! hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use super::runs::{Flushed, Run};
use super::wire::{Hello, VERSION};
use crate::wal::{Dir, FlushStats, read_json};

const FILE: &str = "peers.json";
/// What the peers had acknowledged when it was written.
const RUNS: &str = "runs.json";
/// Why this directory may not be used any more.
const SET_BACK: &str = "set-back.json";

/// Why a peer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Another protocol, cluster or addressee.
    #[error("peer {from} does not belong here: {what}")]
    Stranger {
        /// Who it says it is.
        from: u64,
        /// What differs.
        what: &'static str,
    },
    /// Its directory is new.
    #[error(
        "replica {from} has a new data directory: it was wiped; restore all replicas from a backup to have it again"
    )]
    Wiped {
        /// The replica.
        from: u64,
    },
    /// Its directory is older than what it acknowledged.
    #[error(
        "replica {from} was rolled back: it had acknowledged flush {seen} and now is at {now}; restore all replicas from a backup to have it again"
    )]
    RolledBack {
        /// The replica.
        from: u64,
        /// Flush that it acknowledged.
        seen: u64,
        /// Flush that it has now.
        now: u64,
    },
    /// This node's own directory is older than what it acknowledged.
    #[error(
        "this replica was rolled back: it had acknowledged flush {seen} and began at {began}; restore all replicas from a backup to have it again"
    )]
    SetBack {
        /// Flush that it acknowledged.
        seen: u64,
        /// Flush that it had when its process began.
        began: u64,
    },
    /// It said since that it is further: this greeting was on the way for long.
    #[error("a greeting of replica {from} came late; it greets anew")]
    Late {
        /// The replica.
        from: u64,
    },
    /// It refused us.
    #[error("the peer refuses this replica: {0}")]
    Refused(String),
}

impl PeerError {
    /// Why, in short: the same for as long as it is the same.
    pub fn reason(&self) -> &'static str {
        match self {
            PeerError::Stranger { what, .. } => what,
            PeerError::Wiped { .. } => "wiped",
            PeerError::RolledBack { .. } => "rolled back",
            PeerError::Late { .. } => "late",
            PeerError::SetBack { .. } => "set back",
            PeerError::Refused(_) => "refused",
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    incarnation: u64,
    peers: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Known {
    saved: Saved,
    /// How far the peers were, of those directories that are admitted.
    runs: BTreeMap<u64, Run>,
    /// What of it was written down last.
    written: BTreeMap<u64, Run>,
    set_back: Option<PeerError>,
    urls: BTreeMap<u64, String>,
    seats: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Known {
    fn of_peers(&self) -> impl Iterator<Item = Flushed> {
        self.runs.iter().filter_map(|(peer, run)| {
            Some(Flushed {
                of: *peer,
                incarnation: *self.saved.peers.get(peer)?,
                run: *run,
            })
        })
    }
}

/// This node's memory of its peers.
pub struct PeerBook {
    /// This node.
    pub id: u64,
    replicas: BTreeSet<u64>,
    run: u64,
    began: u64,
    cluster: u64,
    client_url: String,
    dir: Arc<dyn Dir>,
    stats: Arc<FlushStats>,
    failed: watch::Sender<Option<String>>,
    known: Mutex<Known>,
}

impl PeerBook {
    /// Opens the book in the node's directory; a new directory draws its incarnation. Only `replicas` are ever admitted.
    /// `failed` is told if the directory turns out to have been set back.
    pub fn open(
        id: u64,
        replicas: impl IntoIterator<Item = u64>,
        cluster: &str,
        client_url: String,
        dir: Arc<dyn Dir>,
        stats: Arc<FlushStats>,
        failed: watch::Sender<Option<String>>,
    ) -> io::Result<Self> {
        if let Some(why) = read_json::<String>(&*dir, SET_BACK)? {
            return Err(io::Error::other(why));
        }
        let saved = match read_json(&*dir, FILE)? {
            Some(saved) => saved,
            None => {
                let saved = Saved {
                    incarnation: crate::chance::random(),
                    peers: BTreeMap::new(),
                };
                dir.replace(FILE, &serde_json::to_vec(&saved)?)?;
                saved
            }
        };
        let written: BTreeMap<u64, Run> = read_json(&*dir, RUNS)?.unwrap_or_default();
        let urls = BTreeMap::from([(id, client_url.clone())]);
        let known = Mutex::new(Known {
            saved,
            runs: written.clone(),
            written,
            urls,
            ..Known::default()
        });
        let cluster = u64::from(crc32fast::hash(cluster.as_bytes()));
        Ok(PeerBook {
            id,
            replicas: replicas.into_iter().collect(),
            run: crate::chance::random(),
            began: stats.sequence(),
            cluster,
            client_url,
            dir,
            stats,
            failed,
            known,
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far this node's log is on disk.
    pub fn sequence(&self) -> u64 {
        self.stats.sequence()
    }

    /// Counts of this node's flusher.
    pub fn flushes(&self) -> &FlushStats {
        &self.stats
    }

    fn own(&self) -> Run {
        Run {
            run: self.run,
            began: self.began,
            sequence: self.sequence(),
            overlapped: false,
        }
    }

    /// What this node tells of how far logs are on disk: of its peers', and of its own.
    pub fn told(&self) -> Vec<Flushed> {
        let known = self.known();
        let own = Flushed {
            of: self.id,
            incarnation: known.saved.incarnation,
            run: self.own(),
        };
        known.of_peers().chain([own]).collect()
    }

    /// Takes what a peer tells of directories that are known here; one that was replaced is none. An error if this node's own
    /// was further than it is: it forgot what it acknowledged, and must not vote or acknowledge any more.
    pub fn learn(&self, told: &[Flushed]) -> Result<(), PeerError> {
        let mut known = self.known();
        for Flushed {
            of,
            incarnation,
            run,
        } in told
        {
            if *of == self.id {
                let behind = self.own().began_behind(run) || run.overlapped;
                if *incarnation == known.saved.incarnation && behind {
                    self.disown(&mut known, run.sequence);
                }
            } else if known.saved.peers.get(of) == Some(incarnation) {
                let seen = known.runs.entry(*of).or_insert(*run);
                *seen = seen.merge(*run);
            }
        }
        known.set_back.clone().map_or(Ok(()), Err)
    }

    /// This directory may not be used any more, also once it is as far again as it was.
    fn disown(&self, known: &mut Known, seen: u64) {
        if known.set_back.is_some() {
            return;
        }
        let began = self.began;
        let why = PeerError::SetBack { seen, began };
        let text = why.to_string();
        let saved = serde_json::to_vec(&text).unwrap_or_default();
        if let Err(error) = self.dir.replace(SET_BACK, &saved) {
            tracing::error!(%error, "cannot write down that this replica was rolled back");
        }
        let _ = self.failed.send_replace(Some(text));
        known.set_back = Some(why);
    }

    /// What this node says of itself to `to`.
    pub fn hello(&self, to: u64, refused: Option<String>) -> Hello {
        let known = self.known();
        Hello {
            version: VERSION,
            cluster: self.cluster,
            from: self.id,
            to,
            incarnation: known.saved.incarnation,
            run: self.own(),
            known: known.of_peers().collect(),
            client_url: self.client_url.clone(),
            refused,
        }
    }

    /// Admits a peer or says why not. A peer met for the first time is remembered for good.
    pub fn admit(&self, hello: &Hello) -> Result<(), PeerError> {
        let from = hello.from;
        let stranger = |what| Err(PeerError::Stranger { from, what });
        if hello.version != VERSION {
            return stranger("it speaks another version of the protocol");
        }
        if hello.cluster != self.cluster {
            return stranger("it is of another cluster or has another secret");
        }
        if hello.to != self.id || from == self.id {
            return stranger("it meant another replica");
        }
        if !self.replicas.contains(&from) {
            return stranger("it is none of the replicas");
        }
        self.learn(&hello.known)?;
        if let Some(why) = &hello.refused {
            return Err(PeerError::Refused(why.clone()));
        }
        let mut known = self.known();
        match known.saved.peers.get(&from) {
            Some(incarnation) if *incarnation != hello.incarnation => {
                return Err(PeerError::Wiped { from });
            }
            Some(_) => {}
            None => {
                known.saved.peers.insert(from, hello.incarnation);
                let saved = serde_json::to_vec(&known.saved).unwrap_or_default();
                if self.dir.replace(FILE, &saved).is_err() {
                    known.saved.peers.remove(&from);
                    return stranger("it could not be written down");
                }
            }
        }
        let run = hello.run;
        let seen = *known.runs.entry(from).or_insert(run);
        if seen.run == run.run && seen.sequence > run.sequence {
            return Err(PeerError::Late { from });
        }
        let after = seen.merge(run);
        if after.overlapped || run.began_behind(&seen) {
            known.runs.insert(from, after);
            return Err(PeerError::RolledBack {
                from,
                seen: seen.sequence,
                now: run.began,
            });
        }
        known.runs.insert(from, run);
        known.urls.insert(from, hello.client_url.clone());
        Ok(())
    }

    /// A peer's new connection; the receiver resolves when a newer one of the same peer comes.
    pub fn take_seat(&self, from: u64) -> oneshot::Receiver<()> {
        let (seat, displaced) = oneshot::channel();
        self.known().seats.insert(from, seat);
        displaced
    }

    /// A peer answered in this run: its log is on disk so far.
    pub fn acknowledged(&self, from: u64, run: u64, sequence: u64) {
        let mut known = self.known();
        let seen = known.runs.get_mut(&from);
        if let Some(seen) = seen.filter(|seen| seen.run == run) {
            seen.sequence = sequence.max(seen.sequence);
        }
    }

    /// Writes down what the peers acknowledged, so that one that was rolled back is known also after this node's next start.
    /// What was acknowledged since the last time is not.
    pub fn write_down(&self) -> io::Result<()> {
        let acknowledged = {
            let known = self.known();
            if known.written == known.runs {
                return Ok(());
            }
            known.runs.clone()
        };
        self.dir
            .replace(RUNS, &serde_json::to_vec(&acknowledged)?)?;
        self.known().written = acknowledged;
        Ok(())
    }

    /// Where a node serves clients, as far as known.
    pub fn url(&self, node: u64) -> Option<String> {
        self.known().urls.get(&node).cloned()
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
