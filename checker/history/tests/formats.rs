//! Jepsen's formats, pairing, and the shared collection of histories where it is present.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use fencepost_history::pairs::{Fed, Pairing, pairs};
use fencepost_history::{EventType, Process, Reader, Value, read_bytes, read_path};
use proptest::prelude::*;

#[test]
fn edn_in_all_its_dresses_reads_the_same() {
    let maps = [
        "{:type :invoke, :f :write, :value 3, :process 1, :time 5, :index 0}",
        "{:type :info, :f :start, :process :nemesis, :time 6, :index 1}",
        "{:type :info, :f :write, :value 3, :process 1, :time 7, :error [:x nil], :index 2}",
    ];
    let ops: Vec<String> = maps
        .iter()
        .map(|m| format!("#jepsen.history.Op{m}"))
        .collect();
    let strings: Vec<String> = maps
        .iter()
        .map(|m| {
            m.replace(":type :", "\"type\" \"")
                .replace("invoke,", "invoke\",")
                .replace("info,", "info\",")
        })
        .collect();
    let want = read_bytes(maps.join("\n")).unwrap().events;
    assert_eq!(want.len(), 3);
    assert_eq!(want[1].process, Process::Named("nemesis".into()));
    assert_eq!(want[2].kind, EventType::Info);
    assert_eq!(want[2].error.as_deref(), Some(r#"["x",null]"#));
    for text in [
        format!("[{}]", maps.join("\n")),
        format!("({})\n", maps.join(" ")),
        format!("; a comment\n[{}\n; end\n]", maps.join(",\n")),
        ops.join("\n"),
        format!("[{}]", ops.join("\n")),
        strings.join("\n"),
    ] {
        assert_eq!(read_bytes(text.clone()).unwrap().events, want, "{text}");
    }
}

#[test]
fn edn_errors_name_the_line_and_torn_ends_are_tolerated() {
    let one = "{:type :invoke, :f :write, :value 3, :process 1}";
    let e = read_bytes(format!("[{one}\n{{:type :what, :f :write, :process 2}}]")).unwrap_err();
    assert_eq!(e.line(), Some(2), "{e}");
    let e = read_bytes(format!("[{one}\n7]")).unwrap_err();
    assert_eq!(e.line(), Some(2), "{e}");
    let h = read_bytes(format!("[{one}\n{{:type :ok, :f")).unwrap();
    assert_eq!(h.events.len(), 1);
    assert!(h.warnings[0].what.contains("torn"));
    assert!(read_bytes(format!("[{one}] 7")).is_err());
}

#[test]
fn edn_that_is_no_text_is_malformed_by_line() {
    let mut bytes = b"{:type :invoke, :f :read}\n{:type :ok, :f \"".to_vec();
    bytes.push(0xff);
    let e = read_bytes(bytes).unwrap_err();
    assert_eq!(e.line(), Some(2), "{e}");
}

#[test]
fn a_json_array_reads_too() {
    let h = read_bytes(
        r#"[{"index":0,"process":0,"type":"invoke","f":"read","value":null},
            {"index":1,"process":0,"type":"ok","f":"read","value":"null"}]"#,
    )
    .unwrap();
    assert_eq!(h.events[0].value, Value::Null);
    assert_eq!(h.events[1].value, Value::Str("null".into()));
    assert_eq!(h.lines, [1, 2]);
}

#[test]
fn text_logs() {
    let log = "INFO  jepsen.core - hello\nINFO  jepsen.util - 0\t:invoke\t:cas\t[3 0]\n\
               INFO  jepsen.util - 0\t:info\t:cas\t:timed-out\n";
    let h = read_bytes(log).unwrap();
    assert_eq!(h.events.len(), 2);
    assert_eq!(h.lines, [2, 3]);
    assert!(h.rank(0) < h.rank(1));
    assert!(read_bytes("just some text\n").is_err());
    assert!(read_bytes("").unwrap().events.is_empty());
}

fn event(p: u32, kind: &str, f: &str) -> String {
    format!("{{\"process\":{p},\"type\":\"{kind}\",\"f\":\"{f}\"}}\n")
}

/// Both ways of pairing, which must agree.
fn pair(text: &str) -> Result<usize, String> {
    let h = read_bytes(text).unwrap();
    let whole = pairs(&h).map(|ops| ops.len()).map_err(|e| e.to_string());
    let mut p = Pairing::new();
    let mut done = 0;
    let mut streamed = Ok(());
    for r in Reader::from_bytes(text.into()).unwrap() {
        match p.feed(r.unwrap()) {
            Ok(Fed::Completed { .. }) => done += 1,
            Ok(_) => {}
            Err(e) => {
                streamed = Err(e.to_string());
                break;
            }
        }
    }
    let streamed = streamed.map(|()| done + p.finish().len());
    assert_eq!(whole, streamed);
    whole
}

#[test]
fn pairing_refuses_what_no_sequential_client_does() {
    let nemesis = "{\"process\":\"nemesis\",\"type\":\"info\",\"f\":\"kill\"}\n";
    let invoke = event(0, "invoke", "read");
    assert_eq!(
        pair(&[&*invoke, nemesis, &event(0, "ok", "read"), &invoke].concat()),
        Ok(2)
    );
    for (text, line) in [
        (event(0, "ok", "read"), 1),
        ([&*invoke, &*invoke].concat(), 2),
        ([&*invoke, &event(0, "info", "read"), &invoke].concat(), 3),
        ([&*invoke, &event(0, "ok", "write")].concat(), 2),
        (
            [&*invoke, &event(0, "info", "read"), &event(0, "ok", "read")].concat(),
            3,
        ),
    ] {
        let e = pair(&text).unwrap_err();
        assert!(e.starts_with(&format!("line {line}:")), "{e}");
    }
}

#[test]
fn an_ok_with_an_error_keeps_both() {
    let h = read_bytes(
        "{\"process\":0,\"type\":\"ok\",\"f\":\"read\",\"value\":3,\"error\":\"late\"}\n",
    )
    .unwrap();
    assert_eq!(h.events[0].value, Value::Int(3));
    assert_eq!(h.events[0].error.as_deref(), Some("late"));
}

proptest! {
    #[test]
    fn edn_and_text_bytes_never_panic(s in "[\\[\\](){}:;#_^\"\\\\a-z0-9 ,\t\n\u{e9}]{0,120}") {
        for head in ["[", "(", "#", "{:a ", "0\t:ok\t"] {
            let _ = read_bytes(format!("{head}{s}"));
        }
    }
}

#[test]
fn the_shared_histories_pair() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/histories");
    for folder in ["knossos", "porcupine", "synthetic"] {
        let Ok(files) = std::fs::read_dir(root.join(folder)) else {
            continue;
        };
        for f in files {
            let path = f.unwrap().path();
            if path.to_string_lossy().contains("100k") {
                continue;
            }
            let h = read_path(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let ops = pairs(&h).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            // One file has faults only.
            let calls = h
                .events
                .iter()
                .any(|e| matches!(e.process, Process::Client(_)));
            assert_eq!(calls, !ops.is_empty(), "{}", path.display());
        }
    }
}
