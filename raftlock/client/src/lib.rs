//! Client library of the raftlock service.
//!
//! [`Api`] makes single calls, each with its outcome (done, surely not done, unknown) and without hidden retries: for
//! harnesses and for people who build their own. [`Client`] keeps sessions alive, finds the leader and hands out guards.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use raftlock_client::{CallError, Client, ClientOptions, Mode};
//!
//! # async fn write(_fence: u64) {}
//! # async fn run() -> Result<(), CallError> {
//! let nodes = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"].map(str::to_owned);
//! let client = Client::new(&nodes, ClientOptions::default())?;
//! let guard = client
//!     .lock("orders/42", Mode::Exclusive, Duration::from_secs(10))
//!     .await?;
//! tokio::select! {
//!     // The fence goes with every write; the resource refuses one that is lower than the highest it has seen.
//!     () = write(guard.fence()) => {}
//!     // Another may hold the lock now: the work is dropped here.
//!     () = guard.lost() => {}
//! }
//! guard.release().await?;
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Dropping the future of a wait leaves the queue; [`Client::lock_as`] is for owners that take a lock which they hold already.
//!
//! No lock was had: [`CallError::code`] is `busy` (at once), `wait_timeout`, `queue_full`, `connect` (no node was reached), and so
//! on, as docs/raftlock-api.md has them. A lease cannot stop a holder that stands still or whose machine sleeps; only the fence
//! protects the resource then.

mod api;
mod client;
mod dial;
mod error;
pub mod pem;
mod queue;
mod routes;
mod secure;
mod session;
mod sessions;
mod stream;
mod types;

pub use api::{Api, percent_encode};
pub use client::{Client, ClientOptions, Guard};
/// A request of [`Security::http`]'s client.
pub use reqwest::RequestBuilder;

pub use error::{CallError, Outcome, Retry};
pub use routes::BucketMap;
pub use secure::Security;
pub use stream::{Event, Stream};
pub use types::{AcquireOptions, Alive, Grant, LockInfo, Mode, SessionInfo, Undone};
