//! A replica in the simulation: the real node on a simulated disk and network, and its lines to clients over TCP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use turmoil::net::{TcpListener, TcpStream};

use super::disk::SimDir;
use super::net::SimNet;
use super::{REPLICAS, replica};
use crate::buckets::BucketMap;
use crate::chance;
use crate::config::Config;
use crate::http::{App, Lines};
use crate::raft::{Node, NodeSetup, PeerBook};
use crate::wal::{Dir, FlushStats, Flusher, Job, Wal, WalOptions};

/// Port for clients' lines.
pub const CLIENT_PORT: u16 = 70;

type Fault = Box<dyn std::error::Error>;

/// Runs a replica until it is crashed.
pub async fn run(id: u64, disk: Arc<SimDir>) -> Result<(), Fault> {
    let dir: Arc<dyn Dir> = disk;
    // Small segments, so that runs roll and drop them.
    let (wal, records) = Wal::open(
        Arc::clone(&dir),
        WalOptions {
            segment_bytes: 16 << 10,
            sync: true,
        },
    )?;
    let flusher = flusher(wal);
    let url = format!("{}:{CLIENT_PORT}", replica(id));
    let book = Arc::new(PeerBook::open(
        id,
        "sim",
        url,
        Arc::clone(&dir),
        flusher.stats(),
    )?);
    let peers: BTreeMap<u64, String> = (1..=REPLICAS)
        .map(|id| (id, format!("{}:71", replica(id))))
        .collect();
    let (failing, mut failed) = watch::channel(None);
    let setup = NodeSetup {
        peers: peers.clone(),
        groups: 1,
        heartbeat: Duration::from_millis(80),
        // Small, so that snapshots are taken, installed and recovered from.
        snapshot_bytes: 12 << 10,
        dir,
        flusher,
        records,
        book: Arc::clone(&book),
        transport: Arc::new(SimNet),
    };
    let node = Node::start(setup, failing).await?;
    let config = Config {
        id,
        peers,
        ..Config::single(([127, 0, 0, 1], 1).into(), "sim".into())
    };
    let app = Arc::new(App {
        buckets: BucketMap::even(1),
        groups: node.groups.clone(),
        rafts: node.rafts(),
        book,
        config,
    });
    let listener = TcpListener::bind(("0.0.0.0", CLIENT_PORT)).await?;
    loop {
        tokio::select! {
            biased;
            _ = failed.wait_for(Option::is_some) => return Err("the replica stopped by itself".into()),
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                tokio::spawn(lines(Arc::clone(&app), stream));
            }
        }
    }
}

/// The flusher as a task: a sync takes a few milliseconds, now and then many.
fn flusher(mut wal: Wal) -> Flusher {
    let (tx, mut rx) = mpsc::unbounded_channel::<Job>();
    let stats = Arc::new(FlushStats::default());
    stats.set_sequence(wal.sequence());
    let counts = Arc::clone(&stats);
    tokio::spawn(async move {
        let mut jobs = Vec::new();
        while rx.recv_many(&mut jobs, 64).await > 0 {
            let micros = if chance::random().is_multiple_of(50) {
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
            sleep(Duration::from_micros(micros)).await;
            let result = wal.append(&records).map_err(|error| error.to_string());
            counts.set_sequence(wal.sequence());
            for done in callbacks {
                done(result.clone());
            }
        }
    });
    Flusher::custom(
        move |job| tx.send(job).map_err(|mpsc::error::SendError(job)| job),
        stats,
    )
}

async fn lines(app: Arc<App>, stream: TcpStream) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader).lines();
    let (mut session, mut answers, mut notices) = Lines::new(app);
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
