//! The share of acknowledged updates that were lost, over all runs of a scenario.

use std::collections::BTreeMap;

use serde_json::Value;

/// One line for each scenario and version of a service whose runs count their updates.
pub fn pooled(rows: &[Value]) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for row in rows {
        let (acknowledged, lost) = (&row["updates"]["acknowledged"], &row["updates"]["lost"]);
        let (Some(n), Some(k)) = (acknowledged.as_u64(), lost.as_u64()) else {
            continue;
        };
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let name = format!(
            "{} on {} {}",
            text("scenario"),
            text("system"),
            text("version")
        );
        groups.entry(name).or_default().push((k, n));
    }
    let line = |(name, runs): (&String, &Vec<(u64, u64)>)| {
        let (k, n) = runs
            .iter()
            .fold((0, 0), |(k, n), run| (k + run.0, n + run.1));
        let (low, high) = wilson(k, n);
        format!(
            "{name}: {k} of {n} acknowledged updates lost in {} runs: {} (95 % interval {} to {})",
            runs.len(),
            percent(share(k, n)),
            percent(low),
            percent(high)
        )
    };
    groups.iter().map(line).collect()
}

fn percent(x: f64) -> String {
    format!("{:.1} %", x * 100.0)
}

fn share(k: u64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { k as f64 / n as f64 }
}

/// Wilson's score interval at 95 %. It takes each update for itself, although losses come in bursts: the true
/// interval is wider.
fn wilson(k: u64, n: u64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (z, n, p) = (1.96_f64, n as f64, share(k, n));
    let centre = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    ((centre - half) / scale, (centre + half) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wilson_is_what_the_tables_say() {
        // R: prop.test(18, 100, correct = FALSE)
        let (low, high) = wilson(18, 100);
        assert!((low - 0.1170).abs() < 5e-4 && (high - 0.2667).abs() < 5e-4);
        let (low, high) = wilson(0, 50);
        assert!(low.abs() < 1e-9 && high > 0.05);
    }

    #[test]
    fn runs_are_pooled_by_scenario_and_version() {
        let row = |version: &str, n: u64, k: u64| {
            json!({"scenario": "s", "system": "etcd", "version": version,
                   "updates": {"acknowledged": n, "lost": k}})
        };
        let rows = [
            row("3.4.23", 40, 4),
            row("3.4.23", 60, 14),
            row("3.5.16", 10, 0),
            json!({}),
        ];
        let lines = pooled(&rows);
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].starts_with(
                "s on etcd 3.4.23: 18 of 100 acknowledged updates lost in 2 runs: 18.0 %"
            ),
            "{}",
            lines[0]
        );
    }
}
