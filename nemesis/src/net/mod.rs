//! Working inside other network namespaces: entering them, probing links, changing rules.

pub mod nft;
pub mod ns;
pub mod probe;

pub use ns::NetNs;
