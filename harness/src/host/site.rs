//! The layout of a run's network, and what its host can do.

use std::net::Ipv4Addr;

use super::UnitId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    Local,
    Docker,
}

impl HostKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
        }
    }
}

/// How units reach one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetMode {
    /// Each unit in a namespace of its own, all of them plugged into one bridge.
    Bridge {
        /// The interface's name in this process's namespace.
        bridge: String,
        /// This process's own address on it.
        gateway: Ipv4Addr,
        prefix: u8,
    },
    /// Loopback addresses; no network fault can be installed, for this reason.
    Loopback { reason: String },
}

/// Addresses are a function of the unit, so that a system can write its configuration before
/// anything runs.
#[derive(Debug, Clone)]
pub struct Site {
    pub kind: HostKind,
    pub net: NetMode,
    /// First address of the run's subnet.
    pub(crate) base: Ipv4Addr,
    /// Where a node's data directory is, as its own program sees it: `{}` stands for the index.
    pub(crate) data_dir: String,
}

impl Site {
    /// Nodes are .11 and up, workers start 256 above the base, the witness is .2, the controller .1.
    #[must_use]
    pub fn addr(&self, id: UnitId) -> Ipv4Addr {
        let offset = match id {
            UnitId::Witness => 2,
            UnitId::Node(i) => 11 + i as u32,
            UnitId::Worker(i) => 257 + i as u32,
        };
        Ipv4Addr::from(u32::from(self.base) + offset)
    }

    #[must_use]
    pub fn node_addr(&self, index: usize) -> Ipv4Addr {
        self.addr(UnitId::Node(index))
    }

    /// The data directory as the node's program sees it.
    #[must_use]
    pub fn node_data_dir(&self, index: usize) -> String {
        self.data_dir.replace("{}", &index.to_string())
    }

    /// Why network faults cannot be installed, if so.
    #[must_use]
    pub fn no_network_faults(&self) -> Option<&str> {
        match &self.net {
            NetMode::Bridge { .. } => None,
            NetMode::Loopback { reason } => Some(reason),
        }
    }
}
