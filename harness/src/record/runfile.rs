//! `run.json`: what was run, so that it can be judged and repeated.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fencepost_checker::verdict::Expected;
use serde::Serialize;

use crate::scenario::{Scenario, longest};
use crate::system::Facts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Running,
    Complete,
    Interrupted,
    Failed,
}

/// The file as docs/history-format.md describes it.
#[derive(Clone, Debug, Serialize)]
pub struct RunFile {
    pub format: u32,
    pub run_id: String,
    pub name: String,
    pub seed: u64,
    pub host: String,
    pub system: Facts,
    pub store: StoreFacts,
    pub lease: LeaseFacts,
    pub workers: u32,
    pub clients: u32,
    pub mode: crate::scenario::Mode,
    pub permits: u32,
    pub workload: crate::scenario::Workload,
    pub expect: BTreeMap<String, Expected>,
    pub allow: AllowFacts,
    pub scenario: Scenario,
    pub target_rate: f64,
    pub achieved_rate: Option<f64>,
    pub faults_planned: usize,
    /// Servers that were started.
    pub nodes: usize,
    pub fencepost: String,
    /// Names and versions of whatever else took part: images, base, worker programs.
    pub versions: BTreeMap<String, String>,
    pub command: Vec<String>,
    pub started: String,
    pub ended: Option<String>,
    pub status: Status,
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StoreFacts {
    pub kind: String,
    pub fenced: bool,
    pub raise_on_read: bool,
    pub faulted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct LeaseFacts {
    /// None where locks have no lease.
    pub ttl_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct AllowFacts {
    pub freed_factor: f64,
    pub recovery_ms: u64,
    pub min_grants: u64,
}

impl RunFile {
    /// The file of a run that begins now.
    pub fn new(
        scenario: &Scenario,
        system: Facts,
        run_id: &str,
        seed: u64,
        command: Vec<String>,
    ) -> Self {
        let s = scenario;
        let ttl_ms = system.lease.then(|| s.ttl().as_millis() as u64);
        RunFile {
            format: 1,
            run_id: run_id.into(),
            name: s.name.clone(),
            seed,
            host: s.host.word().into(),
            system,
            store: StoreFacts {
                kind: s.store.kind.clone(),
                fenced: s.store.fenced,
                raise_on_read: s.store.raise_on_read,
                faulted: s.store.faulted,
            },
            lease: LeaseFacts { ttl_ms },
            workers: s.workers,
            clients: s.clients,
            mode: s.mode,
            permits: s.permits,
            workload: s.load.workload,
            expect: s.expect.clone(),
            allow: AllowFacts {
                freed_factor: s.allow.freed_factor,
                recovery_ms: longest(&s.allow.recovery, s.ttl()).as_millis() as u64,
                min_grants: s.allow.min_grants,
            },
            scenario: s.clone(),
            target_rate: s.load.rate,
            achieved_rate: None,
            faults_planned: s.faults.len(),
            nodes: 0,
            fencepost: env!("CARGO_PKG_VERSION").into(),
            versions: BTreeMap::new(),
            command,
            started: rfc3339(SystemTime::now()),
            ended: None,
            status: Status::Running,
            failure: None,
        }
    }

    /// Replaces `run.json` in `dir` in one step.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let staged = dir.join(".run.json");
        fs::write(&staged, text)?;
        fs::rename(staged, dir.join("run.json"))
    }
}

/// A point in time as RFC 3339, UTC, to the second (civil date from days: H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
pub fn rfc3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        let at = |s| rfc3339(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_996_799), "2026-11-29T23:59:59Z");
    }

    #[test]
    fn the_file_names_everything_that_a_verdict_needs() {
        let scenario = crate::scenario::find("kleppmann-pause").unwrap();
        let file = RunFile::new(
            &scenario,
            Facts::leased("redis"),
            "r1",
            7,
            vec!["fencepost".into()],
        );
        let dir = tempfile::tempdir().unwrap();
        file.write(dir.path()).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(dir.path().join("run.json")).unwrap())
                .unwrap();
        assert_eq!(json["status"], "running");
        assert_eq!(json["expect"]["stale-fence-accepted"], "violated");
        assert_eq!(json["system"]["granularity_ms"], 1);
        assert_eq!(json["store"]["fenced"], false);
        assert_eq!(json["faults_planned"], 1);
        assert_eq!(json["scenario"]["faults"][0]["fault"], "pause");
    }
}
