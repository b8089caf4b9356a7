//! Entering a target's network namespace.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};

use crate::process::Proc;
use crate::receipt::Reason;

/// A network namespace, kept open: it outlives the process whose it was.
#[derive(Clone, Debug)]
pub struct NetNs {
    file: Arc<File>,
}

impl NetNs {
    /// # Errors
    /// When the process shares our own network (a fault there would hit everyone), or its
    /// namespace cannot be opened.
    pub fn of(p: &Proc) -> Result<NetNs, Reason> {
        let Some(path) = &p.netns else {
            let text = format!("{} has no network namespace of its own", p.id);
            return Err(Reason(text));
        };
        let open = |path: &std::path::Path| {
            File::open(path).map_err(|e| Reason(format!("cannot open {}: {e}", path.display())))
        };
        let file = open(path)?;
        let own = open("/proc/self/ns/net".as_ref())?;
        if file.metadata()?.ino() == own.metadata()?.ino() {
            return Err(Reason(format!(
                "{} shares the network of fencepost itself",
                p.id
            )));
        }
        Ok(NetNs {
            file: Arc::new(file),
        })
    }

    /// Runs `f` inside, on a thread of its own: `setns` moves a thread, and what that thread spawns
    /// or opens belongs to the namespace from then on.
    ///
    /// # Errors
    /// When entering is refused (it needs `CAP_SYS_ADMIN` over the namespace), or `f` fails.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> Result<T, Reason> + Send) -> Result<T, Reason> {
        let inside = || {
            self.enter_for_good()?;
            f()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|_| Err(Reason::new("a thread inside a network namespace panicked")))
    }

    /// Moves the calling thread into it; it never comes back.
    ///
    /// # Errors
    /// When that is refused.
    pub fn enter_for_good(&self) -> Result<(), Reason> {
        setns(&*self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| Reason(format!("cannot enter a network namespace: {e}")))
    }

    /// [`NetNs::run`] for async callers.
    ///
    /// # Errors
    /// As there.
    pub async fn enter<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> Result<T, Reason> + Send + 'static,
    ) -> Result<T, Reason> {
        let ns = self.clone();
        tokio::task::spawn_blocking(move || ns.run(f))
            .await
            .unwrap_or_else(|_| Err(Reason::new("a thread inside a network namespace panicked")))
    }
}
