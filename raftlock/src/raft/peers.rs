//! Who the other replicas are, and whether they still are who they were.
//!
//! A replica that lost its directory, or whose directory was rolled back, has forgotten votes and entries that it
//! acknowledged; letting it in could lose grants. Each directory has an incarnation, drawn when it was made, and a flush
//! count that only rises; peers remember both and refuse one that comes back with less.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::wire::{Hello, VERSION};
use crate::wal::{Dir, FlushStats, read_json};

const FILE: &str = "peers.json";
/// What the peers had acknowledged when it was written.
const ACKNOWLEDGED: &str = "acknowledged.json";

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

#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    incarnation: u64,
    peers: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Known {
    saved: Saved,
    sequences: BTreeMap<u64, u64>,
    /// What of it was written down last.
    written: BTreeMap<u64, u64>,
    runs: BTreeMap<u64, u64>,
    urls: BTreeMap<u64, String>,
    seats: BTreeMap<u64, oneshot::Sender<()>>,
}

/// This node's memory of its peers.
pub struct PeerBook {
    /// This node.
    pub id: u64,
    replicas: BTreeSet<u64>,
    run: u64,
    cluster: u64,
    client_url: String,
    dir: Arc<dyn Dir>,
    stats: Arc<FlushStats>,
    known: Mutex<Known>,
}

impl PeerBook {
    /// Opens the book in the node's directory; a new directory draws its incarnation. Only `replicas` are ever admitted.
    pub fn open(
        id: u64,
        replicas: impl IntoIterator<Item = u64>,
        cluster: &str,
        client_url: String,
        dir: Arc<dyn Dir>,
        stats: Arc<FlushStats>,
    ) -> io::Result<Self> {
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
        let written: BTreeMap<u64, u64> = read_json(&*dir, ACKNOWLEDGED)?.unwrap_or_default();
        let urls = BTreeMap::from([(id, client_url.clone())]);
        let known = Mutex::new(Known {
            saved,
            sequences: written.clone(),
            written,
            urls,
            ..Known::default()
        });
        let cluster = u64::from(crc32fast::hash(cluster.as_bytes()));
        Ok(PeerBook {
            id,
            replicas: replicas.into_iter().collect(),
            run: crate::chance::random(),
            cluster,
            client_url,
            dir,
            stats,
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

    /// What this node says of itself to `to`.
    pub fn hello(&self, to: u64, refused: Option<String>) -> Hello {
        Hello {
            version: VERSION,
            cluster: self.cluster,
            from: self.id,
            to,
            incarnation: self.known().saved.incarnation,
            sequence: self.sequence(),
            run: self.run,
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
        let seen = known.sequences.get(&from).copied().unwrap_or(0);
        if hello.sequence < seen {
            if known.runs.get(&from) == Some(&hello.run) {
                return Err(PeerError::Late { from });
            }
            return Err(PeerError::RolledBack {
                from,
                seen,
                now: hello.sequence,
            });
        }
        known.sequences.insert(from, hello.sequence);
        known.runs.insert(from, hello.run);
        known.urls.insert(from, hello.client_url.clone());
        Ok(())
    }

    /// A peer's new connection; the receiver resolves when a newer one of the same peer comes.
    pub fn take_seat(&self, from: u64) -> oneshot::Receiver<()> {
        let (seat, displaced) = oneshot::channel();
        self.known().seats.insert(from, seat);
        displaced
    }

    /// A peer answered: its log is on disk so far.
    pub fn acknowledged(&self, from: u64, sequence: u64) {
        let mut known = self.known();
        let seen = known.sequences.entry(from).or_default();
        *seen = sequence.max(*seen);
    }

    /// Writes down what the peers acknowledged, so that one that was rolled back is known also after this node's next start.
    /// What was acknowledged since the last time is not.
    pub fn write_down(&self) -> io::Result<()> {
        let acknowledged = {
            let known = self.known();
            if known.written == known.sequences {
                return Ok(());
            }
            known.sequences.clone()
        };
        self.dir
            .replace(ACKNOWLEDGED, &serde_json::to_vec(&acknowledged)?)?;
        self.known().written = acknowledged;
        Ok(())
    }

    /// Takes a wiped replica's new directory for good, after it was removed from the membership.
    pub fn forget(&self, peer: u64) -> io::Result<()> {
        let mut known = self.known();
        known.saved.peers.remove(&peer);
        known.sequences.remove(&peer);
        self.dir.replace(FILE, &serde_json::to_vec(&known.saved)?)
    }

    /// Where a node serves clients, as far as known.
    pub fn url(&self, node: u64) -> Option<String> {
        self.known().urls.get(&node).cloned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::wal::RealDir;

    fn book(path: &std::path::Path, id: u64) -> PeerBook {
        let dir = Arc::new(RealDir::open(path).unwrap());
        PeerBook::open(id, 1..=2, "test", String::new(), dir, Arc::default()).unwrap()
    }

    #[test]
    fn a_late_greeting_is_no_sign_of_a_roll_back() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = book(one.path(), 1);
        let open = |flushed| {
            let dir = Arc::new(RealDir::open(two.path()).unwrap());
            let stats = Arc::new(FlushStats::default());
            stats.set_sequence(flushed);
            PeerBook::open(2, 1..=2, "test", String::new(), dir, stats).unwrap()
        };
        let second = open(40);
        let late = second.hello(1, None);
        second.stats.set_sequence(50);
        first.admit(&second.hello(1, None)).unwrap();
        let why = first.admit(&late).unwrap_err();
        assert!(!why.to_string().contains("rolled back"), "{why}");
        drop(second);
        let again = open(49);
        let rolled_back = first.admit(&again.hello(1, None));
        assert!(matches!(rolled_back, Err(PeerError::RolledBack { .. })));
        drop(again);
        // In a run of its own, however it goes on.
        first.admit(&open(51).hello(1, None)).unwrap();
    }

    #[test]
    fn wiped_and_rolled_back_replicas_are_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = book(one.path(), 1);
        let hello = book(two.path(), 2).hello(1, None);
        first.admit(&hello).unwrap();
        first.acknowledged(2, 40);
        assert!(matches!(
            first.admit(&Hello {
                sequence: 39,
                run: hello.run ^ 1,
                ..hello.clone()
            }),
            Err(PeerError::RolledBack { .. })
        ));
        first
            .admit(&Hello {
                sequence: 41,
                ..hello.clone()
            })
            .unwrap();
        let wiped = Hello {
            incarnation: hello.incarnation ^ 1,
            sequence: 99,
            ..hello.clone()
        };
        assert_eq!(first.admit(&wiped), Err(PeerError::Wiped { from: 2 }));
        drop(first);
        let first = book(one.path(), 1);
        assert_eq!(
            first.admit(&wiped),
            Err(PeerError::Wiped { from: 2 }),
            "remembered across a restart"
        );
        assert!(matches!(
            first.admit(&Hello {
                cluster: 7,
                ..hello.clone()
            }),
            Err(PeerError::Stranger { .. })
        ));
        let unknown = Hello { from: 3, ..hello };
        assert!(matches!(
            first.admit(&unknown),
            Err(PeerError::Stranger { from: 3, .. })
        ));
        first.forget(2).unwrap();
        first.admit(&wiped).unwrap();
        first.write_down().unwrap();
        drop(first);
        let first = book(one.path(), 1);
        let rolled_back = Hello {
            sequence: 98,
            ..wiped
        };
        assert!(
            matches!(first.admit(&rolled_back), Err(PeerError::RolledBack { .. })),
            "remembered as well, if it was written down"
        );
    }
}
