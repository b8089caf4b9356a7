//! An NFQUEUE of ours in a namespace: a thread that passes, holds, drops or doubles packets.
//!
//! The rules that lead to it carry `--queue-bypass`: without a reader, packets just pass, so that a
//! controller that was killed leaves the network whole.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nfq::{Message, Queue, Verdict};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt,
    socket, sockopt,
};
use serde::Serialize;
use std::os::fd::{AsRawFd, OwnedFd};

use super::ns::NetNs;
use crate::faults::shape::{Fate, Shape, Shaper};
use crate::receipt::Reason;

/// Marks our own second copies, which pass as they are.
const COPY: u32 = 0xfe9c_e057;
/// The crate offers no descriptor to wait on; this is how late a packet is seen at worst.
const NAP: Duration = Duration::from_micros(300);
const LONGEST_QUEUE: u32 = 16_384;

/// Packets counted by fate.
#[derive(Debug, Default)]
struct Counts {
    seen: AtomicU64,
    dropped: AtomicU64,
    held: AtomicU64,
    doubled: AtomicU64,
}

/// What the queue has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub seen: u64,
    pub dropped: u64,
    pub held: u64,
    pub doubled: u64,
}

/// A running queue. Dropping it lets everything that it holds pass, and ends its thread.
pub struct Running {
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Binds queue `number` in `ns` and begins to shape.
    ///
    /// # Errors
    /// When the kernel has no NFQUEUE, the number is taken, or the namespace cannot be entered.
    pub fn start(
        ns: &NetNs,
        number: u16,
        shape: Shape,
        rng: rand_chacha::ChaCha8Rng,
    ) -> Result<Running, Reason> {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let (said, hear) = mpsc::channel();
        let (ns, stopped, counted) = (ns.clone(), stop.clone(), counts.clone());
        let thread = std::thread::Builder::new()
            .name("fencepost-queue".into())
            .spawn(move || {
                match open(ns, number, shape.duplicate > 0.0) {
                    Ok((queue, raw)) => {
                        // The other end waits for this one word.
                        let _ = said.send(Ok(()));
                        Work::new(queue, raw, Shaper::new(shape, rng), counted).run(&stopped);
                    }
                    Err(r) => {
                        let _ = said.send(Err(r));
                    }
                }
            })?;
        let running = Running {
            stop,
            counts,
            thread: Some(thread),
        };
        match hear.recv() {
            Ok(Ok(())) => Ok(running),
            Ok(Err(r)) => Err(r),
            Err(_) => Err(Reason::new("the packet queue's thread panicked")),
        }
    }

    pub fn tally(&self) -> Tally {
        let c = &self.counts;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Tally {
            seen: get(&c.seen),
            dropped: get(&c.dropped),
            held: get(&c.held),
            doubled: get(&c.doubled),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has closed the queue already: packets pass.
            let _ = thread.join();
        }
    }
}

/// Opens the queue in `ns` for the calling thread alone.
///
/// The crate's socket is not close-on-exec: a process started meanwhile would inherit it, and the
/// kernel would go on queueing for a reader that never reads. So this thread gets a table of
/// descriptors of its own, empty but for the standard streams (else it would hold others' pipes open).
fn open(ns: NetNs, number: u16, doubles: bool) -> Result<(Queue, Option<OwnedFd>), Reason> {
    ns.enter_for_good()?;
    drop(ns);
    // SAFETY: a plain system call. This thread owns no descriptor object.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as i32) } != 0 {
        let e = io::Error::last_os_error();
        return Err(Reason(format!(
            "close_range: {e}: needs Linux 5.9 or later"
        )));
    }
    let mut queue = Queue::open().map_err(|e| Reason(format!("no NFQUEUE here: {e}")))?;
    queue
        .bind(number)
        .and_then(|()| queue.set_queue_max_len(number, LONGEST_QUEUE))
        .map_err(|e| Reason(format!("cannot bind NFQUEUE {number}: {e}")))?;
    queue.set_nonblocking(true);
    Ok((queue, if doubles { Some(raw_socket()?) } else { None }))
}

fn raw_socket() -> Result<OwnedFd, Reason> {
    let fd = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )
    .map_err(io::Error::from)?;
    setsockopt(&fd, sockopt::Mark, &COPY).map_err(io::Error::from)?;
    Ok(fd)
}

struct Work {
    queue: Queue,
    raw: Option<OwnedFd>,
    shaper: Shaper,
    began: Instant,
    /// When each held packet leaves; equal times in order of arrival.
    order: BinaryHeap<Reverse<(Duration, u64)>>,
    held: HashMap<u64, (Message, bool)>,
    next: u64,
    counts: Arc<Counts>,
}

impl Work {
    fn new(queue: Queue, raw: Option<OwnedFd>, shaper: Shaper, counts: Arc<Counts>) -> Self {
        Work {
            queue,
            raw,
            shaper,
            began: Instant::now(),
            order: BinaryHeap::new(),
            held: HashMap::new(),
            next: 0,
            counts,
        }
    }

    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let came = self.take();
            self.release(self.began.elapsed());
            if !came {
                std::thread::sleep(NAP);
            }
        }
        self.take();
        self.release(Duration::MAX);
    }

    /// Reads what has come; whether there was anything.
    fn take(&mut self) -> bool {
        let mut came = false;
        // Bounded, so that held packets leave in time under any load.
        for _ in 0..256 {
            let Ok(mut packet) = self.queue.recv() else {
                break;
            };
            came = true;
            if packet.get_nfmark() == COPY {
                packet.set_verdict(Verdict::Accept);
                let _ = self.queue.verdict(packet);
                continue;
            }
            add(&self.counts.seen);
            let now = self.began.elapsed();
            match self.shaper.fate(now, packet.get_payload()) {
                Fate::Drop => {
                    add(&self.counts.dropped);
                    packet.set_verdict(Verdict::Drop);
                    let _ = self.queue.verdict(packet);
                }
                Fate::Pass { at, twice } if at <= now => self.pass(packet, twice),
                Fate::Pass { at, twice } => {
                    add(&self.counts.held);
                    self.order.push(Reverse((at, self.next)));
                    self.held.insert(self.next, (packet, twice));
                    self.next += 1;
                }
            }
        }
        came
    }

    fn release(&mut self, now: Duration) {
        while let Some(Reverse((at, n))) = self.order.peek().copied()
            && at <= now
        {
            self.order.pop();
            if let Some((packet, twice)) = self.held.remove(&n) {
                self.pass(packet, twice);
            }
        }
    }

    fn pass(&mut self, mut packet: Message, twice: bool) {
        let copy = twice.then(|| packet.get_payload().to_vec());
        packet.set_verdict(Verdict::Accept);
        // A verdict fails only when the kernel has dropped the packet meanwhile.
        let _ = self.queue.verdict(packet);
        if let (Some(copy), Some(raw)) = (copy, &self.raw)
            && copy.len() >= 20
        {
            let to = SocketAddr::from((Ipv4Addr::new(copy[16], copy[17], copy[18], copy[19]), 0));
            let SocketAddr::V4(to) = to else { return };
            if sendto(
                raw.as_raw_fd(),
                &copy,
                &SockaddrIn::from(to),
                MsgFlags::empty(),
            )
            .is_ok()
            {
                add(&self.counts.doubled);
            }
        }
    }
}

fn add(n: &AtomicU64) {
    n.fetch_add(1, Ordering::Relaxed);
}
