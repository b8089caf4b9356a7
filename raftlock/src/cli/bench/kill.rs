//! The leader killed under load, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use raftlock::buckets::BucketMap;
use raftlock_client::{AcquireOptions, Api, Outcome, Retry};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::scenario::name_in;

const KILLS: usize = 20;
/// Clients that take and give back locks all the while, in each group.
const CLIENTS: usize = 8;
const TTL: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    acquires: AtomicU64,
    errors: AtomicU64,
}

/// Kills the leader of each group in turn, twenty kills in all, and starts it again. Measured: from the kill to the first
/// grant of a request made after it in each group that the killed replica led. A lock held throughout must keep its
/// token; tokens of the others must rise.
pub async fn leader_kill(cluster: &mut Cluster) -> anyhow::Result<Value> {
    let groups = cluster.leaders().await?.len() as u32;
    let map = BucketMap::even(groups);
    let api = Api::new(&cluster.urls, Duration::from_millis(500))?;
    let seen = Arc::new(Seen::default());
    let mut tasks = JoinSet::new();
    let mut kept = Vec::new();
    for group in 0..groups {
        let lock = name_in(&map, group, "kept");
        let session = api
            .create_session(60_000, "kept", Some(&lock))
            .await
            .result()?
            .session;
        let grant = api
            .acquire(&lock, &session, &AcquireOptions::default())
            .await
            .result()?;
        kept.push((lock, session, grant.token));
        for client in 0..CLIENTS {
            let lock = name_in(&map, group, &format!("load/{client}"));
            let api = Api::new(&cluster.urls, Duration::from_millis(500))?;
            tasks.spawn(cycles(api, lock, Arc::clone(&seen)));
        }
    }
    let mut times = Vec::new();
    for kill in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let leaders = cluster.leaders().await?;
        let victim = cluster
            .urls
            .iter()
            .position(|url| *url == leaders[kill % leaders.len()]);
        let victim = victim.context("the leader is none of the replicas")?;
        let led = |group: &u32| leaders[*group as usize] == cluster.urls[victim];
        let mut waiting = JoinSet::new();
        let concerned: Vec<u32> = (0..groups).filter(led).collect();
        let begun = Instant::now();
        cluster.kill(victim)?;
        for group in concerned {
            let lock = name_in(&map, group, &format!("probe/{kill}"));
            let others: Vec<String> = cluster
                .urls
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != victim)
                .map(|(_, url)| url.clone())
                .collect();
            waiting.spawn(first_grant(others, lock));
        }
        while let Some(done) = waiting.join_next().await {
            done??;
        }
        times.push(begun.elapsed().as_millis() as u64);
        cluster.restart(victim)?;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        for (lock, session, token) in &kept {
            check_kept(&api, lock, session, *token).await?;
        }
    }
    seen.stop.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let mut sorted = times.clone();
    sorted.sort_unstable();
    Ok(json!({
        "kills": times.len(),
        "acquires_again_ms": times,
        "median_ms": sorted[sorted.len() / 2],
        "worst_ms": sorted[sorted.len() - 1],
        "acquires_meanwhile": seen.acquires.load(Ordering::Relaxed),
        "errors_meanwhile": seen.errors.load(Ordering::Relaxed),
        "held_locks_kept": kept.len(),
    }))
}

/// A new session and a grant, tried until they succeed.
async fn first_grant(urls: Vec<String>, lock: String) -> anyhow::Result<()> {
    let api = Api::new(&urls, Duration::from_millis(200))?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Outcome::Ok(session) = api.create_session(5_000, "probe", Some(&lock)).await
            && let Outcome::Ok(_) = api
                .acquire(&lock, &session.session, &AcquireOptions::default())
                .await
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("no grant within 30 s of the kill")
}

/// The session is alive and its grant is still the current one.
async fn check_kept(api: &Api, lock: &str, session: &str, token: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let kept = api.keepalive(session).await;
        let current = api.check(lock, token).await;
        match (kept, current) {
            (Outcome::Ok(_), Outcome::Ok(true)) => return Ok(()),
            (_, Outcome::Ok(false)) => bail!("the grant {token} of {lock} was lost"),
            (Outcome::DefiniteFail(error), _) if error.retry == Retry::NewSession => {
                bail!("the session that holds {lock} ended early")
            }
            _ if begun.elapsed() > Duration::from_secs(10) => {
                bail!("no leader for {lock} within 10 s")
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Takes and gives back one lock for ever; its tokens must rise.
async fn cycles(api: Api, lock: String, seen: Arc<Seen>) -> anyhow::Result<()> {
    let mut last = 0;
    let mut session: Option<(String, Instant)> = None;
    let mut request = 1;
    while !seen.stop.load(Ordering::Relaxed) {
        let id = match &session {
            Some((id, opened)) if opened.elapsed() < TTL / 2 => id.clone(),
            _ => match api
                .create_session(TTL.as_millis() as u64, "load", Some(&lock))
                .await
            {
                Outcome::Ok(opened) => {
                    session = Some((opened.session.clone(), Instant::now()));
                    opened.session
                }
                _ => {
                    pause(&seen).await;
                    continue;
                }
            },
        };
        request += 1;
        let options = AcquireOptions {
            wait_ms: 1_000,
            request_id: Some(request),
            ..AcquireOptions::default()
        };
        let grant = match api.acquire(&lock, &id, &options).await {
            Outcome::Ok(grant) => grant,
            _ => {
                // What it may hold ends with its session.
                let _ = api.close(&id).await;
                session = None;
                pause(&seen).await;
                continue;
            }
        };
        seen.acquires.fetch_add(1, Ordering::Relaxed);
        let before = std::mem::replace(&mut last, grant.token);
        if grant.token <= before {
            bail!("token {} of {lock} after {before}", grant.token);
        }
        if api
            .release(&lock, &id, grant.token, None)
            .await
            .result()
            .is_err()
        {
            session = None;
            pause(&seen).await;
        }
    }
    Ok(())
}

async fn pause(seen: &Seen) {
    seen.errors.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(10)).await;
}
