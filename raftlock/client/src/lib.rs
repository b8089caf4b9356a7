//! Client library of the raftlock service.
//!
//! [`Api`] makes single calls, each with its outcome (done, surely not done, unknown) and without hidden retries: for
//! harnesses and for people who build their own. [`Client`] keeps sessions alive, finds the leader and hands out guards.

mod api;
mod client;
mod dial;
mod error;
pub mod pem;
mod queue;
mod routes;
mod secure;
mod session;
mod stream;

pub use api::{AcquireOptions, Alive, Api, Grant, LockInfo, Mode, SessionInfo, percent_encode};
pub use client::{Client, ClientOptions, Guard};
/// A request of [`Security::http`]'s client.
pub use reqwest::RequestBuilder;

pub use error::{CallError, Outcome, Retry};
pub use routes::BucketMap;
pub use secure::Security;
pub use stream::{Event, Stream};
