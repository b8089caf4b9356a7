//! How long faults kept a service from granting, read from the history of a run.

use std::collections::HashSet;
use std::path::Path;

use fencepost_history::{Event, EventType, Reader, Value};

/// Both in milliseconds; `None` where no fault was made, or nothing was granted afterwards.
#[derive(Debug, Default, PartialEq)]
pub struct Gaps {
    /// The longest time from one grant to the next that overlaps a fault: from the last grant before its effect to
    /// the first one after. A service that serves on throughout has the pace of its load here.
    pub outage_ms: Option<f64>,
    /// From the moment at which every fault was healed to the next grant.
    pub recovery_ms: Option<f64>,
}

/// Reads them from a run folder; a history that ends early tells what it can.
pub fn read(dir: &Path) -> Gaps {
    let mut scan = Scan::default();
    if let Ok(reader) = Reader::open(&dir.join("history.jsonl")) {
        for record in reader {
            let Ok(record) = record else { break };
            scan.event(&record.event);
        }
    }
    scan.gaps
}

#[derive(Default)]
struct Scan {
    gaps: Gaps,
    faulted: bool,
    /// Faults that hold, or may.
    open: HashSet<String>,
    /// When the last of them ended.
    ended: Option<i64>,
    granted: Option<i64>,
    healed: Option<i64>,
}

impl Scan {
    fn event(&mut self, e: &Event) {
        let word = |name: &str| e.value.get(name).and_then(Value::as_str);
        match (&*e.f, e.kind) {
            ("fault", _) => {
                let id = word("id").unwrap_or_default();
                match (word("action"), word("status")) {
                    (Some("install"), Some("skipped")) => drop(self.open.remove(id)),
                    (Some("install"), _) => {
                        self.faulted = true;
                        self.open.insert(id.to_owned());
                    }
                    (Some("heal"), Some(status)) if status != "started" => {
                        self.open.remove(id);
                        self.ended = Some(e.time);
                    }
                    _ => {}
                }
            }
            ("phase", _) if word("phase") == Some("healed") => self.healed = Some(e.time),
            ("acquire", EventType::Ok) => self.granted(e.time),
            _ => {}
        }
    }

    fn granted(&mut self, now: i64) {
        let ms = |from: i64| (now - from) as f64 / 1e6;
        if let Some(last) = self.granted.replace(now) {
            let overlaps = !self.open.is_empty() || self.ended.is_some_and(|end| end > last);
            if overlaps && self.gaps.outage_ms.is_none_or(|longest| ms(last) > longest) {
                self.gaps.outage_ms = Some(ms(last));
            }
        }
        if let Some(at) = self.healed.take().filter(|_| self.faulted) {
            self.gaps.recovery_ms = Some(ms(at));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value as Json, json};

    fn gaps(lines: &[Json]) -> Gaps {
        let dir = tempfile::tempdir().unwrap();
        let text: Vec<String> = lines.iter().map(|l| format!("{l}\n")).collect();
        std::fs::write(dir.path().join("history.jsonl"), text.concat()).unwrap();
        read(dir.path())
    }

    /// Events at these milliseconds; a grant takes no time.
    fn run(events: &[(i64, &str)]) -> Gaps {
        let mut lines: Vec<Json> = Vec::new();
        for (n, (ms, what)) in events.iter().enumerate() {
            let fault = |action: &str, status: &str| {
                json!({"process": "nemesis", "type": "info", "f": "fault",
                       "value": {"id": "f1", "action": action, "status": status}})
            };
            let process = n as u64;
            let acquire = |kind: &str| json!({"process": process, "type": kind, "f": "acquire", "key": "L0", "value": {}});
            let events = match *what {
                "grant" => vec![acquire("invoke"), acquire("ok")],
                "install" => vec![fault("install", "started"), fault("install", "installed")],
                "skip" => vec![fault("install", "started"), fault("install", "skipped")],
                "heal" => vec![fault("heal", "started"), fault("heal", "healed")],
                _ => vec![
                    json!({"process": "controller", "type": "info", "f": "phase", "value": {"phase": "healed"}}),
                ],
            };
            for mut e in events {
                e["index"] = lines.len().into();
                e["time"] = (ms * 1_000_000).into();
                lines.push(e);
            }
        }
        gaps(&lines)
    }

    #[test]
    fn the_outage_begins_before_the_fault_and_the_recovery_after_it() {
        let g = run(&[
            (0, "grant"),
            (10, "grant"),
            (12, "install"),
            (14, "grant"),
            (500, "grant"),
            (600, "heal"),
            (601, "healed"),
            (606, "grant"),
            (5000, "grant"),
        ]);
        let wanted = Gaps {
            outage_ms: Some(486.0),
            recovery_ms: Some(5.0),
        };
        assert_eq!(g, wanted);
    }

    #[test]
    fn a_service_that_comes_back_only_after_the_heal_was_out_for_longer() {
        let g = run(&[
            (0, "grant"),
            (10, "install"),
            (100, "heal"),
            (100, "healed"),
            (250, "grant"),
        ]);
        assert_eq!((g.outage_ms, g.recovery_ms), (Some(250.0), Some(150.0)));
    }

    #[test]
    fn without_a_fault_or_a_later_grant_there_is_neither() {
        let none = Gaps::default();
        assert_eq!(run(&[(0, "grant"), (900, "healed"), (990, "grant")]), none);
        let never = run(&[(0, "grant"), (10, "install"), (20, "heal"), (20, "healed")]);
        assert_eq!(never, none);
        let skipped = run(&[(0, "grant"), (10, "skip"), (900, "grant")]);
        assert_eq!(skipped.outage_ms, None);
    }
}
