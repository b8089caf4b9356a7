//! Faults of a run, put together from the nemesis's events.

use fencepost_history::{Event, Value};

use crate::words::clip;

/// Faults kept; more are only counted.
const MAX_FAULTS: usize = 2_000;

/// One fault from its start to its healing. Times in nanoseconds since the run began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fault {
    pub id: String,
    pub name: String,
    /// One of `pause kill cut packets clock failover disk`.
    pub kind: String,
    pub targets: Vec<String>,
    pub affects: Vec<String>,
    pub started: Option<i64>,
    pub installed: Option<Stage>,
    pub heal_started: Option<i64>,
    pub healed: Option<Stage>,
}

/// Outcome of installing or healing a fault, with its receipt.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub index: u64,
    pub time: i64,
    /// `installed`, `healed`, `skipped` or `indeterminate`.
    pub status: String,
    pub reason: Option<String>,
    pub receipt: Value,
}

impl Fault {
    /// Whether its receipt says that it took hold.
    pub fn applied(&self) -> bool {
        self.installed
            .as_ref()
            .is_some_and(|s| s.status == "installed")
    }

    /// From when to when it was in force, its healing not counted; `None` when it
    /// surely never was. An end of `None`: its healing is not known to have worked.
    pub fn span(&self) -> Option<(i64, Option<i64>)> {
        let stage = self.installed.as_ref();
        if stage.is_some_and(|s| s.status == "skipped") {
            return None;
        }
        let from = if self.applied() {
            stage.map(|s| s.time)
        } else {
            self.started.or(stage.map(|s| s.time))
        }?;
        let healed = self.healed.as_ref().filter(|s| s.status == "healed");
        let to = healed.map(|s| self.heal_started.unwrap_or(s.time));
        Some((from, to))
    }

    pub fn affects_worker(&self, worker: u64) -> bool {
        self.affects
            .iter()
            .any(|a| a.strip_prefix("worker:").and_then(|n| n.parse().ok()) == Some(worker))
    }
}

/// Collects [`Fault`]s from events whose `f` is `fault`.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub all: Vec<Fault>,
    /// Faults beyond the bound, of which nothing else is kept.
    pub cut: u64,
}

impl Faults {
    pub fn push(&mut self, event: &Event) {
        let v = &event.value;
        let text = |name: &str| v.get(name).and_then(Value::as_str);
        let id = clip(text("id").unwrap_or("unnamed"), 60);
        let install = text("action") != Some("heal");
        let known = self.all.iter().rposition(|f| f.id == id);
        let at = match known {
            Some(at) => at,
            None if self.all.len() < MAX_FAULTS => {
                self.all.push(Fault {
                    id,
                    name: clip(text("fault").unwrap_or("fault"), 60),
                    kind: text("kind").unwrap_or("").to_string(),
                    targets: strings(v.get("targets")),
                    affects: strings(v.get("affects")),
                    ..Fault::default()
                });
                self.all.len() - 1
            }
            None => {
                self.cut += u64::from(text("status") == Some("started") && install);
                return;
            }
        };
        let fault = &mut self.all[at];
        let status = text("status").unwrap_or("indeterminate");
        if let affects @ [_, ..] = strings(v.get("affects")).as_slice() {
            fault.affects = affects.to_vec();
        }
        if status == "started" {
            let slot = if install {
                &mut fault.started
            } else {
                &mut fault.heal_started
            };
            slot.get_or_insert(event.time);
            return;
        }
        let stage = Stage {
            index: event.index,
            time: event.time,
            status: status.to_string(),
            reason: text("reason").map(|r| clip(r, 400)),
            receipt: v.get("receipt").cloned().unwrap_or_default(),
        };
        let slot = if install {
            &mut fault.installed
        } else {
            &mut fault.healed
        };
        *slot = Some(stage);
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::List(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_string)
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(installed: &str, healed: Option<&str>) -> Fault {
        let stage = |status: &str, time| Stage {
            index: 0,
            time,
            status: status.to_string(),
            reason: None,
            receipt: Value::Null,
        };
        Fault {
            started: Some(10),
            installed: Some(stage(installed, 20)),
            heal_started: Some(80),
            healed: healed.map(|status| stage(status, 90)),
            ..Fault::default()
        }
    }

    #[test]
    fn a_fault_is_in_force_from_its_receipt_to_its_healing() {
        let span = |installed, healed| fault(installed, healed).span();
        assert_eq!(span("installed", Some("healed")), Some((20, Some(80))));
        assert_eq!(span("indeterminate", Some("healed")), Some((10, Some(80))));
        assert_eq!(span("installed", Some("indeterminate")), Some((20, None)));
        assert_eq!(span("installed", None), Some((20, None)));
        assert_eq!(span("skipped", None), None);
    }
}
