//! Names → buckets → groups.

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

    /// The group that keeps `name`.
    pub fn group_of(&self, name: &str) -> u32 {
        self.groups.get(bucket_of(name)).copied().unwrap_or(0)
    }
}

/// A name's bucket: CRC-32 of its bytes, modulo [`BUCKETS`].
pub fn bucket_of(name: &str) -> usize {
    crc32fast::hash(name.as_bytes()) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
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
