//! A client's sessions: one in each namespace and group that it uses, opened when it is needed first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::api::Api;
use crate::client::ClientOptions;
use crate::error::{CallError, Retry};
use crate::session::LiveSession;

/// Namespace and group.
type Key = (String, u32);
type Opened = Result<Arc<LiveSession>, CallError>;
/// One opens a session and all that need it wait for the outcome: a group that does not answer keeps nobody from the others.
type Opening = Shared<BoxFuture<'static, Opened>>;

#[derive(Debug, Default)]
struct Known {
    live: HashMap<Key, Arc<LiveSession>>,
    opening: HashMap<Key, Opening>,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: Mutex<Known>,
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session for a lock.
    pub(crate) async fn of(&self, api: &Api, options: &ClientOptions, name: &str) -> Opened {
        let group = match api.group_of(name) {
            Some(group) => group,
            None => {
                let map = api.map().await.result()?;
                map.group_of(name).ok_or_else(unmapped)?
            }
        };
        let key = (namespace_of(name).to_owned(), group);
        let opening = {
            let mut known = self.known();
            if let Some(session) = known.live.get(&key).filter(|known| known.is_valid()) {
                return Ok(Arc::clone(session));
            }
            let entry = known.opening.entry(key.clone());
            entry.or_insert_with(|| open(api, options, name)).clone()
        };
        let opened = opening.clone().await;
        let mut known = self.known();
        let first = known
            .opening
            .get(&key)
            .is_some_and(|now| now.ptr_eq(&opening));
        if first {
            known.opening.remove(&key);
            if let Ok(session) = &opened {
                let key = (key.0, session.info.group);
                known.live.insert(key, Arc::clone(session));
            }
        }
        opened
    }

    pub(crate) fn forget(&self, session: &Arc<LiveSession>) {
        let same = |known: &Arc<LiveSession>| Arc::ptr_eq(known, session);
        self.known().live.retain(|_, known| !same(known));
    }

    /// All of them; none is known afterwards.
    pub(crate) fn drain(&self) -> Vec<Arc<LiveSession>> {
        let known = std::mem::take(&mut *self.known());
        let opened = known.opening.into_values();
        let opened = opened.filter_map(|opening| opening.now_or_never()?.ok());
        known.live.into_values().chain(opened).collect()
    }
}

/// In a task of its own, so that a session that was opened is known though nobody waits for it any more.
fn open(api: &Api, options: &ClientOptions, name: &str) -> Opening {
    let (api, options, name) = (api.clone(), options.clone(), name.to_owned());
    let opening =
        tokio::spawn(
            async move { LiveSession::open(&api, options.ttl, &options.label, &name).await },
        );
    let ended = |_| {
        let why = "the runtime ended that opened the session";
        CallError::local("transport", why, Retry::OtherNode)
    };
    let opened = opening.map(move |opened| opened.map_err(ended).flatten());
    opened.boxed().shared()
}

fn unmapped() -> CallError {
    let why = "the bucket map does not have all buckets";
    CallError::local("protocol", why, Retry::No)
}

/// What stands before the first `/` of a lock's name; a session is of one namespace.
fn namespace_of(name: &str) -> &str {
    name.split_once('/').map_or("default", |(first, _)| first)
}
