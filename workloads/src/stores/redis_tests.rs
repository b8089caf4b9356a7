#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{access, redis, store_context};

async fn write(s: &dyn Store, fence: u64, value: &str) -> Result<(), CallError> {
    let change = Change::Write {
        value: Item::str(value),
        prev: None,
    };
    s.arm(&access("L0", fence), change).await?.fire().await
}

#[tokio::test]
async fn fences_are_exact_at_64_bits_and_the_log_tells_all() {
    let Some(server) = redis() else { return };
    let store = new(store_context("redis", &server.addr, true)).unwrap();
    // Equal as doubles, and different in their number of digits.
    write(&*store, 9, "a").await.unwrap();
    write(&*store, u64::MAX, "b").await.unwrap();
    let stale = write(&*store, u64::MAX - 1, "c").await.unwrap_err();
    assert_eq!(stale, CallError::definite("stale-fence"));
    assert!(
        store.read(&access("L0", 10)).await.is_err(),
        "reads are fenced too"
    );
    let value = store.read(&access("L0", u64::MAX)).await.unwrap();
    assert_eq!(value, Some(Item::str("b")));
    let admin = admin(store_context("redis", &server.addr, true)).unwrap();
    let log: Vec<serde_json::Value> = admin
        .export_log()
        .await
        .unwrap()
        .unwrap()
        .iter()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(log.len(), 5);
    assert_eq!(log[0]["seq"], 1);
    assert_eq!(log[0]["highest"], 9);
    assert_eq!(log[1]["highest"], u64::MAX);
    assert_eq!(log[2]["accepted"], false);
    assert_eq!(log[2]["value"], "c");
    assert_eq!(log[4]["op"], "read");
    assert_eq!(log[4]["value"], "b");
}

#[tokio::test]
async fn an_unfenced_store_takes_a_stale_write_and_sets_are_replaced() {
    let Some(server) = redis() else { return };
    let store = new(store_context("redis", &server.addr, false)).unwrap();
    write(&*store, 34, "b").await.unwrap();
    write(&*store, 33, "a").await.unwrap();
    for (fence, set) in [(1, vec!["x"]), (2, vec!["y", "z"])] {
        let set: Vec<Item> = set.into_iter().map(Item::str).collect();
        let change = Change::Add {
            element: set[0].clone(),
            set,
        };
        store
            .arm(&access("L0", fence), change)
            .await
            .unwrap()
            .fire()
            .await
            .unwrap();
    }
    let admin = admin(store_context("redis", &server.addr, false)).unwrap();
    let end = admin.final_state("L0").await.unwrap();
    assert_eq!(end.value, Some(Item::str("a")));
    assert_eq!(end.set, vec![Item::str("y"), Item::str("z")]);
}
