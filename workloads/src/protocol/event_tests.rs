#![allow(clippy::unwrap_used)]
use super::*;
use crate::protocol::{Answer, Claim, Granted, Hello, Item, OpName};

#[test]
fn every_answer_survives_a_round_trip() {
    let claim = Claim {
        key: "L0".into(),
        owner: "o".into(),
        fence: Some(Fence(u64::MAX)),
    };
    for (op, answer) in [
        (
            OpName::Init,
            Answer::Hello(Hello {
                protocol: 1,
                name: "redis".into(),
                clients: 64,
                points: vec!["before-store-write".into()],
                deadline: true,
            }),
        ),
        (
            OpName::Acquire,
            Answer::Granted(Granted {
                owner: "o".into(),
                fence: None,
                ttl_ms: Some(2),
            }),
        ),
        (OpName::Renew, Answer::Renewed { ttl_ms: Some(5) }),
        (OpName::Release, Answer::Released { held: false }),
        (OpName::Read, Answer::Value(None)),
        (OpName::Read, Answer::Value(Some(Item::str("v")))),
        (OpName::Ping, Answer::Claims(vec![claim])),
        (OpName::Ping, Answer::Claims(vec![])),
        (OpName::Write, Answer::Done),
        (OpName::Add, Answer::Fail("stale-fence".into())),
        (OpName::Acquire, Answer::Info("timeout".into())),
    ] {
        let mut out = Vec::new();
        Reply {
            id: 7,
            answer: answer.clone(),
        }
        .write_line(&mut out);
        let FromWorker::Reply(raw) = FromWorker::parse(&out).unwrap() else {
            panic!()
        };
        assert_eq!(raw.id, 7);
        assert_eq!(raw.answer(op).unwrap(), answer);
    }
}

#[test]
fn every_event_survives_a_round_trip() {
    for event in [
        WorkerEvent::Renew {
            key: "L0".into(),
            owner: "o".into(),
            fence: Some(Fence(3)),
            ok: None,
            ttl_ms: None,
            after: 41,
        },
        WorkerEvent::Lost {
            key: "L0".into(),
            owner: "o".into(),
            fence: None,
            reason: "deadline".into(),
            after: 41,
        },
        WorkerEvent::Queued { id: 7 },
        WorkerEvent::Woken { id: 7 },
        WorkerEvent::Point {
            name: "before-store-write".into(),
            id: 9,
        },
    ] {
        let mut out = Vec::new();
        event.write_line(&mut out);
        assert_eq!(FromWorker::parse(&out).unwrap(), FromWorker::Event(event));
    }
}

#[test]
fn the_documented_lines_are_read() {
    for line in [
        r#"{"id":7,"type":"ok","value":{"owner":"9f","fence":"33","ttl_ms":2000}}"#,
        r#"{"id":7,"type":"fail","error":"busy"}"#,
        r#"{"id":7,"type":"ok","value":null}"#,
        r#"{"event":"renew","key":"L0","owner":"9","fence":33,"ok":true,"ttl_ms":2000,"after":41}"#,
        r#"{"event":"queued","id":7}"#,
        r#"{"event":"woken","id":7}"#,
    ] {
        FromWorker::parse(line.as_bytes()).unwrap();
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (line, want) in [
        (r#"{"id":7,"type":"maybe"}"#, "maybe"),
        (r#"{"id":7}"#, "lacks \"type\""),
        (r#"{"type":"ok"}"#, "lacks \"id\""),
        (r#"{"id":7,"type":"ok","error":"x"}"#, "an ok carries"),
        (r#"{"id":7,"type":"ok","valeu":1}"#, "valeu"),
        (
            r#"{"event":"lost","key":"k","owner":"o"}"#,
            "lacks \"after\"",
        ),
        ("Traceback (most recent call last):", "not a line"),
    ] {
        let err = FromWorker::parse(line.as_bytes()).unwrap_err().to_string();
        assert!(err.contains(want), "{line}: {err}");
    }
    let ok = br#"{"id":7,"type":"ok","value":{"fence":1}}"#;
    let FromWorker::Reply(raw) = FromWorker::parse(ok).unwrap() else {
        panic!()
    };
    let err = raw.answer(OpName::Acquire).unwrap_err().to_string();
    assert_eq!(err, "ok of acquire lacks \"owner\"");
}
