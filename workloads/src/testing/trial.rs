//! What every store must do, whatever it is made of.

use serde_json::Value;

use super::access;
use crate::locks::CallError;
use crate::protocol::Item;
use crate::stores::{Change, Store, StoreAdmin};

async fn write(s: &dyn Store, key: &str, fence: u64, value: &str) -> Result<(), CallError> {
    let change = Change::Write {
        value: Item::str(value),
        prev: Some(Item::str("p")),
    };
    s.arm(&access(key, fence), change).await?.fire().await
}

async fn log(admin: &dyn StoreAdmin, key: &str) -> Vec<Value> {
    let lines = admin.export_log().await.unwrap().unwrap();
    let all = lines
        .iter()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let (mut mine, mut last) = (Vec::new(), 0);
    for line in all {
        let seq = line["seq"].as_u64().unwrap();
        assert_eq!(seq, last + 1, "the serial order has no gaps");
        last = seq;
        if line["key"] == key {
            mine.push(line);
        }
    }
    mine
}

/// Fences are exact at 64 bits, reads count, and the log tells all.
pub async fn fenced(store: &dyn Store, admin: &dyn StoreAdmin) {
    // Equal as doubles, and different in their number of digits.
    write(store, "fenced", 9, "a").await.unwrap();
    write(store, "fenced", u64::MAX, "b").await.unwrap();
    let stale = write(store, "fenced", u64::MAX - 1, "c").await.unwrap_err();
    assert_eq!(stale, CallError::definite("stale-fence"));
    let early = store.read(&access("fenced", 10)).await.unwrap_err();
    assert_eq!(
        early,
        CallError::definite("stale-fence"),
        "reads are fenced too"
    );
    let value = store.read(&access("fenced", u64::MAX)).await.unwrap();
    assert_eq!(value, Some(Item::str("b")));
    let log = log(admin, "fenced").await;
    assert_eq!(log.len(), 5);
    assert_eq!(log[0]["highest"], 9);
    assert_eq!(log[0]["prev"], "p");
    assert_eq!(log[1]["highest"], u64::MAX);
    assert_eq!(log[1]["accepted"], true);
    assert_eq!(log[2]["accepted"], false);
    assert_eq!(log[2]["reason"], "stale-fence");
    assert_eq!(log[2]["value"], "c");
    assert_eq!(log[4]["op"], "read");
    assert_eq!(log[4]["value"], "b");
    assert!(log[4]["time"].is_u64());
    // A read of a later grant shuts out the delayed write of an earlier one.
    store.read(&access("raised", 34)).await.unwrap();
    write(store, "raised", 33, "late").await.unwrap_err();
}

/// A stale write gets through, and sets are replaced as a whole.
pub async fn unfenced(store: &dyn Store, admin: &dyn StoreAdmin) {
    write(store, "unfenced", 34, "b").await.unwrap();
    write(store, "unfenced", 33, "a").await.unwrap();
    for (fence, set) in [(1, vec!["x"]), (2, vec!["y", "z"])] {
        let set: Vec<Item> = set.into_iter().map(Item::str).collect();
        let change = Change::Add {
            element: set[0].clone(),
            set,
        };
        let at = access("unfenced", fence);
        store.arm(&at, change).await.unwrap().fire().await.unwrap();
    }
    let set = store.read_set(&access("unfenced", 1)).await.unwrap();
    assert_eq!(set, [Item::str("y"), Item::str("z")]);
    let end = admin.final_state("unfenced").await.unwrap();
    assert_eq!((end.value, end.set), (Some(Item::str("a")), set));
    let log = log(admin, "unfenced").await;
    assert_eq!(log[1]["accepted"], true);
    assert_eq!(log[1]["highest"], 34);
    assert_eq!(log[2]["element"], "x");
    assert_eq!(
        admin.final_state("untouched").await.unwrap(),
        Default::default()
    );
}
