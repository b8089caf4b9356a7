//! How a link behaves: round trips, losses, second copies, overtaking, throughput.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::probe::{Link, Probe, tcp_socket};
use crate::receipt::Reason;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub packets: u32,
    pub gap: Duration,
    /// Payload of each, bytes.
    pub size: usize,
    /// How long to wait for the last to come back.
    pub tail: Duration,
}

/// What came of it. Each packet goes there, is echoed, and comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Behaviour {
    pub sent: u32,
    /// Distinct packets that came back.
    pub back: u32,
    /// Second copies, at either end.
    pub copies: u32,
    /// Packets that arrived there after one sent later.
    pub overtaken: u32,
    /// Median round trip, milliseconds.
    pub rtt_ms: f64,
    /// Shortest round trip, milliseconds: a busy machine makes this one least longer.
    pub min_ms: f64,
    /// From the first to the last arrival there, milliseconds.
    pub spread_ms: f64,
}

impl Behaviour {
    pub fn loss(&self) -> f64 {
        1.0 - f64::from(self.back) / f64::from(self.sent.max(1))
    }
}

impl Probe {
    /// Sends `load` over a link and back.
    ///
    /// # Errors
    /// When a socket fails in another way than losing packets.
    pub async fn behaviour(&self, link: Link, load: Load) -> Result<Behaviour, Reason> {
        let (near, far) = self.both(link)?;
        near.drain();
        far.drain();
        let (near_at, far_at) = (near.udp.local_addr()?, far.udp.local_addr()?);
        let mut seen = Behaviour::default();
        let (mut there, mut back) = (BTreeSet::new(), BTreeSet::new());
        let mut trips = Vec::new();
        let mut arrivals: Option<(Instant, Instant)> = None;
        let mut buffer = vec![0; 2048];
        let mut sent_at = Vec::new();
        let mut end = Instant::now() + load.tail;
        let mut due = Instant::now();
        loop {
            let now = Instant::now();
            if seen.sent < load.packets && now >= due {
                let mut packet = vec![0; load.size.max(4)];
                packet[..4].copy_from_slice(&seen.sent.to_be_bytes());
                // Refused by a rule is as good as lost.
                let _ = near.udp.send_to(&packet, far_at).await;
                sent_at.push(now);
                seen.sent += 1;
                due = now + load.gap;
                end = now + load.tail;
            }
            while let Ok((n, from)) = far.udp.try_recv_from(&mut buffer) {
                let Some(id) = number(&buffer[..n]).filter(|_| from == near_at) else {
                    continue;
                };
                let now = Instant::now();
                arrivals = Some((arrivals.map_or(now, |(first, _)| first), now));
                if there.last().is_some_and(|last| *last > id) && !there.contains(&id) {
                    seen.overtaken += 1;
                }
                seen.copies += u32::from(!there.insert(id));
                let _ = far.udp.send_to(&buffer[..n], near_at).await;
            }
            while let Ok((n, from)) = near.udp.try_recv_from(&mut buffer) {
                let Some(id) = number(&buffer[..n]).filter(|_| from == far_at) else {
                    continue;
                };
                if back.insert(id)
                    && let Some(at) = sent_at.get(id as usize)
                {
                    trips.push(at.elapsed());
                }
            }
            let all = back.len() == load.packets as usize;
            if seen.sent == load.packets && (now >= end || (all && now >= due)) {
                break;
            }
            sleep(Duration::from_micros(200)).await;
        }
        trips.sort_unstable();
        seen.back = u32::try_from(back.len()).unwrap_or(u32::MAX);
        seen.rtt_ms = trips
            .get(trips.len() / 2)
            .map_or(0.0, |t| t.as_secs_f64() * 1e3);
        seen.min_ms = trips.first().map_or(0.0, |t| t.as_secs_f64() * 1e3);
        seen.spread_ms = arrivals.map_or(0.0, |(a, b)| (b - a).as_secs_f64() * 1e3);
        Ok(seen)
    }

    /// Asks over a new TCP connection and waits for the reply: (the request arrived there, the reply
    /// arrived here).
    ///
    /// # Errors
    /// When sockets cannot be made.
    pub async fn ask(&self, link: Link, wait: Duration) -> Result<(bool, bool), Reason> {
        let (near, far) = self.both(link)?;
        let socket = tcp_socket(&near.ns, near.addr).await?;
        let to = far.tcp.local_addr()?;
        let Ok(Ok(mut here)) = timeout(wait, socket.connect(to)).await else {
            return Ok((false, false));
        };
        let Ok(Ok((mut there, _))) = timeout(wait, far.tcp.accept()).await else {
            return Ok((false, false));
        };
        let mut word = [0; 4];
        let asked = async {
            here.write_all(b"ask?").await?;
            there.read_exact(&mut word).await
        };
        if !matches!(timeout(wait, asked).await, Ok(Ok(_))) {
            return Ok((false, false));
        }
        let answered = async {
            there.write_all(b"yes!").await?;
            here.read_exact(&mut word).await
        };
        Ok((true, matches!(timeout(wait, answered).await, Ok(Ok(_)))))
    }
}

fn number(packet: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(packet.get(..4)?.try_into().ok()?))
}
