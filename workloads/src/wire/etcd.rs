//! Calls to an etcd cluster: one server at a time, never sent twice.
//!
//! Not etcd's own client library: it balances over servers, retries, and needs
//! protoc to build. The messages are the few of `proto/`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::locks::{CallError, ConfError};

#[allow(clippy::all, missing_docs)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

#[allow(clippy::all, missing_docs)]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

use etcdserverpb as pb;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use v3lockpb::lock_client::LockClient;

/// Largest answer: the exported log comes in pages well below it.
const MAX_ANSWER: usize = 64 << 20;

/// One client's way to a cluster; it stays with a server until a call fails.
pub struct EtcdLink {
    endpoints: Vec<Endpoint>,
    at: AtomicUsize,
    channel: Mutex<Option<Channel>>,
    timeout: Duration,
}

impl EtcdLink {
    /// `addrs` are `host:port`; `first` says with which of them to begin.
    ///
    /// # Errors
    /// No address, or one that is none.
    pub fn new(addrs: &[&str], first: usize, timeout: Duration) -> Result<Self, ConfError> {
        let endpoints = addrs
            .iter()
            .map(|a| {
                Endpoint::from_shared(format!("http://{a}"))
                    .map(|e| e.connect_timeout(timeout).tcp_nodelay(true))
                    .map_err(|e| ConfError(format!("etcd endpoint \"{a}\": {e}")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(ConfError("etcd needs an endpoint".into()));
        }
        Ok(EtcdLink {
            endpoints,
            at: AtomicUsize::new(first),
            channel: Mutex::new(None),
            timeout,
        })
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Channel>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open channel, or a new one to the next server that can be reached.
    ///
    /// # Errors
    /// Definite: nothing was sent.
    pub async fn channel(&self) -> Result<Channel, CallError> {
        if let Some(channel) = self.slot().clone() {
            return Ok(channel);
        }
        let mut why = String::new();
        for _ in 0..self.endpoints.len() {
            let at = self.at.load(Ordering::Relaxed) % self.endpoints.len();
            match timeout(self.timeout, self.endpoints[at].connect()).await {
                Ok(Ok(channel)) => {
                    *self.slot() = Some(channel.clone());
                    return Ok(channel);
                }
                Ok(Err(e)) => why = source_of(&e),
                Err(_) => why = "timeout".into(),
            }
            self.at.fetch_add(1, Ordering::Relaxed);
        }
        Err(CallError::definite(format!("connect: {why}")))
    }

    /// Bounds one call and argues its error. After an unknown one the next call
    /// goes to another server.
    ///
    /// # Errors
    /// Definite where etcd says that it refused the request.
    pub async fn bounded<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        let result = match timeout(within, call).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => Err(classify(&status)),
            Err(_) => Err(CallError::unknown("timeout")),
        };
        if matches!(result, Err(CallError::Unknown(_))) {
            *self.slot() = None;
            self.at.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    pub async fn range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, CallError> {
        let mut kv = KvClient::new(self.channel().await?).max_decoding_message_size(MAX_ANSWER);
        self.bounded(self.timeout, kv.range(request)).await
    }

    pub async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, CallError> {
        let channel = self.channel().await?;
        self.txn_on(channel, request).await
    }

    /// The same on a channel that is open already.
    pub async fn txn_on(
        &self,
        channel: Channel,
        request: pb::TxnRequest,
    ) -> Result<pb::TxnResponse, CallError> {
        let mut kv = KvClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        self.bounded(self.timeout, kv.txn(request)).await
    }

    /// A new lease: its id and its TTL in seconds as granted.
    pub async fn grant(&self, ttl: i64) -> Result<(i64, u64), CallError> {
        let mut lease = LeaseClient::new(self.channel().await?);
        let request = pb::LeaseGrantRequest { ttl, id: 0 };
        let got = self
            .bounded(self.timeout, lease.lease_grant(request))
            .await?;
        Ok((got.id, u64::try_from(got.ttl).unwrap_or(0)))
    }

    pub async fn revoke(&self, id: i64) -> Result<(), CallError> {
        let mut lease = LeaseClient::new(self.channel().await?);
        let request = pb::LeaseRevokeRequest { id };
        self.bounded(self.timeout, lease.lease_revoke(request))
            .await
            .map(|_| ())
    }

    /// Prolongs a lease once; its TTL in seconds, 0 when it is gone.
    pub async fn keepalive(&self, id: i64) -> Result<u64, CallError> {
        let mut lease = LeaseClient::new(self.channel().await?);
        let requests = futures_util::stream::iter([pb::LeaseKeepAliveRequest { id }]);
        let call = async {
            let mut answers = lease.lease_keep_alive(requests).await?.into_inner();
            let answer = answers.message().await?;
            answer
                .map(Response::new)
                .ok_or_else(|| Status::unknown("the stream ended"))
        };
        let got = self.bounded(self.timeout, call).await?;
        Ok(u64::try_from(got.ttl).unwrap_or(0))
    }

    /// Waits in the queue of lock `name` under a lease; the key that holds it.
    pub async fn lock(
        &self,
        name: &str,
        lease: i64,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let mut lock = LockClient::new(self.channel().await?);
        let request = v3lockpb::LockRequest {
            name: name.into(),
            lease,
        };
        Ok(self.bounded(within, lock.lock(request)).await?.key)
    }
}

fn classify(status: &Status) -> CallError {
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::Unimplemented => CallError::definite(status.message()),
        _ if refused(status) => CallError::definite("connect: connection refused"),
        _ => CallError::unknown(format!("{}: {}", status.code(), status.message())),
    }
}

/// Whether the channel had to connect anew for this call and could not.
fn refused(status: &Status) -> bool {
    let mut next = std::error::Error::source(status);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        next = e.source();
    }
    false
}

/// The innermost cause, which says more than "transport error".
fn source_of(e: &dyn std::error::Error) -> String {
    let mut at = e;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}

/// `compare`: the key was created at this revision, and is the same key still.
pub fn created_at(key: &str, revision: i64) -> pb::Compare {
    pb::Compare {
        result: pb::compare::CompareResult::Equal as i32,
        target: pb::compare::CompareTarget::Create as i32,
        key: key.into(),
        target_union: Some(pb::compare::TargetUnion::CreateRevision(revision)),
    }
}

/// `compare`: there is a key of this name.
pub fn exists(key: &str) -> pb::Compare {
    pb::Compare {
        result: pb::compare::CompareResult::Greater as i32,
        ..created_at(key, 0)
    }
}

pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> pb::RequestOp {
    op(pb::request_op::Request::RequestPut(pb::PutRequest {
        key: key.into(),
        value: value.into(),
        lease: 0,
    }))
}

pub fn op(request: pb::request_op::Request) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request),
    }
}
