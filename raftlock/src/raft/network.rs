//! Requests to other replicas: one connection to each for all groups, dialled again when it breaks or stalls.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt, future};
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::EmptyNode;
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::aboard::with_commits_aboard;
use super::peers::PeerBook;
use super::wire::{self, Ask, FRAME_LIMIT, HELLO_LIMIT, Hello, Request, Response, Tell};
use super::{Snapshot, SnapshotData, Types, Vote};
use crate::host::{self, sleep, timeout};
use crate::transport::{self, Transport};

type RpcError = RPCError<Types>;

/// Appends on the way to one follower at once.
const WINDOW: usize = 16;
/// Requests in a row without an answer after which a connection is given up: under a partition that drops packets,
/// TCP alone would stay silent for long after the heal.
const STRIKES: u32 = 4;
const REDIAL: Duration = Duration::from_millis(60);
const HELLO_TIME: Duration = Duration::from_secs(1);
/// How often a replica tells each other one how far logs are on disk. Who leads hears it with every answer; the others need it only
/// where a disk is set back later.
const TELL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Open {
    out: Option<mpsc::UnboundedSender<Vec<u8>>>,
    pending: BTreeMap<u64, oneshot::Sender<Tell>>,
}

/// The connection to one replica.
pub struct Link {
    target: u64,
    open: Mutex<Open>,
    next: AtomicU64,
    strikes: AtomicU32,
    cut: tokio::sync::Notify,
}

impl Link {
    fn new(target: u64) -> Arc<Self> {
        let (next, strikes) = (AtomicU64::new(1), AtomicU32::new(0));
        Arc::new(Link {
            target,
            open: Mutex::default(),
            next,
            strikes,
            cut: tokio::sync::Notify::new(),
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends now; the receiver resolves with the answer or when the connection breaks.
    fn start(&self, group: u32, ask: Ask) -> Result<oneshot::Receiver<Tell>, RpcError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes =
            wire::frame(&Request { id, group, ask }).map_err(|error| NetworkError::new(&error))?;
        let (tx, rx) = oneshot::channel();
        let mut open = self.open();
        let out = open
            .out
            .clone()
            .ok_or_else(|| Unreachable::from_string("not connected"))?;
        open.pending.insert(id, tx);
        if out.send(bytes).is_err() {
            open.pending.remove(&id);
            return Err(Unreachable::from_string("the connection broke").into());
        }
        Ok(rx)
    }

    async fn finish(
        self: Arc<Self>,
        started: Result<oneshot::Receiver<Tell>, RpcError>,
        limit: Duration,
    ) -> Result<Tell, RpcError> {
        match timeout(limit, started?).await {
            Ok(Ok(Tell::Failed(why))) => Err(NetworkError::from_string(why).into()),
            Ok(Ok(tell)) => {
                self.strikes.store(0, Ordering::Relaxed);
                Ok(tell)
            }
            Ok(Err(_)) => Err(NetworkError::from_string("the connection broke").into()),
            Err(_) => {
                if self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
                    self.strikes.store(0, Ordering::Relaxed);
                    self.cut.notify_one();
                }
                Err(NetworkError::from_string(format!("no answer in {limit:?}")).into())
            }
        }
    }

    async fn call(
        self: &Arc<Self>,
        group: u32,
        ask: Ask,
        limit: Duration,
    ) -> Result<Tell, RpcError> {
        let started = self.start(group, ask);
        Arc::clone(self).finish(started, limit).await
    }

    /// Keeps the connection up for good.
    async fn maintain(
        self: Arc<Self>,
        addr: String,
        book: Arc<PeerBook>,
        transport: Arc<dyn Transport>,
    ) {
        let mut told = String::new();
        loop {
            let why = match connect(self.target, &addr, &book, &*transport).await {
                Ok((stream, run)) => {
                    told.clear();
                    tracing::info!(peer = self.target, addr, "connected");
                    self.serve(stream, run, &book).await
                }
                Err(error) => error.to_string(),
            };
            if why != told {
                tracing::warn!(peer = self.target, addr, why, "no connection; trying again");
                told = why;
            }
            sleep(REDIAL).await;
        }
    }

    async fn tell(self: &Arc<Self>, book: &PeerBook) -> io::Result<()> {
        loop {
            sleep(TELL).await;
            let _ = self.call(0, Ask::Known(book.told()), TELL).await;
        }
    }

    async fn serve(
        self: &Arc<Self>,
        stream: Box<dyn transport::Stream>,
        run: u64,
        book: &PeerBook,
    ) -> String {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = BufReader::new(reader);
        let (tx, mut rx) = mpsc::unbounded_channel::<Vec<u8>>();
        self.open().out = Some(tx);
        let write = async {
            let mut frames = Vec::new();
            while rx.recv_many(&mut frames, 64).await > 0 {
                let bytes = frames.drain(..).reduce(|mut all, next| {
                    all.extend_from_slice(&next);
                    all
                });
                writer.write_all(&bytes.unwrap_or_default()).await?;
            }
            io::Result::Ok(())
        };
        let read = async {
            let mut buffer = Vec::new();
            loop {
                let response: Response = wire::read(&mut reader, &mut buffer, FRAME_LIMIT).await?;
                book.acknowledged(self.target, run, response.sequence);
                let waiting = self.open().pending.remove(&response.id);
                if let Some(tx) = waiting {
                    let _ = tx.send(response.tell);
                }
            }
        };
        let ended: io::Result<()> = tokio::select! {
            biased;
            ended = write => ended,
            ended = read => ended,
            ended = self.tell(book) => ended,
            () = self.cut.notified() => Err(io::Error::other("the peer stopped answering")),
        };
        let mut open = self.open();
        open.out = None;
        open.pending.clear();
        ended.map_or_else(|error| error.to_string(), |()| "closed".to_owned())
    }
}

async fn connect(
    target: u64,
    addr: &str,
    book: &PeerBook,
    transport: &dyn Transport,
) -> io::Result<(Box<dyn transport::Stream>, u64)> {
    let greet = async {
        let mut stream = transport.dial(addr).await?;
        stream
            .write_all(&wire::frame(&book.hello(target, None))?)
            .await?;
        let answer: Hello = wire::read(&mut stream, &mut Vec::new(), HELLO_LIMIT).await?;
        if answer.from != target {
            return Err(io::Error::other(format!(
                "replica {} answered at {addr}",
                answer.from
            )));
        }
        book.admit(&answer).map_err(io::Error::other)?;
        Ok((stream, answer.run.run))
    };
    timeout(HELLO_TIME, greet)
        .await
        .unwrap_or_else(|_| Err(io::Error::other("no answer to the greeting")))
}

/// All links of this node.
#[derive(Clone)]
pub struct Links {
    links: Arc<BTreeMap<u64, Arc<Link>>>,
}

impl Links {
    /// Starts connecting to all peers; the tasks run until `tasks` is dropped.
    pub fn start(
        peers: &BTreeMap<u64, String>,
        book: &Arc<PeerBook>,
        transport: &Arc<dyn Transport>,
        tasks: &mut tokio::task::JoinSet<()>,
    ) -> Self {
        let mut links = BTreeMap::new();
        for (id, addr) in peers.iter().filter(|(id, _)| **id != book.id) {
            let link = Link::new(*id);
            tasks.spawn(host::scoped(Arc::clone(&link).maintain(
                addr.clone(),
                Arc::clone(book),
                Arc::clone(transport),
            )));
            links.insert(*id, link);
        }
        Links {
            links: Arc::new(links),
        }
    }

