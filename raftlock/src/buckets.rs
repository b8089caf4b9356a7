//! Names → buckets → groups.
//!
//! The map is the state of a Raft group of its own, the one after the last group of locks. All nodes follow it; clients keep a
//! copy, and whoever answers them says which version it goes by.

use std::io;
use std::sync::Arc;

use crate::wal::{Dir, read_json};
use serde::{Deserialize, Serialize};

/// Buckets of the name space. Fixed for good: a name's bucket never changes, only the bucket's group does.
pub const BUCKETS: usize = 4096;

/// Which group keeps each bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketMap {
    /// Rises with every change; clients cache the map by it.
    pub version: u64,
    /// Group of each of the [`BUCKETS`] buckets.
    pub groups: Vec<u32>,
}

impl BucketMap {
    /// Buckets dealt out evenly over groups `0..count`.
    pub fn even(count: u32) -> Self {
        let count = count.max(1);
        BucketMap {
            version: 1,
            groups: (0..BUCKETS as u32).map(|bucket| bucket % count).collect(),
        }
    }

    /// Is there a group for every bucket?
    pub fn is_whole(&self) -> bool {
        self.groups.len() == BUCKETS
    }

    /// The group that keeps `name`.
    pub fn group_of(&self, name: &str) -> u32 {
        self.groups.get(bucket_of(name)).copied().unwrap_or(0)
    }
}

/// The map as logs and snapshots keep it. A map that knows more, such as buckets on their way from one group to another, is
/// a further variant; what was written stays readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredMap {
    /// A group for each bucket.
    V1(Arc<BucketMap>),
}

impl StoredMap {
    /// The map.
    pub fn map(&self) -> &Arc<BucketMap> {
        let StoredMap::V1(map) = self;
        map
    }
}

const FILE: &str = "groups.json";

/// Refuses another number of groups than the directory was made with: its groups would be taken for others.
pub fn check_groups(dir: &dyn Dir, groups: u32) -> io::Result<()> {
    match read_json::<u32>(dir, FILE)? {
        Some(made) if made != groups => Err(io::Error::other(format!(
            "it was made with {made} groups; start it with --groups {made}"
        ))),
        Some(_) => Ok(()),
        None => dir.replace(FILE, &serde_json::to_vec(&groups)?),
    }
}

/// A name's bucket: CRC-32 of its bytes, modulo [`BUCKETS`].
pub fn bucket_of(name: &str) -> usize {
    crc32fast::hash(name.as_bytes()) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn buckets_are_fixed_for_good() {
        // Changing these would lose every lock that exists.
        assert_eq!(
            bucket_of("default/a"),
            crc32fast::hash(b"default/a") as usize % 4096
        );
        assert_eq!(bucket_of("123456789"), 0xCBF4_3926 % 4096);
    }

    #[test]
    fn a_directory_keeps_its_number_of_groups() {
        let path = tempfile::tempdir().unwrap();
        let dir = crate::wal::RealDir::open(path.path()).unwrap();
        check_groups(&dir, 4).unwrap();
        check_groups(&dir, 4).unwrap();
        let why = check_groups(&dir, 5).unwrap_err().to_string();
        assert!(why.contains("--groups 4"), "{why}");
    }

    #[test]
    fn an_even_map_uses_every_group_alike() {
        let map = BucketMap::even(4);
        for group in 0..4 {
            assert_eq!(
                map.groups.iter().filter(|found| **found == group).count(),
                1024
            );
        }
    }
}
