//! Operations that stopped at a point and wait for `go`.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

#[derive(Default)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<()>>,
    /// `go` that came before its operation reached the point.
    early: HashSet<u64>,
}

/// Where stopped operations wait, by request id.
#[derive(Default)]
pub struct Points(Mutex<State>);

impl Points {
    /// Resolves once `go` came for this id, even if it came already.
    pub fn wait(&self, id: u64) -> impl Future<Output = ()> + use<> {
        let (tx, rx) = oneshot::channel();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.early.remove(&id) {
            // The receiver is at hand: sending cannot fail.
            let _ = tx.send(());
        } else {
            state.waiting.insert(id, tx);
        }
        async {
            let _ = rx.await;
        }
    }

    /// Lets the operation of this id go on.
    pub fn go(&self, id: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.waiting.remove(&id) {
            // An operation that was dropped meanwhile needs no go.
            Some(tx) => drop(tx.send(())),
            None => {
                state.early.insert(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn go_counts_whether_it_comes_before_or_after() {
        let points = Points::default();
        points.go(1);
        points.wait(1).await;
        let late = points.wait(2);
        points.go(3);
        points.go(2);
        late.await;
        points.wait(3).await;
    }
}
