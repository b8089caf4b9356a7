//! Requests from other replicas.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncWriteExt, BufReader, ReadHalf};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, unconstrained};

use super::peers::PeerBook;
use super::refusals::Refusals;
use super::wire::{self, Ask, FRAME_LIMIT, HELLO_LIMIT, Hello, Request, Response, Tell};
use super::{Replica, Snapshot};
use crate::host::{self, sleep, timeout};
use crate::transport::{Listener, Stranger, Strangers, Stream};

/// Requests read and not yet begun.
const BACKLOG: usize = 64;
/// Connections that have not said who they are.
const STRANGERS: usize = 64;
/// Largest snapshot taken, bytes.
const SNAPSHOT_LIMIT: usize = 4 << 30;

/// Serves the peer port for good.
pub async fn accept(
    mut listener: Box<dyn Listener>,
    book: Arc<PeerBook>,
    replicas: Arc<Vec<Replica>>,
) {
    let mut connections = JoinSet::new();
    let mut strangers = Strangers::new(STRANGERS);
    let refusals = Arc::new(Refusals::new());
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => match accepted {
                Ok(stream) => strangers.enter(|stranger| {
                    let (book, replicas) = (Arc::clone(&book), Arc::clone(&replicas));
                    let refusals = Arc::clone(&refusals);
                    connections.spawn(host::scoped(connection(stream, stranger, book, replicas, refusals)))
                }),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the peer port");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(
    stream: Box<dyn Stream>,
    stranger: Stranger,
    book: Arc<PeerBook>,
    replicas: Arc<Vec<Replica>>,
    refusals: Arc<Refusals>,
) {
    if let Err(error) = talk(stream, stranger, &book, replicas, &refusals).await {
        tracing::debug!(%error, "a peer's connection ended");
    }
}

async fn talk(
    mut stream: Box<dyn Stream>,
    stranger: Stranger,
    book: &PeerBook,
    replicas: Arc<Vec<Replica>>,
    refusals: &Refusals,
) -> io::Result<()> {
    let hello: Hello = timeout(
        Duration::from_secs(2),
        wire::read(&mut stream, &mut Vec::new(), HELLO_LIMIT),
    )
    .await??;
    let admitted = book.admit(&hello);
    let refused = admitted.as_ref().err().map(ToString::to_string);
    stream
        .write_all(&wire::frame(&book.hello(hello.from, refused))?)
        .await?;
    if let Err(error) = admitted {
        refusals.tell(hello.from, &error);
        return Ok(());
    }
    drop(stranger);
    // A partition can leave this side of an older connection open for long: the newer one takes its place.
    let mut displaced = book.take_seat(hello.from);
    let (reader, mut writer) = tokio::io::split(stream);
    let (requests, inbox) = mpsc::channel(BACKLOG);
    let (answers, mut outbox) = mpsc::unbounded_channel::<Vec<u8>>();
    let write = async {
        let mut frames = Vec::new();
        while outbox.recv_many(&mut frames, 64).await > 0 {
            let bytes: Vec<u8> = frames.drain(..).flatten().collect();
            writer.write_all(&bytes).await?;
        }
        io::Result::Ok(())
    };
    tokio::select! {
            biased;
        ended = read_requests(reader, requests) => ended,
        ended = write => ended,
        _ = &mut displaced => Ok(()),
        () = handle(inbox, answers, book, &replicas) => Ok(()),
    }
}

async fn read_requests(
    reader: ReadHalf<Box<dyn Stream>>,
    requests: mpsc::Sender<Request>,
) -> io::Result<()> {
    let (mut reader, mut buffer) = (BufReader::new(reader), Vec::new());
    loop {
        let request = wire::read(&mut reader, &mut buffer, FRAME_LIMIT).await?;
        if requests.send(request).await.is_err() {
            return Ok(());
        }
    }
}

async fn handle(
    mut inbox: mpsc::Receiver<Request>,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    book: &PeerBook,
    replicas: &[Replica],
) {
    let mut running: FuturesUnordered<BoxFuture<'_, (u64, Tell)>> = FuturesUnordered::new();
    let mut transfers: HashMap<u64, Vec<u8>> = HashMap::default();
    let answer = |(id, tell): (u64, Tell)| {
        if let Ok(bytes) = wire::frame(&Response {
            id,
            sequence: book.sequence(),
            tell,
        }) {
            let _ = answers.send(bytes);
        }
    };
    loop {
        tokio::select! {
            biased;
            request = inbox.recv() => {
                let Some(Request { id, group, ask }) = request else { return };
                if let Ask::Known(told) = &ask {
                    if book.learn(told).is_err() { return }
                    answer((id, Tell::Taken));
                    continue;
                }
                let Some(replica) = replicas.get(group as usize) else {
                    answer((id, Tell::Failed(format!("no group {group}"))));
                    continue;
                };
                replica.hear(&ask);
                let mut job: BoxFuture<'_, (u64, Tell)> = match take_part(&mut transfers, ask) {
                    Ok(tell) => { answer((id, tell)); continue }
                    Err(step) => Box::pin(run(replica, step).map(move |tell| (id, tell))),
                };
                // Polled once here, so that appends reach the group in the order in which they came; without tokio's budget,
                // which could end this poll before the request is handed over, and let later ones pass it.
                match futures_util::poll!(unconstrained(&mut job)) {
                    std::task::Poll::Ready(done) => answer(done),
                    std::task::Poll::Pending => running.push(job),
                }
            }
            Some(done) = running.next(), if !running.is_empty() => answer(done),
        }
    }
}

