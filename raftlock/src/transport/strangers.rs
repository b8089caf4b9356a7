//! Those who have connected and not yet shown who they are.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::task::AbortHandle;

/// So many at once. The oldest gives way to one more, so that those who open connections and say nothing keep nobody out:
/// to show who one is takes milliseconds.
pub struct Strangers {
    limit: usize,
    waiting: VecDeque<(Weak<()>, AbortHandle)>,
}

/// Who has this is a stranger until it is dropped.
pub struct Stranger(#[allow(dead_code)] Arc<()>);

impl Strangers {
    /// None yet.
    pub fn new(limit: usize) -> Self {
        Strangers {
            limit,
            waiting: VecDeque::new(),
        }
    }

    /// Starts a stranger's task.
    pub fn enter(&mut self, start: impl FnOnce(Stranger) -> AbortHandle) {
        if self.waiting.len() >= self.limit {
            self.waiting
                .retain(|(stranger, _)| stranger.strong_count() > 0);
        }
        if self.waiting.len() >= self.limit
            && let Some((_, oldest)) = self.waiting.pop_front()
        {
            tracing::debug!("too many strangers at once; dropped the oldest");
            oldest.abort();
        }
        let stranger = Arc::new(());
        let watched = Arc::downgrade(&stranger);
        self.waiting.push_back((watched, start(Stranger(stranger))));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use tokio::task::{JoinHandle, yield_now};

    use super::*;

    async fn enter(strangers: &mut Strangers, known: bool) -> JoinHandle<()> {
        let mut task = None;
        strangers.enter(|stranger| {
            let started = tokio::spawn(async move {
                let stranger = (!known).then_some(stranger);
                pending::<()>().await;
                drop(stranger);
            });
            let abort = started.abort_handle();
            task = Some(started);
            abort
        });
        yield_now().await;
        task.unwrap()
    }

    #[tokio::test]
    async fn the_oldest_stranger_gives_way_and_nobody_who_is_known() {
        let mut strangers = Strangers::new(2);
        let mut tasks = Vec::new();
        for known in [true, false, false, false] {
            tasks.push(enter(&mut strangers, known).await);
        }
        let over: Vec<bool> = tasks.iter().map(JoinHandle::is_finished).collect();
        assert_eq!(over, [false, true, false, false]);
    }
}
