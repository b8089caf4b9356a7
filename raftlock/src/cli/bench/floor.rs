//! The least that a hand-over can take on a machine: a client's message, a majority of three on disk, the answer.
//!
//! Blocking threads and nothing else, so that what a lock service needs beyond it shows beside its own figures. All
//! three files are on one disk, as in the other benchmarks.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use raftlock::wal::{Dir, LogFile, RealDir};
use serde_json::{Value, json};

use super::load::histogram;
use super::round;

const ROUNDS: u64 = 3_000;
/// Bytes of a log's frame with one release and one acquire.
const FRAME: usize = 320;
/// Bytes of a request; of an answer.
const REQUEST: usize = 128;
const ANSWER: usize = 64;
const FILE: u64 = 16 << 20;

/// A file of our log, with room made ahead.
struct Log {
    file: Box<dyn LogFile>,
    at: u64,
}

impl Log {
    fn create(dir: &Path, name: &str) -> io::Result<Self> {
        let file = RealDir::open(&dir.join(name))?.open("log", FILE)?;
        Ok(Log { file, at: 0 })
    }

    fn append(&mut self) -> io::Result<()> {
        self.file.write_at(self.at, &[7; FRAME])?;
        self.at = (self.at + FRAME as u64) % (FILE - FRAME as u64);
        self.file.sync()
    }
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok((one, other))
}

/// Ends when the leader hangs up.
fn follow(mut from: TcpStream, mut acks: TcpStream, mut log: Log) -> io::Result<()> {
    let mut frame = [0; FRAME];
    let mut round: u64 = 0;
    while from.read_exact(&mut frame).is_ok() {
        log.append()?;
        round += 1;
        acks.write_all(&round.to_le_bytes())?;
    }
    Ok(())
}

/// Ends when the client hangs up.
fn lead(
    mut client: TcpStream,
    mut followers: [TcpStream; 2],
    mut acks: TcpStream,
    mut log: Log,
) -> io::Result<()> {
    let (mut request, mut ack) = ([0; REQUEST], [0; 8]);
    let mut round: u64 = 0;
    while client.read_exact(&mut request).is_ok() {
        round += 1;
        for follower in &mut followers {
            follower.write_all(&[7; FRAME])?;
        }
        log.append()?;
        // The first follower to come so far makes it a majority.
        while u64::from_le_bytes(ack) < round {
            acks.read_exact(&mut ack)?;
        }
        client.write_all(&[0; ANSWER])?;
    }
    Ok(())
}

fn timed(mut step: impl FnMut() -> io::Result<()>) -> io::Result<(Histogram<u64>, Duration)> {
    let mut times = histogram();
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let sent = Instant::now();
        step()?;
        let _ = times.record(sent.elapsed().as_micros() as u64);
    }
    Ok((times, begun.elapsed()))
}

/// Measures under `dir`: one sync, one message and its answer, and the whole chain.
pub fn floor(dir: &Path) -> anyhow::Result<Value> {
    let mut log = Log::create(dir, "floor-0")?;
    let (syncs, _) = timed(|| log.append())?;

    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || {
        let mut bytes = [0; ANSWER];
        while far.read_exact(&mut bytes).is_ok() && far.write_all(&bytes).is_ok() {}
    });
    let mut bytes = [0; ANSWER];
    let (messages, _) = timed(|| {
        near.write_all(&bytes)?;
        near.read_exact(&mut bytes)
    })?;
    drop(near);
    let _ = echo.join();

    let (mut client, from_client) = pair()?;
    let (one, to_one) = pair()?;
    let (two, to_two) = pair()?;
    let (acks, told) = pair()?;
    let (acks_too, logs) = (
        acks.try_clone()?,
        [Log::create(dir, "floor-1")?, Log::create(dir, "floor-2")?],
    );
    let [log_one, log_two] = logs;
    let threads = [
        thread::spawn(move || follow(one, acks, log_one)),
        thread::spawn(move || follow(two, acks_too, log_two)),
        thread::spawn(move || lead(from_client, [to_one, to_two], told, log)),
    ];
    let mut answer = [0; ANSWER];
    let (chain, elapsed) = timed(|| {
        client.write_all(&[1; REQUEST])?;
        client.read_exact(&mut answer)
    })?;
    drop(client);
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread of the chain panicked"))??;
    }
    let ms = |times: &Histogram<u64>, q| round(times.value_at_quantile(q) as f64 / 1000.0);
    Ok(json!({
        "sync_p50_ms": ms(&syncs, 0.5),
        "sync_p99_ms": ms(&syncs, 0.99),
        "message_and_answer_p50_ms": ms(&messages, 0.5),
        "handover_p50_ms": ms(&chain, 0.5),
        "handover_p99_ms": ms(&chain, 0.99),
        "handovers_per_s": round(ROUNDS as f64 / elapsed.as_secs_f64()),
    }))
}