enum Step {
    Ask(Box<Ask>),
    Install(Box<Snapshot>, super::Vote),
}

/// Collects a snapshot's parts; anything else is passed on.
fn take_part(transfers: &mut HashMap<u64, Vec<u8>>, ask: Ask) -> Result<Tell, Step> {
    match ask {
        Ask::SnapshotPart { transfer, bytes } => {
            if !transfers.contains_key(&transfer) && transfers.len() >= 64 {
                transfers.clear();
            }
            let whole = transfers.entry(transfer).or_default();
            if whole.len() + bytes.len() > SNAPSHOT_LIMIT {
                return Ok(Tell::Failed("the snapshot is too large".to_owned()));
            }
            whole.extend_from_slice(&bytes);
            Ok(Tell::Taken)
        }
        Ask::SnapshotEnd {
            transfer,
            vote,
            meta,
            crc,
        } => {
            let bytes = transfers.remove(&transfer).unwrap_or_default();
            if crc32fast::hash(&bytes) != crc {
                return Ok(Tell::Failed("the snapshot arrived damaged".to_owned()));
            }
            Err(Step::Install(
                Box::new(Snapshot {
                    meta,
                    snapshot: Arc::new(bytes),
                }),
                vote,
            ))
        }
        other => Err(Step::Ask(Box::new(other))),
    }
}

async fn run(raft: &Replica, step: Step) -> Tell {
    let failed = |error: &dyn std::fmt::Display| Tell::Failed(error.to_string());
    match step {
        Step::Ask(ask) => match *ask {
            Ask::Append(rpc) => raft
                .append_entries(rpc)
                .await
                .map_or_else(|e| failed(&e), Tell::Append),
            Ask::Vote(rpc) => raft.vote(rpc).await.map_or_else(|e| failed(&e), Tell::Vote),
            Ask::PreVote(rpc) => raft
                .pre_vote(rpc)
                .await
                .map_or_else(|e| failed(&e), Tell::Vote),
            Ask::Transfer(rpc) => raft
                .handle_transfer_leader(rpc)
                .await
                .map_or_else(|e| failed(&e), Tell::Transfer),
            Ask::Known(_) | Ask::SnapshotPart { .. } | Ask::SnapshotEnd { .. } => Tell::Taken,
        },
        Step::Install(snapshot, vote) => raft
            .install_full_snapshot(vote, *snapshot)
            .await
            .map_or_else(|e| failed(&e), Tell::Snapshot),
    }
}
