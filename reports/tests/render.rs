//! The reports of the example run folder, and of folders with parts missing.

#![allow(clippy::unwrap_used)]

mod example;

use std::path::Path;

use example::Example;

fn rendered(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn example(lock: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    Example::kleppmann(lock).write(folder.path());
    fencepost_reports::render(folder.path()).unwrap();
    folder
}

#[test]
fn summary_reads_well() {
    let folder = example("L0");
    insta::assert_snapshot!(rendered(folder.path(), "summary.md"));
}

#[test]
fn junit_has_a_case_per_check() {
    let folder = example("L0");
    insta::assert_snapshot!(rendered(folder.path(), "junit.xml"));
}

#[test]
fn unexpected_answers_fail_and_unmet_demands_fail() {
    let folder = tempfile::tempdir().unwrap();
    let run = Example::kleppmann("L0");
    run.write(folder.path());
    let verdict = run.verdict().to_string();
    let verdict = verdict.replacen("\"expected\":\"violated\"", "\"expected\":\"holds\"", 1);
    let verdict = verdict.replace("\"expected\":\"any\"", "\"expected\":\"holds\"");
    let verdict = verdict.replace("as-expected", "violated");
    std::fs::write(folder.path().join("verdict.json"), verdict).unwrap();
    fencepost_reports::render(folder.path()).unwrap();
    let junit = rendered(folder.path(), "junit.xml");
    assert!(junit.contains("failures=\"2\""), "{junit}");
    assert!(
        junit.contains("unknown, expected holds: the service promises no order"),
        "{junit}"
    );
    let html = rendered(folder.path(), "report.html");
    assert!(html.contains("Violated unexpectedly"));
    assert!(html.contains("not met"));
}

#[test]
fn the_page_is_self_contained() {
    let folder = example("L0");
    let html = rendered(folder.path(), "report.html");
    for reference in [
        "src=",
        "@import",
        "<link",
        "<iframe",
        "url(http",
        "url(\"",
        "fetch(",
        "href=\"http",
    ] {
        assert!(!html.contains(reference), "{reference}");
    }
    let schemes = html.matches("http:").count() + html.matches("https:").count();
    let names = html.matches("http://www.w3.org/").count();
    assert_eq!(
        schemes, names,
        "only XML namespace names may look like addresses"
    );
}

#[test]
fn every_link_has_its_target() {
    links_resolve(&rendered(example("L0").path(), "report.html"));
}

#[test]
fn every_link_has_its_target_when_there_is_evidence_but_no_story() {
    let folder = example("L0");
    let verdict = std::fs::read_to_string(folder.path().join("verdict.json")).unwrap();
    let verdict = verdict.replace("\"story\":[{", "\"left-out\":[{");
    std::fs::write(folder.path().join("verdict.json"), verdict).unwrap();
    fencepost_reports::render(folder.path()).unwrap();
    let html = rendered(folder.path(), "report.html");
    assert!(html.contains("href=\"#step-2\""));
    links_resolve(&html);
}

fn links_resolve(html: &str) {
    let ids: std::collections::BTreeSet<&str> = between(html, " id=\"");
    let links = between(html, "href=\"#");
    assert!(links.iter().any(|l| l.starts_with('e')));
    for link in links {
        assert!(ids.contains(link), "#{link} leads nowhere");
    }
    let all = html.matches(" id=\"").count();
    assert_eq!(all, ids.len(), "an id is there twice");
}

fn between<'a>(html: &'a str, start: &str) -> std::collections::BTreeSet<&'a str> {
    html.split(start)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn names_from_the_history_are_only_text() {
    let folder = example("<script>alert('x')</script>\"&|");
    let html = rendered(folder.path(), "report.html");
    assert_eq!(
        html.matches("<script").count(),
        1,
        "only the page's own script"
    );
    assert!(!html.contains("alert('x')"));
    let summary = rendered(folder.path(), "summary.md");
    assert!(!summary.contains("<script"));
}

#[test]
fn any_part_may_be_missing() {
    for gone in ["run.json", "verdict.json", "history.jsonl", "store.jsonl"] {
        let folder = tempfile::tempdir().unwrap();
        Example::kleppmann("L0").write(folder.path());
        std::fs::remove_file(folder.path().join(gone)).unwrap();
        fencepost_reports::render(folder.path()).unwrap();
        let html = rendered(folder.path(), "report.html");
        assert!(html.contains(&format!("There is no {gone}")), "{gone}");
    }
    let empty = tempfile::tempdir().unwrap();
    fencepost_reports::render(empty.path()).unwrap();
    assert!(rendered(empty.path(), "summary.md").contains("Not judged yet"));
    assert!(rendered(empty.path(), "junit.xml").contains("errors=\"1\""));
}

