//! What a load's speed does not show: size, many waiters, a killed leader.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use raftlock::buckets::BucketMap;
use raftlock_client::{AcquireOptions, Stream};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::load::histogram;
use super::round;

/// Scenarios with a cluster of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// A million locks held by 20,000 sessions: memory, cost of keepalives, expiry of one session
    Million,
    /// A thousand waiters on one lock: the time of a hand-over beside that with ten
    Waiters,
    /// The leader killed twenty times under load: how long until acquires succeed again
    LeaderKill,
    /// What the disk and the loopback alone allow: the chain of one hand-over without Raft, locks or a runtime
    Floor,
}

const SESSIONS: usize = 20_000;
const LOCKS: usize = 50;
/// Requests on the way for one stream.
const WINDOW: usize = 2_000;

impl Scenario {
    /// Arguments that its replicas need.
    pub fn arguments(self) -> Vec<String> {
        match self {
            Scenario::Waiters => vec!["--max-waiters=2000".to_owned()],
            Scenario::Million | Scenario::LeaderKill | Scenario::Floor => Vec::new(),
        }
    }

    /// Runs it.
    pub async fn run(self, cluster: &mut Cluster, dir: &Path) -> anyhow::Result<Value> {
        match self {
            Scenario::Million => million(cluster).await,
            Scenario::Waiters => waiters(cluster).await,
            Scenario::LeaderKill => super::kill::leader_kill(cluster).await,
            Scenario::Floor => {
                cluster.stop()?;
                let dir = dir.to_owned();
                tokio::task::spawn_blocking(move || super::floor::floor(&dir)).await?
            }
        }
    }
}

async fn streams(leaders: &[String]) -> anyhow::Result<Vec<Stream>> {
    let mut out = Vec::new();
    for leader in leaders {
        let (stream, mut events) = Stream::connect(leader).await?;
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        out.push(stream);
    }
    Ok(out)
}

/// A name that group `group` keeps: `stem`, made longer until it fits.
pub fn name_in(map: &BucketMap, group: u32, stem: &str) -> String {
    (0..)
        .map(|n| format!("{stem}-{n}"))
        .find(|name| map.group_of(name) == group)
        .unwrap_or_default()
}

async fn million(cluster: &mut Cluster) -> anyhow::Result<Value> {
    let leaders = cluster.leaders().await?;
    let map = BucketMap::even(leaders.len() as u32);
    let streams = streams(&leaders).await?;
    let begun = Instant::now();
    let opening = (0..SESSIONS).map(|number| {
        let group = number % leaders.len();
        let (stream, lock) = (
            streams[group].clone(),
            name_in(&map, group as u32, "million/s"),
        );
        async move {
            let opened = stream.create_session(60_000, "bench", &lock).await;
            Ok::<_, anyhow::Error>((group, opened.result()?.session))
        }
    });
    let mut opening = futures_util::stream::iter(opening).buffered(WINDOW);
    let mut sessions = Vec::new();
    while let Some(session) = opening.next().await {
        sessions.push(session?);
    }
    let taking = sessions
        .iter()
        .enumerate()
        .flat_map(|(number, (group, session))| {
            let (stream, map) = (&streams[*group], &map);
            (0..LOCKS).map(move |lock| async move {
                let name = name_in(map, *group as u32, &format!("million/s{number}/l{lock}"));
                stream
                    .acquire(&name, session, &AcquireOptions::default())
                    .await
                    .result()
            })
        });
    let mut taking = futures_util::stream::iter(taking).buffer_unordered(WINDOW);
    let mut held = 0;
    while let Some(grant) = taking.next().await {
        grant?;
        held += 1;
        // Filling takes longer than a TTL.
        if held % 100_000 == 0 {
            keep_all(&streams, &sessions, usize::MAX).await?;
        }
    }
    let filled = begun.elapsed();
    let resident = cluster.usage().1;
    let (share, late) = keepalive_cost(cluster, &streams, &sessions).await?;
    let freed = expiry(&streams[0], &map).await?;
    Ok(json!({
        "locks": held,
        "sessions": sessions.len(),
        "fill_s": round(filled.as_secs_f64()),
        "replica_max_rss_mb": resident >> 20,
        "replica_rss_after_mb": cluster.usage_each().iter().map(|(_, rss)| rss >> 20).collect::<Vec<_>>(),
        "keepalives_per_s": 4000,
        "keepalive_cpu_of_a_core": share,
        "keepalive_p99_ms": late,
        "ttl_2000_with_50_locks_freed_after_ms": freed,
    }))
}

async fn keep_all(
    streams: &[Stream],
    sessions: &[(usize, String)],
    first: usize,
) -> anyhow::Result<()> {
    let keeping = sessions
        .iter()
        .take(first)
        .map(|(group, session)| streams[*group].keepalive(session));
    let mut keeping = futures_util::stream::iter(keeping).buffer_unordered(WINDOW);
    while let Some(kept) = keeping.next().await {
        kept.result()?;
    }
    Ok(())
}

