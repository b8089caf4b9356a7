//! All faults by name. Adding one: a file in `faults/` and a line in the table below.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::faults;

type Build = fn(&Map<String, Value>) -> Result<Box<dyn Fault>, String>;

/// One entry of the table.
pub struct Entry {
    pub name: &'static str,
    /// One line for `fencepost list`.
    pub about: &'static str,
    build: Build,
}

/// Why a fault could not be built from a scenario.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("there is no fault {name:?}: write one of {known}")]
    Unknown { name: String, known: String },
    #[error("fault {name:?}: {text}")]
    Params { name: String, text: String },
}

/// The line of one fault: `name => module::Type`; the module's `ABOUT` describes it.
macro_rules! faults {
    ($($name:literal => $module:ident::$fault:ident,)*) => {
        /// Every fault, in the order of docs/faults.md.
        pub const FAULTS: &[Entry] = &[$(Entry {
            name: $name,
            about: faults::$module::ABOUT,
            build: build::<faults::$module::$fault>,
        },)*];
    };
}

faults! {
    "pause" => pause::Pause,
    "kill" => kill::Kill,
    "snapshot" => snapshot::Snapshot,
    "partition" => partition::Partition,
    "packets" => packets::Packets,
    "clock" => clock::Clock,
    "failover" => failover::Failover,
    "disk" => disk::Disk,
}

/// Builds the fault that an order or a plan names, from its `params`.
///
/// # Errors
/// When there is no such fault, or a parameter is unknown or malformed.
pub fn build_fault(name: &str, params: &Map<String, Value>) -> Result<Box<dyn Fault>, BuildError> {
    let entry = FAULTS
        .iter()
        .find(|e| e.name == name)
        .ok_or_else(|| BuildError::Unknown {
            name: name.into(),
            known: FAULTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
        })?;
    (entry.build)(params).map_err(|text| BuildError::Params {
        name: name.into(),
        text,
    })
}

fn build<F: Fault + DeserializeOwned + 'static>(
    params: &Map<String, Value>,
) -> Result<Box<dyn Fault>, String> {
    let fault: F =
        serde_json::from_value(Value::Object(params.clone())).map_err(|e| e.to_string())?;
    Ok(Box::new(fault))
}
