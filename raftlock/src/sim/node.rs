//! A replica in the simulation: the real node on a simulated disk and network, and its lines to clients over TCP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::disk::SimDisk;
use super::net::{self, SimNet, SimStream};
use super::{CLIENT_PORT, PEER_PORT, REPLICAS, leads, maps};
use crate::chance;
use crate::config::Config;
use crate::flaw::{self, Flaw};
use crate::host;
use crate::http::{App, Caller, Lines};
use crate::raft::{Node, NodeSetup, PeerBook};
use crate::wal::{Dir, FlushStats, Flusher, Job, Wal, WalOptions};

/// How a replica is set up.
#[derive(Clone)]
pub struct Setup {
    pub id: u64,
    pub disk: SimDisk,
    pub lock_delay: Duration,
    /// A sync takes this long beside its usual time; the nemesis changes it.
    pub stall: watch::Receiver<Duration>,
    /// Set when there are no more faults.
    pub calm: watch::Receiver<bool>,
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Runs a replica until it is killed, told to stop, or cannot go on.
pub async fn run(setup: Setup, stop: oneshot::Receiver<()>) -> Result<(), Fault> {
    let id = setup.id;
    let dir: Arc<dyn Dir> = Arc::new(setup.disk.clone());
    // Small segments, so that runs roll and drop them.
    let options = WalOptions {
        segment_bytes: 6 << 10,
        sync: !flaw::active(Flaw::SkipSync),
    };
    let (wal, records) = Wal::open(Arc::clone(&dir), options)?;
    let (failing, mut failed) = watch::channel(None);
    let flusher = flusher(wal, &setup, failing.clone());
    let url = format!("{id}:{CLIENT_PORT}");
    let book = PeerBook::open(
        id,
        1..=REPLICAS,
        "sim",
        url,
        Arc::clone(&dir),
        flusher.stats(),
        failing.clone(),
    )?;
    let book = Arc::new(book);
    let peers: BTreeMap<u64, String> = (1..=REPLICAS)
        .map(|id| (id, format!("{id}:{PEER_PORT}")))
        .collect();
    let node = NodeSetup {
        peers: peers.clone(),
        // The last one keeps the bucket map, as in the service.
        groups: 2,
        heartbeat: Duration::from_millis(80),
        // Small, so that snapshots are taken, installed and recovered from.
        snapshot_bytes: 2 << 10,
        keep_entries: 12,
        dir,
        flusher,
        records,
        beginning: None,
        book: Arc::clone(&book),
        transport: Arc::new(SimNet),
    };
    let node = Node::start(node, failing).await?;
    let config = Config {
        id,
        peers,
        lock_delay: setup.lock_delay,
        ..Config::single(([127, 0, 0, 1], 1).into(), "sim".into())
    };
    leads::follow(id, &node.replicas());
    let app = App::new(config, node.groups.clone(), node.replicas(), book);
    maps::keep(&app, setup.calm.clone());
    let mut listener = net::bind(CLIENT_PORT);
    let mut clients = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let failure = async { failed.wait_for(Option::is_some).await.ok()?.clone() };
        let stream = tokio::select! {
            biased;
            why = failure => {
                return Err(why.unwrap_or_else(|| "the log stopped".to_owned()).into());
            }
            Ok(()) = &mut stop => break,
            stream = listener.next() => stream,
        };
        clients.spawn(host::scoped(lines(Arc::clone(&app), stream)));
    }
    drop(listener);
    node.stop().await;
    Ok(())
}

/// The flusher as a task: a sync takes a few milliseconds, now and then many.
fn flusher(mut wal: Wal, setup: &Setup, failing: watch::Sender<Option<String>>) -> Flusher {
    let (tx, mut rx) = mpsc::unbounded_channel::<Job>();
    let stats = Arc::new(FlushStats::default());
    stats.set_sequence(wal.sequence());
    let counts = Arc::clone(&stats);
    let (disk, stall) = (setup.disk.clone(), setup.stall.clone());
    let task = tokio::spawn(host::scoped(async move {
        let mut jobs = Vec::new();
        while rx.recv_many(&mut jobs, 64).await > 0 {
            let usual = if chance::random().is_multiple_of(50) {
                40_000
            } else {
                200 + chance::random() % 2000
            };
            let mut records = Vec::new();
            let mut callbacks = Vec::new();
            for job in jobs.drain(..) {
                records.extend(job.records);
                callbacks.push(job.done);
            }
            let result = wal.append(&records).map_err(|error| error.to_string());
            let stalled = *stall.borrow();
            sleep(Duration::from_micros(usual) + stalled).await;
            disk.settle();
            match &result {
                Ok(()) => counts.set_sequence(wal.sequence()),
                Err(error) => drop(failing.send_replace(Some(error.clone()))),
            }
            for done in callbacks {
                done(result.clone());
            }
        }
    }));
    host::spawned(&task);
    Flusher::custom(
        move |job| tx.send(job).map_err(|mpsc::error::SendError(job)| job),
        stats,
    )
}

async fn lines(app: Arc<App>, stream: SimStream) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader).lines();
    let (mut session, mut answers, mut notices) = Lines::new(app, Caller::Any);
    loop {
        tokio::select! {
            biased;
            Some((id, answer)) = answers.recv() => session.answer(id, answer),
            Some(notice) = notices.recv() => session.notice(&notice),
            line = reader.next_line() => match line {
                Ok(Some(line)) => session.request(&line),
                _ => return,
            },
        }
        let text = std::mem::take(&mut session.out);
        if !text.is_empty() && writer.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}