    /// The networks of one group.
    pub fn of_group(&self, group: u32) -> GroupNetworks {
        GroupNetworks {
            group,
            links: self.clone(),
        }
    }
}

/// Makes openraft's networks for one group.
pub struct GroupNetworks {
    group: u32,
    links: Links,
}

impl RaftNetworkFactory<Types> for GroupNetworks {
    type Network = GroupNetwork;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> GroupNetwork {
        let link = self
            .links
            .links
            .get(&target)
            .cloned()
            .unwrap_or_else(|| Link::new(target));
        GroupNetwork {
            group: self.group,
            link,
        }
    }
}

/// One group's way to one replica.
pub struct GroupNetwork {
    group: u32,
    link: Arc<Link>,
}

impl GroupNetwork {
    async fn ask(&self, ask: Ask, option: &RPCOption) -> Result<Tell, RpcError> {
        self.link.call(self.group, ask, option.hard_ttl()).await
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
        limit: Duration,
    ) -> Result<Tell, RpcError> {
        let transfer = crate::chance::random();
        for part in snapshot.snapshot.chunks(wire::PART) {
            let ask = Ask::SnapshotPart {
                transfer,
                bytes: part.to_vec(),
            };
            self.link.call(self.group, ask, limit).await?;
        }
        let crc = crc32fast::hash(&snapshot.snapshot);
        let end = Ask::SnapshotEnd {
            transfer,
            vote,
            meta: snapshot.meta,
            crc,
        };
        self.link.call(self.group, end, limit).await
    }
}

fn unexpected(tell: &Tell) -> NetworkError<Types> {
    NetworkError::from_string(format!("an answer to another question: {tell:?}"))
}

impl RaftNetworkV2<Types> for GroupNetwork {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RpcError> {
        match self.ask(Ask::Append(rpc), &option).await? {
            Tell::Append(response) => Ok(response),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Pipelined: up to [`WINDOW`] appends are on the way, answers come in order. The default sends one at a time.
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<Types>, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let (group, link, limit) = (
            self.group,
            Arc::clone(&self.link),
            option.hard_ttl().max(Duration::from_secs(1)),
        );
        let answers = with_commits_aboard(input).map(move |request| {
            let prev = request.prev_log_id;
            let last = request.entries.last().map(|entry| entry.log_id).or(prev);
            let started = link.start(group, Ask::Append(request));
            let answer = Arc::clone(&link).finish(started, limit);
            async move {
                match answer.await? {
                    Tell::Append(response) => {
                        let whole = response.is_success();
                        Ok((response.into_stream_result(prev, last), whole))
                    }
                    other => Err(unexpected(&other).into()),
                }
            }
        });
        // After anything but a whole success the stream ends; openraft begins another where it should.
        let stream = answers
            .buffered(WINDOW)
            .scan(false, |over, item: Result<_, RpcError>| {
                if *over {
                    return future::ready(None);
                }
                *over = !matches!(item, Ok((_, true)));
                future::ready(Some(item.map(|(result, _)| result)))
            });
        Box::pin(future::ready(Ok(Box::pin(stream) as BoxStream<'s, _>)))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RpcError> {
        match self.ask(Ask::Vote(rpc), &option).await? {
            Tell::Vote(response) => Ok(response),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RpcError> {
        match self.ask(Ask::PreVote(rpc), &option).await? {
            Tell::Vote(response) => Ok(response),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let limit = option.hard_ttl().max(Duration::from_secs(5));
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, snapshot, limit) => match sent {
                Ok(Tell::Snapshot(response)) => Ok(response),
                Ok(other) => Err(unexpected(&other).into()),
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RpcError> {
        match self.ask(Ask::Transfer(req), &option).await? {
            Tell::Transfer(response) => Ok(response),
            other => Err(unexpected(&other).into()),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(Duration::from_millis(50))))
    }
}
