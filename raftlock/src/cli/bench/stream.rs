//! raftlock over its stream, as a client of a benchmark.

use std::collections::HashMap;

use raftlock::buckets::BucketMap;
use raftlock_client::{AcquireOptions, Stream};

use super::load::{Caller, Plan, Work};

/// Connections to each node, where clients share them.
pub const CONNECTIONS: usize = 4;

/// A client over a shared stream.
pub struct StreamCaller {
    stream: Stream,
    session: String,
    lock: String,
    options: AcquireOptions,
    token: u64,
}

/// The lock of a client.
pub fn lock_name(work: Work, number: usize) -> String {
    match work {
        Work::Contended => "bench/one".to_owned(),
        Work::Mix | Work::Cycles => format!("bench/{number}"),
    }
}

/// Opens streams and sessions for `clients`, each at the leader of its lock's group.
pub async fn callers(
    leaders: &[String],
    clients: usize,
    plan: Plan,
) -> anyhow::Result<Vec<StreamCaller>> {
    let map = BucketMap::even(leaders.len() as u32);
    let mut streams: HashMap<(String, usize), Stream> = HashMap::new();
    let mut sessions: HashMap<(u32, usize), String> = HashMap::new();
    let work = plan.work;
    let connections = plan.connections.among(clients, CONNECTIONS);
    let shared = plan.connections.per_session(work);
    let mut out = Vec::new();
    for number in 0..clients {
        let lock = lock_name(work, number);
        let group = map.group_of(&lock);
        let key = (leaders[group as usize].clone(), number % connections);
        if !streams.contains_key(&key) {
            let (stream, mut events) = Stream::connect(&key.0).await?;
            tokio::spawn(async move { while events.recv().await.is_some() {} });
            streams.insert(key.clone(), stream);
        }
        let stream = streams[&key].clone();
        let slot = (group, number / shared);
        let session = match sessions.get(&slot) {
            Some(session) => session.clone(),
            None => {
                let opened = stream.create_session(60_000, "bench", &lock).await;
                let session = opened.result()?.session;
                sessions.insert(slot, session.clone());
                session
            }
        };
        out.push(StreamCaller {
            stream,
            session,
            lock,
            options: AcquireOptions {
                wait_ms: if work == Work::Contended { 30_000 } else { 0 },
                ..AcquireOptions::default()
            },
            token: 0,
        });
    }
    Ok(out)
}

impl Caller for StreamCaller {
    async fn acquire(&mut self) -> anyhow::Result<()> {
        let taken = self
            .stream
            .acquire(&self.lock, &self.session, &self.options)
            .await;
        self.token = taken.result()?.token;
        Ok(())
    }

    async fn release(&mut self) -> anyhow::Result<()> {
        let released = self
            .stream
            .release(&self.lock, &self.session, self.token, None)
            .await;
        released.result()?;
        Ok(())
    }

    async fn keepalive(&mut self) -> anyhow::Result<()> {
        self.stream.keepalive(&self.session).await.result()?;
        Ok(())
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        self.stream.show(&self.lock).await.result()?;
        Ok(())
    }
}