#[test]
fn a_torn_history_is_shown_up_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let run = Example::kleppmann("L0");
    run.write(folder.path());
    let history = run.history();
    std::fs::write(
        folder.path().join("history.jsonl"),
        &history[..history.len() / 2 + 7],
    )
    .unwrap();
    std::fs::write(folder.path().join("store.jsonl"), "{\"seq\":1,").unwrap();
    std::fs::write(folder.path().join("run.json"), "{").unwrap();
    fencepost_reports::render(folder.path()).unwrap();
    let html = rendered(folder.path(), "report.html");
    assert!(html.contains("About the history"), "{}", &html[..3000]);
    assert!(html.contains("last line of store.jsonl is torn"));
    assert!(html.contains("run.json is not valid JSON"));
}

#[test]
fn a_folder_that_is_none_is_an_error() {
    let error = fencepost_reports::render(Path::new("no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("is not a run folder"), "{error}");
}

#[test]
fn a_matrix_links_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let row = |system: &str, fault: &str, outcome: &str, answer: &str| {
        serde_json::json!({"system": system, "fault": fault, "scenario": format!("{system}-{fault}"),
            "run": format!("{system}/{fault}"), "outcome": outcome, "checks": {"double-holder.service": answer},
            "acquire_p50_ms": 0.5, "acquire_p99_ms": 2.0, "throughput": 480.0, "outage_ms": 1520.0, "recovery_ms": null})
    };
    let rows = [
        row("redis", "pause", "as-expected", "holds"),
        row("redis", "failover", "violated", "violated"),
        row("<etcd>", "pause", "unknown", "unknown"),
    ];
    let matrix = serde_json::json!({"format": 1, "rows": rows}).to_string();
    std::fs::write(folder.path().join("matrix.json"), matrix).unwrap();
    fencepost_reports::render_matrix(folder.path()).unwrap();
    let html = rendered(folder.path(), "matrix.html");
    assert!(html.contains("1 of 3 runs came out"));
    assert!(html.contains("href=\"./redis/pause/report.html\""));
    assert!(!html.contains("<etcd>"));
    assert!(html.contains("not run"));
    assert!(html.contains("Outage") && html.contains("1.52 s"), "{html}");
    std::fs::write(folder.path().join("matrix.json"), "{\n\"rows\": 3}").unwrap();
    let error = fencepost_reports::render_matrix(folder.path()).unwrap_err();
    assert!(error.to_string().contains("matrix.json line 2"), "{error}");
}

/// Thousands of overlapping holds, long names and long errors on one lock.
#[test]
fn a_crowded_history_gives_a_page_of_bounded_size() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(1_200);
    let mut lines = Vec::new();
    for n in 0..1_500_u64 {
        let (time, owner, worker) = (n * 100_000, format!("{long}{n}"), n % 40);
        let ask = serde_json::json!({"index": 4 * n, "time": time, "process": n, "type": "invoke", "f": "acquire",
            "key": "L", "value": {"worker": worker}});
        let granted = serde_json::json!({"index": 4 * n + 1, "time": time + 10, "process": n, "type": "ok", "f": "acquire",
            "key": "L", "value": {"owner": owner, "fence": n, "ttl_ms": 2000}});
        let write = serde_json::json!({"index": 4 * n + 2, "time": time + 20, "process": n, "type": "invoke", "f": "write",
            "key": "L", "value": {"worker": worker, "owner": owner, "fence": n, "value": long}});
        let fault = serde_json::json!({"index": 4 * n + 3, "time": time + 30, "process": "nemesis", "type": "info",
            "f": "fault", "value": {"id": format!("f{n}"), "fault": "pause", "kind": "pause", "action": "install",
            "targets": [long], "affects": [long], "status": "installed", "reason": long, "receipt": {"text": long}}});
        lines.extend([ask, granted, write, fault].map(|line| format!("{line}\n")));
    }
    std::fs::write(folder.path().join("history.jsonl"), lines.concat()).unwrap();
    let evidence: Vec<u64> = (0..6_000).collect();
    let check = serde_json::json!({"verdict": "violated", "expected": "holds", "reason": long, "evidence": evidence,
        "story": [{"index": 5, "time": 100_010, "text": long}, {"index": 9, "time": 300_010, "text": "then"}]});
    let verdict = serde_json::json!({"format": 1, "outcome": "violated", "exit_code": 1, "checks": {"double-holder.service": check}});
    std::fs::write(folder.path().join("verdict.json"), verdict.to_string()).unwrap();
    fencepost_reports::render(folder.path()).unwrap();
    let html = rendered(folder.path(), "report.html");
    assert!(html.len() < 800_000, "{} bytes", html.len());
    assert!(html.contains("holds of this lock in this window are shown"));
    assert!(html.contains("more faults are in history.jsonl"));
    assert!(html.contains("and 5976 more"));
    assert!(rendered(folder.path(), "summary.md").len() < 40_000);
}
