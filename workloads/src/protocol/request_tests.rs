#![allow(clippy::unwrap_used)]
use super::*;

fn round(line: &str) -> ToWorker {
    let parsed = ToWorker::parse(line.as_bytes()).unwrap();
    let mut out = Vec::new();
    parsed.write_line(&mut out);
    assert_eq!(ToWorker::parse(&out).unwrap(), parsed, "{line}");
    parsed
}

#[test]
fn every_request_survives_a_round_trip() {
    let hold = r#""client":1,"key":"L0","owner":"o","fence":"33""#;
    for line in [
        r#"{"id":1,"op":"init","protocol":1,"worker":0,"clients":2,"seed":7,"system":{"name":"redis","endpoints":[{"name":"n0","addr":"127.0.0.1:1"}],"params":{"bug":"A2"}},"store":{"kind":"witness","addr":"127.0.0.1:2","fenced":false},"ttl_ms":2000,"timeout_ms":500}"#,
        r#"{"id":2,"op":"acquire","client":0,"key":"L0","mode":"semaphore","ttl_ms":2000,"wait_ms":500,"permits":3}"#,
        r#"{"id":3,"op":"acquire","client":0,"key":"L0","ttl_ms":null}"#,
        &format!(r#"{{"id":4,"op":"renew",{hold},"ttl_ms":10}}"#),
        &format!(r#"{{"id":5,"op":"release",{hold}}}"#),
        &format!(r#"{{"id":6,"op":"read",{hold}}}"#),
        &format!(
            r#"{{"id":7,"op":"write",{hold},"value":"v","prev":null,"stop_at":"before-store-write"}}"#
        ),
        &format!(r#"{{"id":8,"op":"add",{hold},"element":5,"work_ms":3}}"#),
        r#"{"id":9,"op":"ping"}"#,
        r#"{"id":10,"op":"close"}"#,
        r#"{"go":9}"#,
    ] {
        round(line);
    }
}

#[test]
fn fences_come_as_numbers_or_strings() {
    let line =
        r#"{"id":5,"op":"read","client":0,"key":"k","owner":"o","fence":"18446744073709551615"}"#;
    let ToWorker::Request(Request {
        op: Op::Read(h), ..
    }) = round(line)
    else {
        panic!()
    };
    assert_eq!(h.fence, Some(Fence(u64::MAX)));
}

#[test]
fn what_is_wrong_is_named() {
    for (line, want) in [
        (r#"{"id":1,"op":"steal"}"#, "steal"),
        (r#"{"id":1,"op":"ping","colour":1}"#, "colour"),
        (r#"{"id":1,"op":"acquire","client":0}"#, "lacks \"key\""),
        (r#"{"op":"ping"}"#, "lacks \"id\""),
        (r#"{"id":1,"go":1}"#, "lacks \"id\""),
        ("[]", "not a line"),
        ("", "not a line"),
    ] {
        let err = ToWorker::parse(line.as_bytes()).unwrap_err().to_string();
        assert!(err.contains(want), "{line}: {err}");
    }
}
