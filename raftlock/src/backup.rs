//! A backup of all groups, and the beginning of a cluster that was restored from one.
//!
//! File: magic (8 bytes), CRC-32 of the rest (4), then the groups' machines. A restored replica keeps it as
//! `genesis.bin`: until its first snapshot, each group begins with what it holds. All replicas must begin alike, so its
//! checksum is a part of the cluster's identity: replicas with another beginning refuse each other.

use std::io;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::wal::Dir;

const MAGIC: &[u8; 8] = b"RLBACK02";
const HEAD: usize = 12;
/// The file in a restored replica's directory.
const GENESIS: &str = "genesis.bin";

/// The machines of all groups, that of the bucket map last.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Backup {
    groups: Vec<Vec<u8>>,
}

impl Backup {
    /// Adds the next group's machine.
    pub fn push(&mut self, machine: &Machine) -> io::Result<()> {
        self.groups
            .push(machine.to_bytes().map_err(io::Error::other)?);
        Ok(())
    }

    /// As a file.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 4]);
        let mut bytes = postcard::to_extend(self, bytes).map_err(io::Error::other)?;
        let crc = crc32fast::hash(&bytes[HEAD..]);
        bytes[8..HEAD].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a file; the second value is its checksum.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<(Self, u32)> {
        let bad = || io::Error::other("it is no backup of this version, or damaged");
        let head = bytes.get(..HEAD).ok_or_else(bad)?;
        let crc = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if head[..8] != *MAGIC || crc32fast::hash(&bytes[HEAD..]) != crc {
            return Err(bad());
        }
        let backup = postcard::from_bytes(&bytes[HEAD..]).map_err(io::Error::other)?;
        Ok((backup, crc))
    }

    /// How many groups of locks it has; the last machine is that of the bucket map's group.
    pub fn groups(&self) -> usize {
        self.groups.len().saturating_sub(1)
    }

    /// Refuses a node with another number of groups.
    pub fn check_groups(&self, groups: u32) -> io::Result<()> {
        let count = self.groups();
        if count == groups as usize {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "it was restored from a backup of {count} groups; start it with --groups {count}"
        )))
    }

    /// The machine of a group.
    pub fn machine(&self, group: u32) -> io::Result<Machine> {
        let bytes = self.groups.get(group as usize);
        let bytes = bytes.ok_or_else(|| io::Error::other(format!("it has no group {group}")))?;
        Machine::from_bytes(bytes).map_err(io::Error::other)
    }

    /// The same with tokens above all of the lost history: `restore_epoch` must be above that of every earlier restore.
    pub fn restored(&self, restore_epoch: u16, keep_sessions: bool) -> io::Result<Self> {
        let mut restored = Backup::default();
        for group in 0..self.groups.len() as u32 {
            let mut machine = self.machine(group)?;
            let before = machine.restore_epoch();
            if restore_epoch <= before {
                return Err(io::Error::other(format!(
                    "its restore epoch is {before} already; name one above that of every earlier restore"
                )));
            }
            machine.restore(restore_epoch, keep_sessions);
            restored.push(&machine)?;
        }
        Ok(restored)
    }
}

/// Writes a replica's beginning into its new directory.
pub fn begin_with(dir: &dyn Dir, backup: &Backup) -> io::Result<()> {
    let used = |name: &String| {
        name.starts_with("log-") || name.starts_with("snapshot-") || name == GENESIS
    };
    if let Some(found) = dir.list()?.iter().find(|name| used(name)) {
        return Err(io::Error::other(format!(
            "the directory is in use ({found}); restore into a new one"
        )));
    }
    dir.replace(GENESIS, &backup.to_bytes()?)
}

/// A replica's beginning and its checksum, if it was restored.
pub fn beginning(dir: &dyn Dir) -> io::Result<Option<(Backup, u32)>> {
    match dir.read(GENESIS) {
        Ok(bytes) => Backup::from_bytes(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
