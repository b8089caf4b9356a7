//! Ctrl-C and SIGTERM end a run in order; a second one ends it at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::core::{Command, CoreHandle};

/// Every SIGINT and SIGTERM from now on.
pub fn listen() -> mpsc::UnboundedReceiver<()> {
    let (tx, rx) = mpsc::unbounded_channel();
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        // Where a handler cannot be installed, the signal kills: `fencepost heal` cleans up.
        let Ok(mut stream) = signal(kind) else {
            continue;
        };
        let tx = tx.clone();
        tokio::spawn(async move { while stream.recv().await.is_some() && tx.send(()).is_ok() {} });
    }
    rx
}

/// Hands interruptions to the core.
pub async fn forward(mut signals: mpsc::UnboundedReceiver<()>, core: CoreHandle) {
    while signals.recv().await.is_some() {
        core.tell(Command::Interrupt);
    }
}
