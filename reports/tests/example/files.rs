//! `run.json` and `verdict.json` of the example.

use serde_json::{Value, json};

use super::{Example, MS};

impl Example {
    /// Index of the event of `process` that is `f` and `kind` at `at` ms.
    pub fn index(&self, at: i64, f: &str, kind: &str) -> u64 {
        let found = self
            .events
            .iter()
            .position(|(t, e)| *t == at * MS && e["f"] == f && e["type"] == kind);
        found.unwrap() as u64
    }

    /// `run.json` as the controller would write it.
    pub fn meta(&self) -> Value {
        json!({"format": 1, "run_id": "example", "name": "kleppmann-pause", "seed": 7, "host": "local",
            "system": {"name": "redis", "version": "8.0.2", "lease": true, "fence": true, "granularity_ms": 1},
            "store": {"kind": "witness", "fenced": false, "raise_on_read": false, "faulted": false},
            "lease": {"ttl_ms": 2000}, "workers": 3, "clients": 4, "mode": "exclusive", "workload": "register",
            "expect": {"stale-fence-accepted": "violated", "lost-update": "violated",
                "double-holder.service": "holds", "double-holder.limit": "violated", "lease-overrun": "violated"},
            "scenario": {"name": "kleppmann-pause",
                "about": "A holder is paused past its lease and writes with its old fence.",
                "lease": {"ttl_ms": 2000}, "load": {"rate": 22.0, "workers": 3, "clients": 4},
                "faults": [{"fault": "pause", "target": "holder", "on": "point before-store-write", "until": "write by another"}]},
            "target_rate": 22.0, "faults_planned": 1, "fencepost": "0.1.0",
            "command": ["fencepost", "run", "kleppmann-pause", "--system", "redis", "--seed", "7"],
            "started": "2026-01-15T10:20:30Z", "status": "complete", "failure": null})
    }

    /// `verdict.json` as the checks would write it.
    pub fn verdict(&self) -> Value {
        let step = |at: i64, f: &str, kind: &str, text: &str| json!({"index": self.index(at, f, kind), "time": at * MS, "text": text});
        let story = vec![
            step(
                6_032,
                "acquire",
                "ok",
                "worker 0 is granted the lock with fence 33 for 2,000 ms",
            ),
            step(
                6_255,
                "fault",
                "info",
                "worker 0 is paused just before its write",
            ),
            step(
                8_100,
                "acquire",
                "ok",
                "the lease has ended; worker 1 is granted the lock with fence 34",
            ),
            step(
                8_403,
                "write",
                "ok",
                "worker 1 writes with fence 34, and the store accepts it",
            ),
            step(
                8_760,
                "fault",
                "info",
                "worker 0 runs again and still believes that it holds the lock",
            ),
            step(
                8_763,
                "write",
                "ok",
                "worker 0's write with fence 33 is accepted after fence 34",
            ),
        ];
        let evidence = [
            self.index(8_403, "write", "ok"),
            self.index(8_763, "write", "ok"),
        ];
        let check = |verdict: &str,
                     expected: &str,
                     reason: &str,
                     told: bool,
                     count: u64,
                     exercised: u64| {
            let (evidence, story) = if told {
                (json!(evidence), json!(story))
            } else {
                (json!([]), json!([]))
            };
            json!({"verdict": verdict, "expected": expected, "reason": reason, "evidence": evidence,
                "story": story, "count": count, "exercised": exercised})
        };
        json!({"format": 1, "outcome": "as-expected", "exit_code": 0, "checks": {
            "stale-fence-accepted": check("violated", "violated", "fence 33 was accepted after fence 34", true, 1, 1),
            "lost-update": check("violated", "violated", "updates v-34 and v-33 both replace v-32", true, 1, 259),
            "lease-overrun": check("violated", "violated", "worker 0 wrote 743 ms after its promised end", true, 1, 1),
            "double-holder.limit": check("violated", "violated", "worker 0 claims fence 33 while worker 1 holds fence 34", true, 1, 2),
            "double-holder.service": check("holds", "holds", "no two grants overlap within their promised ends", false, 0, 259),
            "fence-monotonic": check("holds", "not-violated", "every grant has a higher fence than the one before", false, 0, 259),
            "unheld-write": check("holds", "not-violated", "every write was made under a grant", false, 0, 260),
            "owner-only": check("holds", "not-violated", "nobody freed another's lock", false, 0, 260),
            "fair": check("unknown", "any", "the service promises no order", false, 0, 0),
        }})
    }
}
