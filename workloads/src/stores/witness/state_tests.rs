#![allow(clippy::unwrap_used)]
use super::*;

const FENCED: Rules = Rules {
    fenced: true,
    raise_on_read: true,
};

struct Bench(State, Vec<u8>);

impl Bench {
    fn new(rules: Rules) -> Self {
        Bench(State::new(rules), Vec::new())
    }

    fn ask(&mut self, line: &str) -> Told {
        let ask: Ask = serde_json::from_str(&format!(r#"{{"id":1,"key":"L0",{line}}}"#)).unwrap();
        self.0.apply(&ask, 5, &mut self.1)
    }

    fn log(&self) -> Vec<serde_json::Value> {
        let text = std::str::from_utf8(&self.1).unwrap();
        text.lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }
}

#[test]
fn a_fence_below_the_highest_is_refused_and_an_equal_one_is_not() {
    let mut b = Bench::new(FENCED);
    assert!(
        b.ask(r#""op":"write","fence":34,"value":"b","prev":null"#)
            .ok
    );
    let stale = b.ask(r#""op":"write","fence":33,"value":"a","prev":null"#);
    assert_eq!(stale.error.as_deref(), Some("stale-fence"));
    assert!(
        b.ask(r#""op":"write","fence":34,"value":"c","prev":"b""#)
            .ok
    );
    assert_eq!(b.ask(r#""op":"final""#).value, Some(Item::str("c")));
    let log = b.log();
    assert_eq!(log.len(), 3, "final is not logged");
    assert_eq!(log[1]["accepted"], false);
    assert_eq!(log[1]["reason"], "stale-fence");
    assert_eq!(log[1]["highest"], 34);
    assert_eq!(log[2]["seq"], 3);
}

#[test]
fn a_read_raises_the_fence_unless_told_not() {
    let read = r#""op":"read","fence":34"#;
    let late = r#""op":"write","fence":33,"value":"a","prev":null"#;
    let mut b = Bench::new(FENCED);
    assert!(b.ask(read).ok);
    assert!(!b.ask(late).ok);
    let mut b = Bench::new(Rules {
        raise_on_read: false,
        ..FENCED
    });
    assert!(b.ask(read).ok);
    assert!(
        b.ask(late).ok,
        "the hole that a store fenced on writes only has"
    );
}

#[test]
fn an_unfenced_store_accepts_all_and_still_tells_the_highest() {
    let mut b = Bench::new(Rules {
        fenced: false,
        ..FENCED
    });
    b.ask(r#""op":"write","fence":34,"value":"b","prev":null"#);
    assert!(
        b.ask(r#""op":"write","fence":33,"value":"a","prev":null"#)
            .ok
    );
    assert_eq!(b.log()[1]["highest"], 34);
}

#[test]
fn without_a_fence_nothing_can_be_checked() {
    let mut b = Bench::new(FENCED);
    b.ask(r#""op":"write","fence":34,"value":"b","prev":null"#);
    assert!(b.ask(r#""op":"write","value":"a","prev":null"#).ok);
    assert_eq!(b.log()[1]["fence"], serde_json::Value::Null);
}

#[test]
fn an_add_replaces_the_whole_set() {
    let mut b = Bench::new(FENCED);
    b.ask(r#""op":"add","fence":1,"element":"x","set":["x"]"#);
    b.ask(r#""op":"add","fence":1,"element":"y","set":["y"]"#);
    let set = b.ask(r#""op":"read-set","fence":1"#).set.unwrap();
    assert_eq!(set, vec![Item::str("y")]);
    assert_eq!(b.log()[0]["element"], "x");
}

#[test]
fn a_malformed_request_changes_and_logs_nothing() {
    let mut b = Bench::new(FENCED);
    for bad in [
        r#""op":"write","fence":1"#,
        r#""op":"add","fence":1,"element":"x""#,
    ] {
        assert!(!b.ask(bad).ok);
    }
    assert!(b.log().is_empty());
}
