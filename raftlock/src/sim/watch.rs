//! openraft's watch channel for simulations: tokio's wakes several receivers in an order that it draws from the system's
//! randomness; this one wakes them in the order in which they began to wait.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Poll, Waker};

use openraft::rt::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::rt::{OptionalSend, OptionalSync};

struct Shared<T> {
    value: RwLock<T>,
    version: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waker>>,
}

impl<T> Shared<T> {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_values().for_each(Waker::wake);
    }
}

/// The family of channels.
pub struct OrderedWatch;

/// The sending half.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving half.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.wake();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver {
            shared: Arc::clone(&self.shared),
            seen: self.seen,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watch for OrderedWatch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = RwLockReadGuard<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Shared {
            value: RwLock::new(init),
            version: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
        });
        (Sender(Arc::clone(&shared)), Receiver { shared, seen: 0 })
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<OrderedWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::Relaxed) == 0 {
            return Err(SendError(value));
        }
        self.send_if_modified(|old| {
            *old = value;
            true
        });
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let modified = {
            let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
            modify(&mut value)
        };
        if modified {
            self.0.version.fetch_add(1, Ordering::Relaxed);
            self.0.wake();
        }
        modified
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.0.read()
    }

    fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver {
            shared: Arc::clone(&self.0),
            seen: self.0.version.load(Ordering::Relaxed),
        }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<OrderedWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (shared, seen) = (Arc::clone(&self.shared), &mut self.seen);
        poll_fn(|cx| {
            let version = shared.version.load(Ordering::Relaxed);
            if version != *seen {
                *seen = version;
                return Poll::Ready(Ok(()));
            }
            if shared.senders.load(Ordering::Relaxed) == 0 {
                return Poll::Ready(Err(RecvError(())));
            }
            shared.waiting().insert(number, cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.shared.read()
    }

    fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        self.seen = self.shared.version.load(Ordering::Relaxed);
        self.shared.read()
    }
}
