//! The bucket map under faults: whoever leads its group makes a new version now and then. Each version is accepted once, and
//! in the end all replicas have the same one, not older than any that was accepted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::{REPLICAS, record};
use crate::buckets::{BucketMap, StoredMap};
use crate::group::{Answer, Cmd};
use crate::http::{App, keep_map};
use crate::machine::{Op, Reply};
use crate::{chance, host};

thread_local! {
    static MAPS: RefCell<Maps> = const { RefCell::new(Maps { apps: BTreeMap::new(), accepted: BTreeSet::new() }) };
}

struct Maps {
    apps: BTreeMap<u64, Weak<App>>,
    accepted: BTreeSet<u64>,
}

/// Forgets the run before.
pub fn reset() {
    MAPS.with_borrow_mut(|maps| {
        maps.apps.clear();
        maps.accepted.clear();
    });
}

/// Keeps a replica's map as the service does, and changes it until the run is `calm`.
pub fn keep(app: &Arc<App>, mut calm: watch::Receiver<bool>) {
    MAPS.with_borrow_mut(|maps| maps.apps.insert(app.config.id, Arc::downgrade(app)));
    let app = Arc::clone(app);
    let task = tokio::spawn(host::scoped(async move {
        keep_map(Arc::clone(&app)).await;
        while !*calm.borrow_and_update() {
            host::sleep(Duration::from_millis(100 + chance::random() % 900)).await;
            change(&app).await;
        }
    }));
    host::spawned(&task);
}

async fn change(app: &App) {
    let Ok(map) = app.map() else { return };
    let (expected, version) = (map.version, map.version + 1);
    let next = BucketMap {
        version,
        ..BucketMap::clone(&map)
    };
    let map = StoredMap::V1(Arc::new(next));
    let op = Op::SetMap { expected, map };
    let answer = app.map_group.call(|to| Cmd::Propose { op, to }).await;
    if matches!(answer, Answer::Reply(Reply::Done))
        && !MAPS.with_borrow_mut(|maps| maps.accepted.insert(version))
    {
        record::broken(format!(
            "version {version} of the bucket map was accepted twice"
        ));
    }
}

/// At the end of a run: looks what each replica has.
pub fn end() {
    MAPS.with_borrow_mut(|maps| {
        let version = |id| Some(maps.apps.get(&id)?.upgrade()?.map().ok()?.version);
        let versions: Vec<Option<u64>> = (1..=REPLICAS).map(version).collect();
        let accepted = maps.accepted.last().copied();
        let same = versions.iter().all(|version| *version == versions[0]);
        if !same || versions[0].is_none() || versions[0] < accepted {
            record::broken(format!(
                "the replicas end with versions {versions:?} of the bucket map; {accepted:?} was accepted last"
            ));
        }
    });
}