/// 4,000 keepalives a second for ten seconds, evenly: CPU of all replicas beyond idle, as a share of one core; p99, ms.
async fn keepalive_cost(
    cluster: &Cluster,
    streams: &[Stream],
    sessions: &[(usize, String)],
) -> anyhow::Result<(Vec<f64>, f64)> {
    keep_all(streams, sessions, usize::MAX).await?;
    // What filling left to do, such as snapshots, is done first.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let period = Duration::from_secs(8);
    let cpu = || -> Vec<Duration> { cluster.usage_each().iter().map(|(cpu, _)| *cpu).collect() };
    let start = cpu();
    tokio::time::sleep(period).await;
    let idle = cpu();
    let mut times = histogram();
    let mut running = FuturesUnordered::new();
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let begun = Instant::now();
    let mut next = sessions.iter().cycle();
    while begun.elapsed() < period {
        tokio::select! {
            _ = tick.tick() => for (group, session) in next.by_ref().take(40) {
                let (stream, sent) = (&streams[*group], Instant::now());
                running.push(async move { (stream.keepalive(session).await.result(), sent) });
            },
            Some((kept, sent)) = running.next(), if !running.is_empty() => {
                kept?;
                let _ = times.record(sent.elapsed().as_micros() as u64);
            }
        }
    }
    let busy = cpu();
    let share = |at: usize| {
        let more = (busy[at] - idle[at]).saturating_sub(idle[at] - start[at]);
        round(more.as_secs_f64() / period.as_secs_f64())
    };
    let p99 = times.value_at_quantile(0.99) as f64 / 1000.0;
    Ok(((0..busy.len()).map(share).collect(), round(p99)))
}

/// A session with 50 locks and a TTL of 2 s falls silent: ms until all are free, counted from its last request.
async fn expiry(stream: &Stream, map: &BucketMap) -> anyhow::Result<u64> {
    let lock = name_in(map, 0, "expiry/own");
    let session = stream
        .create_session(2_000, "bench", &lock)
        .await
        .result()?
        .session;
    let names: Vec<String> = (0..LOCKS)
        .map(|n| name_in(map, 0, &format!("expiry/{n}")))
        .collect();
    for name in &names {
        stream
            .acquire(name, &session, &AcquireOptions::default())
            .await
            .result()?;
    }
    stream.keepalive(&session).await.result()?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let mut held = 0;
        for name in &names {
            held += u64::from(stream.show(name).await.result()?.0);
        }
        if held == 0 {
            return Ok(begun.elapsed().as_millis() as u64);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("the session's locks were not freed within 10 s")
}

async fn waiters(cluster: &mut Cluster) -> anyhow::Result<Value> {
    let leaders = cluster.leaders().await?;
    let map = BucketMap::even(leaders.len() as u32);
    let mut figures = json!({});
    for count in [10, 100, 1000] {
        let lock = name_in(&map, 0, &format!("waiters/{count}"));
        let (stream, mut events) = Stream::connect(&leaders[0]).await?;
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        let (p50, p99) = hand_overs(&stream, &lock, count).await?;
        figures[format!("{count}_waiters")] =
            json!({ "handover_p50_ms": p50, "handover_p99_ms": p99 });
    }
    Ok(figures)
}

/// `count` sessions wait in turn, each gives the lock on as soon as it has it; the queue is refilled behind, so that it
/// stays as long. p50 and p99 from one release to the next grant, ms. Fails if a release wakes more than one.
async fn hand_overs(stream: &Stream, lock: &str, count: usize) -> anyhow::Result<(f64, f64)> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        let opened = stream.create_session(60_000, "bench", lock).await;
        sessions.push(opened.result()?.session);
    }
    let options = AcquireOptions {
        wait_ms: 60_000,
        ..AcquireOptions::default()
    };
    let take = |session: String| {
        let (stream, options) = (stream.clone(), options.clone());
        async move {
            let grant = stream.acquire(lock, &session, &options).await.result()?;
            Ok::<_, anyhow::Error>((session, grant.token))
        }
    };
    let mut waiting: FuturesUnordered<_> = sessions.into_iter().map(take).collect();
    let (mut holder, mut token) = waiting.next().await.context("nobody waits")??;
    // The queue is complete once the last of them is in it.
    while stream.show(lock).await.result()?.1 + 1 < count as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut times = histogram();
    for _ in 0..1000 {
        let sent = Instant::now();
        let released = stream.release(lock, &holder, token, None);
        let (released, next) = tokio::join!(released, waiting.next());
        released.result()?;
        let _ = times.record(sent.elapsed().as_micros() as u64);
        let (session, next) = next.context("nobody was woken")??;
        if next <= token {
            bail!("token {next} after {token}");
        }
        if let Some(Some(_)) = futures_util::FutureExt::now_or_never(waiting.next()) {
            bail!("one release woke two");
        }
        waiting.push(take(std::mem::replace(&mut holder, session)));
        token = next;
        // The one that gave it up is in the queue again before the next hand-over.
        stream.show(lock).await.result()?;
    }
    let ms = |quantile| round(times.value_at_quantile(quantile) as f64 / 1000.0);
    Ok((ms(0.5), ms(0.99)))
}
