//! Which node leads which group, as far as a client has learned: the bucket map and a leader for each group.

use std::collections::HashMap;

use serde::Deserialize;

/// Buckets of the name space; a name's bucket is CRC-32 of its bytes modulo this.
const BUCKETS: usize = 4096;

/// `GET /v1/map`, cached until a node tells of a newer version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BucketMap {
    /// Rises with every change.
    pub version: u64,
    /// Group of each bucket.
    pub groups: Vec<u32>,
}

impl BucketMap {
    /// The group that keeps `name`.
    pub fn group_of(&self, name: &str) -> Option<u32> {
        let bucket = crc32fast::hash(name.as_bytes()) as usize % BUCKETS;
        self.groups.get(bucket).copied()
    }
}

/// The group in a session's id: its first byte.
pub(crate) fn group_of_session(session: &str) -> Option<u32> {
    u32::from_str_radix(session.get(..2)?, 16).ok()
}

/// Where requests go: to the known leader of their group, else to the present node.
#[derive(Debug)]
pub(crate) struct Routes {
    nodes: Vec<String>,
    current: usize,
    leaders: HashMap<u32, usize>,
    /// The bucket map, once it was read.
    pub(crate) map: Option<BucketMap>,
}

impl Routes {
    pub(crate) fn new(nodes: Vec<String>) -> Self {
        Routes {
            nodes,
            current: 0,
            leaders: HashMap::new(),
            map: None,
        }
    }

    /// How many nodes are known.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The node for a request of this group.
    pub(crate) fn node(&self, group: Option<u32>) -> &str {
        let leader = group.and_then(|group| self.leaders.get(&group).copied());
        &self.nodes[leader.unwrap_or(self.current) % self.nodes.len()]
    }

    /// The node did not serve a request of this group: its leader is not known any more, and the next node is tried.
    pub(crate) fn failed(&mut self, group: Option<u32>) {
        let at = group.and_then(|group| self.leaders.remove(&group));
        self.current = (at.unwrap_or(self.current) + 1) % self.nodes.len();
    }

    /// A node told which version of the map it goes by: an older copy is read anew before the next use.
    pub(crate) fn told_of_map(&mut self, version: u64) {
        if self.map.as_ref().is_some_and(|map| map.version < version) {
            self.map = None;
        }
    }

    /// A node named the leader of this group.
    pub(crate) fn led_by(&mut self, group: Option<u32>, leader: String) {
        let at = self.nodes.iter().position(|node| *node == leader);
        let at = at.unwrap_or_else(|| {
            self.nodes.push(leader);
            self.nodes.len() - 1
        });
        match group {
            Some(group) => drop(self.leaders.insert(group, at)),
            None => self.current = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_own_leader() {
        let mut routes = Routes::new(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert_eq!(routes.node(Some(1)), "a");
        routes.led_by(Some(1), "c".to_owned());
        routes.led_by(Some(2), "b".to_owned());
        assert_eq!(
            [0, 1, 2].map(|group| routes.node(Some(group))),
            ["a", "c", "b"]
        );
        routes.failed(Some(1));
        assert_eq!(routes.node(Some(1)), "a", "the one after c");
        assert_eq!(routes.node(Some(2)), "b", "the others are left alone");
        routes.led_by(None, "d".to_owned());
        assert_eq!(routes.node(None), "d");
    }

    #[test]
    fn groups_are_read_from_names_and_sessions() {
        let map = BucketMap {
            version: 1,
            groups: (0..4096).map(|bucket| bucket % 4).collect(),
        };
        assert_eq!(map.group_of("123456789"), Some(0xCBF4_3926 % 4096 % 4));
        assert_eq!(group_of_session("03ffffffffffffff"), Some(3));
        assert_eq!(group_of_session("x"), None);
    }
}
