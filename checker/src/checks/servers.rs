//! Servers run on: violated when one ended although neither a fault nor the run ended it.
//!
//! Where a majority goes on serving, nothing else shows it. A fault that may end a server by its own effect (a full
//! disk, a disk that has forgotten something) says so in its event, `may_end`: the end of a server that it is aimed at, from
//! then on, is no finding.

use std::sync::Arc;

use fencepost_history::{Event, Value};
use hashbrown::HashMap;

use super::finding::{Findings, Otherwise, plural, seconds};
use super::track::{Stamp, Tracker, What};
use super::{Check, Cx, Entry, Finding, Results};
use crate::judge::facts::Facts;

pub const ENTRY: Entry = Entry {
    name: "servers-run-on",
    about: "a server ended by itself: no fault and not the run ended it",
    new: |_| Box::new(Servers::default()),
    live: Some(|_| Box::new(Servers::default())),
};

#[derive(Default)]
struct Servers {
    findings: Findings,
    /// The fault that may end each of these servers.
    may_end: HashMap<Arc<str>, Arc<str>>,
    /// Servers that such a fault ended.
    excused: Vec<String>,
}

impl Servers {
    fn fault(&mut self, v: &Value) {
        let said = v.get("may_end").and_then(Value::as_bool) == Some(true);
        let skipped = v.get("status").and_then(Value::as_str) == Some("skipped");
        let (Some(Value::Str(fault)), Some(Value::List(targets))) =
            (v.get("fault"), v.get("targets"))
        else {
            return;
        };
        if !said || skipped {
            return;
        }
        for target in targets {
            if let Value::Str(node) = target {
                self.may_end.insert(node.clone(), fault.clone());
            }
        }
    }

    fn ended(&mut self, e: &Event, now: Stamp) {
        let word = |name: &str| e.value.get(name).and_then(Value::as_str);
        let Some(node) = word("node") else { return };
        let name = word("name").map_or(node.to_owned(), |n| format!("{node} ({n})"));
        let how = word("reason").unwrap_or("nobody knows how");
        if let Some(fault) = self.may_end.get(node) {
            self.excused
                .push(format!("{name} ended, as fault {fault} may end it: {how}"));
            return;
        }
        let mut f = Finding::new(format!(
            "{name} ended by itself at {}, {how}{}",
            seconds(now.time),
            last_words(&e.value)
        ));
        f = f.tell(now, format!("{name} ends, {how}"));
        self.findings.add(f);
    }
}

fn last_words(v: &Value) -> String {
    let Some(Value::List(lines)) = v.get("log") else {
        return String::new();
    };
    let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
    match lines.is_empty() {
        true => "; its log is empty".into(),
        false => format!("; its log ends: {}", lines.join(" | ")),
    }
}

impl Check for Servers {
    fn event(&mut self, cx: &Cx<'_>) {
        match cx.seen.what {
            What::Fault => self.fault(&cx.event.value),
            What::Exit(None) => self.ended(cx.event, cx.seen.now),
            _ => {}
        }
    }

    fn certain(&self) -> u64 {
        self.findings.count
    }

    fn tell(&self, _: &Tracker) -> Vec<(&'static str, Finding)> {
        self.findings.told(ENTRY.name)
    }

    fn finish(self: Box<Self>, facts: &Facts, _: &Tracker, out: &mut Results) {
        let watched = facts.nodes.unwrap_or(0);
        let otherwise = match (facts.nodes, self.excused.as_slice()) {
            (None, _) => Otherwise::Unknown("nobody watched the servers".into()),
            (Some(0), _) => Otherwise::Unknown("there are no servers".into()),
            (Some(n), []) => Otherwise::Holds(format!(
                "none of {} ended but by a fault",
                plural(n, "server")
            )),
            (Some(_), excused) => Otherwise::Holds(excused.join("; ")),
        };
        out.insert(
            ENTRY.name.into(),
            self.findings.conclude(watched, otherwise),
        );
    }
}
