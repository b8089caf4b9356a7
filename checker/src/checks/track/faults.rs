//! Which workers and nodes were paused, cut off or had their clocks bent, and when.

use std::sync::Arc;

use fencepost_history::Value;

use super::Stamp;

/// One fault from its first action to its last.
#[derive(Clone, Debug)]
pub struct Interval {
    pub id: Arc<str>,
    pub fault: Arc<str>,
    pub kind: Arc<str>,
    pub workers: Vec<u32>,
    pub nodes: bool,
    /// Before the installation was tried.
    pub start: Stamp,
    /// Proven to have taken hold.
    pub sure: Option<Stamp>,
    /// Before the healing was tried.
    pub heal: Option<Stamp>,
    /// Proven to be gone.
    pub end: Option<Stamp>,
    pub skipped: bool,
    pub indeterminate: bool,
    pub reason: Option<Arc<str>>,
}

/// What a fault event said.
pub enum Told {
    Begins(usize),
    Installed,
    Healing(usize),
    Other,
}

#[derive(Default)]
pub struct Faults {
    pub all: Vec<Interval>,
    /// Those not proven to be gone.
    open: Vec<usize>,
}

impl Faults {
    pub fn event(&mut self, v: &Value, now: Stamp) -> Told {
        let word = |n: &str| v.get(n).and_then(Value::as_str).unwrap_or_default();
        let id = word("id");
        let status = word("status");
        let mut open = self.open.iter().rev().copied();
        let known = open.find(|&i| &*self.all[i].id == id);
        if word("action") == "heal" {
            let Some(i) = known else { return Told::Other };
            let first = self.all[i].heal.is_none();
            self.all[i].heal.get_or_insert(now);
            if status == "healed" {
                self.end(i, now);
            }
            return if first { Told::Healing(i) } else { Told::Other };
        }
        let (i, begins) = match known {
            Some(i) => (i, false),
            None => {
                self.all.push(interval(v, now));
                self.open.push(self.all.len() - 1);
                (self.all.len() - 1, true)
            }
        };
        let reason = v.get("reason").and_then(Value::as_str).map(Arc::from);
        match status {
            "installed" => {
                self.all[i].sure = Some(now);
                if !begins {
                    return Told::Installed;
                }
            }
            "skipped" => {
                self.all[i].skipped = true;
                self.end(i, now);
                self.all[i].reason = reason;
            }
            "indeterminate" => {
                self.all[i].indeterminate = true;
                self.all[i].reason = reason;
            }
            _ => {}
        }
        if begins { Told::Begins(i) } else { Told::Other }
    }

    fn end(&mut self, i: usize, now: Stamp) {
        self.all[i].end = Some(now);
        self.open.retain(|&o| o != i);
    }

    /// The worker is surely stopped now: state T was seen, and nobody has tried to continue it.
    pub fn stopped(&self, worker: Option<u32>) -> bool {
        let Some(w) = worker else { return false };
        self.open.iter().any(|&i| {
            let i = &self.all[i];
            &*i.kind == "pause" && i.sure.is_some() && i.heal.is_none() && i.workers.contains(&w)
        })
    }

    /// A fault that may have kept this worker, across this moment, from noticing that its lease ran out.
    pub fn across(&self, worker: Option<u32>, time: i64) -> Option<&Interval> {
        let w = worker?;
        self.all.iter().find(|i| {
            !i.skipped
                && matches!(&*i.kind, "pause" | "cut" | "packets" | "clock")
                && i.workers.contains(&w)
                && i.start.time <= time
                && i.end.is_none_or(|e| time <= e.time)
        })
    }

    /// Some fault may be in force between these times.
    pub fn any_between(&self, from: i64, to: i64) -> bool {
        self.all
            .iter()
            .any(|i| !i.skipped && i.start.time <= to && i.end.is_none_or(|e| from <= e.time))
    }
}

fn interval(v: &Value, now: Stamp) -> Interval {
    let word = |n: &str| {
        let s = v.get(n).and_then(Value::as_str).unwrap_or_default();
        Arc::<str>::from(s)
    };
    let mut workers = Vec::new();
    let mut nodes = false;
    if let Some(Value::List(affected)) = v.get("affects") {
        for a in affected.iter().filter_map(Value::as_str) {
            match a.strip_prefix("worker:") {
                Some(n) => workers.extend(n.parse::<u32>()),
                None => nodes = true,
            }
        }
    }
    Interval {
        id: word("id"),
        fault: word("fault"),
        kind: word("kind"),
        workers,
        nodes,
        start: now,
        sure: None,
        heal: None,
        end: None,
        skipped: false,
        indeterminate: false,
        reason: None,
    }
}
