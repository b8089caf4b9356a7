//! Working inside other network namespaces: entering them, probing links, changing rules.

pub mod measure;
pub mod nft;
pub mod ns;
pub mod probe;
pub mod queue;

pub use ns::NetNs;
