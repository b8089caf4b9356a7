//! JSONL: exact round trips, named lines, torn tails, order.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::sync::Arc;

use fencepost_history::{Event, EventType, History, Process, ReadError, Value, read_bytes};
use proptest::prelude::*;

const ONE: &str =
    r#"{"index":0,"time":5,"process":0,"type":"invoke","f":"read","key":"L0","value":null}"#;

fn text(lines: &[&str]) -> Vec<u8> {
    let mut t = lines.join("\n").into_bytes();
    t.push(b'\n');
    t
}

fn read(lines: &[&str]) -> Result<History, ReadError> {
    read_bytes(text(lines))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|i| Value::Int(i.into())),
        any::<u64>().prop_map(|i| Value::Int(i.into())),
        any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Value::Float),
        any::<String>().prop_map(|s| Value::Str(s.into())),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|m| Value::Map(m.into_iter().map(|(k, v)| (k.into(), v)).collect())),
        ]
    })
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        Just(EventType::Invoke),
        Just(EventType::Ok),
        Just(EventType::Fail),
        Just(EventType::Info)
    ];
    let process = prop_oneof![
        any::<u64>().prop_map(Process::Client),
        "[a-z][a-z0-9\"\\\\]{0,6}".prop_map(|s| Process::Named(s.into()))
    ];
    let word = prop::option::of(any::<String>().prop_map(Arc::<str>::from));
    (
        any::<u64>(),
        any::<i64>(),
        process,
        kind,
        any::<String>(),
        word.clone(),
        value(),
        word,
    )
        .prop_map(|(index, time, process, kind, f, key, value, error)| Event {
            index,
            time,
            process,
            kind,
            f: f.into(),
            key,
            value,
            error,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn round_trip_is_exact(e in event()) {
        let mut out = Vec::new();
        fencepost_history::json::write_event(&mut out, &e);
        let back = read_bytes(out).unwrap();
        prop_assert_eq!(&back.events, &vec![e]);
    }

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_bytes(bytes);
    }

    #[test]
    fn mutilated_lines_never_panic(e in event(), at in any::<prop::sample::Index>(), b in any::<u8>()) {
        let mut out = Vec::new();
        fencepost_history::json::write_event(&mut out, &e);
        let i = at.index(out.len());
        out[i] = b;
        let _ = read_bytes(out.clone());
        out.truncate(i);
        let _ = read_bytes(out);
    }
}

#[test]
fn sixty_four_bits_are_exact() {
    let h = read(&[
        r#"{"index":18446744073709551615,"time":-9223372036854775808,"process":1,"type":"ok","f":"acquire","value":{"fence":18446744073709551615,"s":"18446744073709551614"}}"#,
    ])
    .unwrap();
    assert_eq!(h.events[0].index, u64::MAX);
    assert_eq!(h.events[0].time, i64::MIN);
    let v = &h.events[0].value;
    assert_eq!(v.get("fence").and_then(Value::as_u64), Some(u64::MAX));
    assert_eq!(v.get("s").and_then(Value::as_u64), Some(u64::MAX - 1));
}

#[test]
fn malformed_lines_are_named() {
    for (bad, what) in [
        ("{", "column"),
        (r#"{"process":0,"type":"invoke"}"#, "f is missing"),
        (r#"{"process":0,"type":"begin","f":"read"}"#, "type must be"),
        (
            r#"{"process":[],"type":"ok","f":"read"}"#,
            "process must be",
        ),
        (r#"{"type":"ok","f":"read"}"#, "process is missing"),
        (
            r#"{"index":-1,"process":0,"type":"ok","f":"read"}"#,
            "index must be",
        ),
        (
            r#"{"time":0.5,"process":0,"type":"ok","f":"read"}"#,
            "time must be",
        ),
    ] {
        let e = read(&[ONE, bad, ONE]).unwrap_err();
        assert_eq!(e.line(), Some(2), "{bad}");
        assert!(e.to_string().contains(what), "{bad}: {e}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!(
        r#"{{"process":0,"type":"ok","f":"read","value":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(read(&[&deep]).unwrap_err().to_string().contains("deep"));
}

#[test]
fn a_torn_last_line_is_left_out_with_a_warning() {
    let mut t = text(&[ONE]);
    t.extend_from_slice(br#"{"index":1,"time":6,"proc"#);
    let h = read_bytes(t).unwrap();
    assert_eq!(h.events.len(), 1);
    assert_eq!(h.warnings[0].line, 2);
    assert!(h.warnings[0].what.contains("torn"));
    // A whole last line that only lacks its newline counts.
    assert_eq!(read_bytes(ONE.as_bytes()).unwrap().events.len(), 1);
}

#[test]
fn index_absent_or_null_is_assigned_and_equal_times_are_concurrent() {
    let line = |index: &str, time: u32, p: u32| {
        format!(r#"{{{index}"time":{time},"process":{p},"type":"invoke","f":"read"}}"#)
    };
    for index in ["", r#""index":null,"#] {
        let l = [line(index, 1, 0), line(index, 1, 1), line(index, 2, 2)];
        let h = read(&[&l[0], &l[1], &l[2]]).unwrap();
        let indexes: Vec<u64> = h.events.iter().map(|e| e.index).collect();
        assert_eq!(indexes, [0, 1, 2]);
        assert_eq!(h.rank(0), h.rank(1));
        assert!(h.rank(1) < h.rank(2));
    }
    let l = [line(r#""index":4,"#, 1, 0), line(r#""index":2,"#, 1, 1)];
    let h = read(&[&l[0], &l[1]]).unwrap();
    assert_eq!(h.events[0].index, 2, "sorted by index");
    assert_eq!(h.lines[0], 2);
    assert!(
        h.rank(0) < h.rank(1),
        "index decides although times are equal"
    );
    let e = read(&[&l[0], &l[0]]).unwrap_err();
    assert!(e.to_string().contains("twice"), "{e}");
}

#[test]
fn time_that_steps_back_is_a_warning() {
    let h = read(&[
        r#"{"index":0,"time":5,"process":0,"type":"invoke","f":"read"}"#,
        r#"{"index":1,"time":4,"process":1,"type":"invoke","f":"read"}"#,
    ])
    .unwrap();
    assert_eq!(h.warnings.len(), 1);
    assert_eq!(h.warnings[0].to_string(), "line 2: time steps back");
}

#[test]
fn gzip_and_zstd_are_told_by_their_first_bytes() {
    let plain = text(&[ONE, &ONE.replace("\"index\":0", "\"index\":1")]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let gz = gz.finish().unwrap();
    let zs = zstd::encode_all(plain.as_slice(), 1).unwrap();
    let want = read_bytes(plain).unwrap().events;
    assert_eq!(read_bytes(gz.clone()).unwrap().events, want);
    assert_eq!(read_bytes(zs).unwrap().events, want);
    for cut in 0..gz.len() {
        if let Ok(h) = read_bytes(&gz[..cut]) {
            assert!(h.events.len() <= 2);
            assert!(h.events.len() == 2 || cut < 4 || !h.warnings.is_empty());
        }
    }
}
