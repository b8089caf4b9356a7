#![allow(clippy::unwrap_used)]
//! A session against a worker whose every line the test writes.

use std::io::{PipeReader, PipeWriter, Read, Write};

use fencepost_workloads::protocol::{Answer, Op, OpName, WorkerEvent};

use super::*;
use crate::record::Stamp;

struct Fake {
    session: Session,
    requests: PipeReader,
    answers: PipeWriter,
}

fn fake() -> Fake {
    let (requests, our_out) = std::io::pipe().unwrap();
    let (our_in, answers) = std::io::pipe().unwrap();
    let link = Link::new(our_out.into(), our_in.into()).unwrap();
    Fake {
        session: Session::new(3, link),
        requests,
        answers,
    }
}

impl Fake {
    fn ask(&mut self, n: u64) -> u64 {
        let asked = Asked {
            op: OpName::Ping,
            slot: (n == 2).then_some(7),
            stamp: Stamp {
                index: n * 10,
                time: n as i64 * 100,
            },
            budget: 0,
        };
        self.session.ask(Op::Ping, asked)
    }

    fn hears(&mut self, lines: &str) -> (Vec<Heard>, Option<WorkerError>) {
        self.answers.write_all(lines.as_bytes()).unwrap();
        let mut heard = Vec::new();
        let error = self.session.read(|h| heard.push(h)).err();
        (heard, error)
    }
}

#[test]
fn requests_leave_in_order_with_rising_ids() {
    let mut f = fake();
    assert_eq!([f.ask(1), f.ask(2)], [1, 2]);
    f.session.go(2);
    f.session.send();
    f.session.hang_up();
    let mut text = String::new();
    f.requests.read_to_string(&mut text).unwrap();
    assert_eq!(
        text,
        "{\"id\":1,\"op\":\"ping\"}\n{\"id\":2,\"op\":\"ping\"}\n{\"go\":2}\n"
    );
}

#[test]
fn after_is_the_stamp_of_the_request_it_names() {
    let mut f = fake();
    f.ask(1);
    f.ask(2);
    let (heard, error) = f.hears(
        "{\"event\":\"lost\",\"key\":\"L0\",\"owner\":\"o\",\"fence\":3,\"reason\":\"deadline\",\"after\":2}\n\
         {\"event\":\"lost\",\"key\":\"L0\",\"owner\":\"o\",\"fence\":3,\"after\":0}\n",
    );
    assert_eq!(error, None);
    let afters: Vec<Stamp> = heard
        .iter()
        .map(|h| match h {
            Heard::Event { after, .. } => *after,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        afters,
        [
            Stamp {
                index: 20,
                time: 200
            },
            Stamp::default()
        ]
    );
}

#[test]
fn points_find_the_slot_of_their_operation() {
    let mut f = fake();
    f.ask(1);
    f.ask(2);
    let (heard, _) = f.hears("{\"event\":\"point\",\"name\":\"before-store-write\",\"id\":2}\n");
    let event = WorkerEvent::Point {
        name: "before-store-write".into(),
        id: 2,
    };
    assert_eq!(heard, [Heard::Of { event, slot: 7 }]);
}

#[test]
fn every_misbehaviour_names_its_line() {
    let claims = "{\"id\":1,\"type\":\"ok\",\"value\":{\"claims\":[]}}\n";
    let cases = [
        (
            claims.to_owned() + claims,
            "worker:3 answered request 1 once more at line 2, after",
        ),
        (
            "{\"id\":9,\"type\":\"ok\"}\n".into(),
            "worker:3 speaks of request 9 at line 1, but was never sent one",
        ),
        (
            claims.to_owned() + "hello\n",
            "worker:3 printed line 2, which is no line of the protocol (not a line",
        ),
        (
            "{\"id\":1,\"type\":\"ok\",\"value\":{}}\n".into(),
            "no valid answer to request 1: ok of ping lacks \"claims\"",
        ),
        (
            "{\"event\":\"lost\",\"key\":\"k\",\"owner\":\"o\",\"after\":5}\n".into(),
            "speaks of request 5 at line 1",
        ),
        ("{\"event\":\"queued\",\"id\":1}\n".into(), "request 1"),
        ("\u{1}\u{2}\n".into(), "`··`"),
    ];
    for (lines, wanted) in cases {
        let mut f = fake();
        f.ask(1);
        let (_, error) = f.hears(&lines);
        let text = error.map(|e| e.to_string()).unwrap_or_default();
        assert!(text.contains(wanted), "{lines}: {text}");
    }
}

#[test]
fn what_came_before_rubbish_is_kept_and_the_rest_is_abandoned() {
    let mut f = fake();
    f.ask(1);
    f.ask(2);
    let (heard, error) = f.hears("{\"id\":1,\"type\":\"ok\",\"value\":{\"claims\":[]}}\nrubbish\n");
    assert!(
        matches!(&heard[..], [Heard::Answer { answer: Answer::Claims(c), .. }] if c.is_empty())
    );
    assert!(error.is_some());
    assert_eq!(
        f.session
            .abandon()
            .iter()
            .map(|(id, _)| *id)
            .collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn the_answer_to_a_request_that_was_given_up_is_no_news() {
    let mut f = fake();
    f.ask(1);
    f.session.abandon();
    let claims = "{\"id\":1,\"type\":\"ok\",\"value\":{\"claims\":[]}}\n";
    assert_eq!(f.hears(claims), (vec![Heard::Late], None));
    assert!(f.hears(claims).1.is_some());
}

#[test]
fn a_dead_worker_reads_as_closed() {
    let Fake {
        mut session,
        answers,
        ..
    } = fake();
    drop(answers);
    assert_eq!(session.read(|_| {}).unwrap(), Reading::Closed);
}
