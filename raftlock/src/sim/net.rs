//! A simulated network: TCP streams whose bytes arrive in order and late, links that are cut in either direction, packets
//! that are lost (and come late), connections that are reset, machines that fall silent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::process::{self, Process};
use super::votes::Watched;
use crate::chance;
use crate::transport::{Listener, Stream, Transport};

/// What TCP waits before it sends a lost packet again, first; it doubles.
const RESEND: Duration = Duration::from_millis(200);

thread_local! {
    static NET: RefCell<Net> = RefCell::new(Net::default());
}

#[derive(Default)]
struct Net {
    shape: Shape,
    cut: BTreeSet<(u16, u16)>,
    dark: BTreeSet<u16>,
    ports: BTreeMap<(u16, u16), Arc<Mutex<Backlog>>>,
    pipes: Vec<Weak<Mutex<Pipe>>>,
}

/// How packets fare.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Shortest and longest way, microseconds.
    pub delay: (u64, u64),
    /// Packets lost of a thousand.
    pub lost: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            delay: (300, 2_000),
            lost: 0,
        }
    }
}

/// A network without machines.
pub fn reset() {
    NET.set(Net::default());
}

/// How packets fare from now on.
pub fn shape(shape: Shape) {
    NET.with_borrow_mut(|net| net.shape = shape);
}

/// Nothing goes from `from` to `to` any more.
pub fn cut(from: u16, to: u16) {
    NET.with_borrow_mut(|net| net.cut.insert((from, to)));
}

/// A machine without power: it answers nothing, not even with a reset.
pub fn dark(machine: u16, dark: bool) {
    NET.with_borrow_mut(|net| {
        if dark {
            net.dark.insert(machine)
        } else {
            net.dark.remove(&machine)
        }
    });
}

/// Mends the link. What was sent meanwhile arrives when TCP sends it again; some connections do not live so long.
pub fn mend(from: u16, to: u16) {
    let pipes = NET.with_borrow_mut(|net| {
        net.cut.remove(&(from, to));
        net.pipes.retain(|pipe| pipe.strong_count() > 0);
        net.pipes
            .iter()
            .filter_map(Weak::upgrade)
            .collect::<Vec<_>>()
    });
    for pipe in pipes {
        let waker = {
            let mut pipe = lock(&pipe);
            if (pipe.from, pipe.to) != (from, to)
                || pipe.segments.is_empty() && pipe.closed.is_none()
            {
                continue;
            }
            pipe.reset |= chance::random().is_multiple_of(4);
            let again = Instant::now() + RESEND.mul_f64((chance::random() % 100) as f64 / 50.0);
            pipe.delay_until(again);
            pipe.reader.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn is_cut(from: u16, to: u16) -> bool {
    NET.with_borrow(|net| net.cut.contains(&(from, to)) || net.dark.contains(&to))
}

fn delay() -> Duration {
    let shape = NET.with_borrow(|net| net.shape);
    let (shortest, longest) = shape.delay;
    let mut way = Duration::from_micros(shortest + chance::random() % (longest - shortest).max(1));
    let mut again = RESEND;
    while shape.lost > 0 && chance::random() % 1000 < shape.lost {
        way += again;
        again *= 2;
    }
    way
}

/// Bytes on their way in one direction.
struct Pipe {
    from: u16,
    to: u16,
    segments: VecDeque<(Instant, Vec<u8>)>,
    taken: usize,
    last: Instant,
    closed: Option<Instant>,
    reset: bool,
    gone: Gone,
    reader: Option<Waker>,
}

/// What became of the reader.
#[derive(PartialEq, Eq)]
enum Gone {
    No,
    Closed,
    /// Its machine lost its power: nobody tells the writer.
    Silently,
}

impl Pipe {
    fn delay_until(&mut self, at: Instant) {
        for (arrives, _) in &mut self.segments {
            *arrives = at.max(*arrives);
        }
        self.last = at.max(self.last);
        self.closed = self.closed.map(|closed| closed.max(at));
    }

    fn arrival(&mut self) -> Instant {
        self.last = self.last.max(Instant::now() + delay());
        self.last
    }
}

fn lock<T>(shared: &Arc<Mutex<T>>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pipe(from: u16, to: u16) -> Arc<Mutex<Pipe>> {
    let pipe = Arc::new(Mutex::new(Pipe {
        from,
        to,
        segments: VecDeque::new(),
        taken: 0,
        last: Instant::now(),
        closed: None,
        reset: false,
        gone: Gone::No,
        reader: None,
    }));
    NET.with_borrow_mut(|net| net.pipes.push(Arc::downgrade(&pipe)));
    pipe
}

/// One end of a connection.
pub struct SimStream {
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
    timer: Option<Pin<Box<Sleep>>>,
    owner: Option<Arc<Process>>,
}

impl SimStream {
    fn new(incoming: Arc<Mutex<Pipe>>, outgoing: Arc<Mutex<Pipe>>) -> Self {
        SimStream {
            incoming,
            outgoing,
            timer: None,
            owner: None,
        }
    }

    fn reset(&self) {
        for pipe in [&self.incoming, &self.outgoing] {
            let mut pipe = lock(pipe);
            pipe.reset = true;
            if let Some(waker) = pipe.reader.take() {
                waker.wake();
            }
        }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut pipe = lock(&this.incoming);
        pipe.reader = Some(cx.waker().clone());
        if pipe.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let Some(at) = pipe.segments.front().map(|(at, _)| *at).or(pipe.closed) else {
            return Poll::Pending;
        };
        if is_cut(pipe.from, pipe.to) {
            return Poll::Pending;
        }
        if Instant::now() < at {
            let timer = this
                .timer
                .get_or_insert_with(|| Box::pin(sleep(Duration::ZERO)));
            timer.as_mut().reset(at);
            let _ = timer.as_mut().poll(cx);
            return Poll::Pending;
        }
        while let Some((arrives, bytes)) = pipe.segments.front()
            && *arrives <= Instant::now()
            && buffer.remaining() > 0
        {
            let rest = &bytes[pipe.taken..];
            let count = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..count]);
            if count == rest.len() {
                pipe.segments.pop_front();
                pipe.taken = 0;
            } else {
                pipe.taken += count;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let broken = {
            let mut pipe = lock(&self.outgoing);
            let reachable = !is_cut(pipe.from, pipe.to) && !is_cut(pipe.to, pipe.from);
            if !pipe.reset && (pipe.gone == Gone::No || !reachable) {
                let at = pipe.arrival();
                pipe.segments.push_back((at, bytes.to_vec()));
                if let Some(waker) = pipe.reader.take() {
                    waker.wake();
                }
                return Poll::Ready(Ok(bytes.len()));
            }
            pipe.gone != Gone::No
        };
        if broken {
            self.reset();
        }
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.outgoing);
        if pipe.closed.is_none() {
            pipe.closed = Some(pipe.arrival());
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let machine = lock(&self.incoming).to;
        let killed = self.owner.as_ref().is_some_and(|owner| owner.is_dead());
        let silent = killed && NET.with_borrow(|net| net.dark.contains(&machine));
        lock(&self.incoming).gone = if silent { Gone::Silently } else { Gone::Closed };
        if silent {
            return;
        }
        let mut pipe = lock(&self.outgoing);
        pipe.closed = pipe
            .closed
            .or_else(|| Some(pipe.last.max(Instant::now() + delay())));
        if let Some(waker) = pipe.reader.take() {
            waker.wake();
        }
    }
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<SimStream>,
    waker: Option<Waker>,
}

/// Connects the current process's machine to another; waits for one that does not answer.
pub async fn connect(to: u16, port: u16) -> io::Result<SimStream> {
    let from = process::machine();
    loop {
        sleep(delay()).await;
        if is_cut(from, to) || is_cut(to, from) {
            sleep(RESEND).await;
            continue;
        }
        let found = NET.with_borrow(|net| net.ports.get(&(to, port)).cloned());
        sleep(delay()).await;
        let Some(backlog) = found else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (there, back) = (pipe(from, to), pipe(to, from));
        let mut mine = SimStream::new(Arc::clone(&back), Arc::clone(&there));
        mine.owner = process::owner();
        let mut backlog = lock(&backlog);
        backlog.waiting.push_back(SimStream::new(there, back));
        if let Some(waker) = backlog.waker.take() {
            waker.wake();
        }
        return Ok(mine);
    }
}

/// A port of the current process's machine.
pub struct SimListener {
    place: (u16, u16),
    backlog: Arc<Mutex<Backlog>>,
}

/// Listens on a port of the current process's machine.
pub fn bind(port: u16) -> SimListener {
    let place = (process::machine(), port);
    let backlog = Arc::new(Mutex::new(Backlog::default()));
    NET.with_borrow_mut(|net| net.ports.insert(place, Arc::clone(&backlog)));
    SimListener { place, backlog }
}

impl SimListener {
    /// The next connection.
    pub async fn next(&mut self) -> SimStream {
        std::future::poll_fn(|cx| {
            let mut backlog = lock(&self.backlog);
            match backlog.waiting.pop_front() {
                Some(mut stream) => {
                    stream.owner = process::owner();
                    Poll::Ready(stream)
                }
                None => {
                    backlog.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        NET.with_borrow_mut(|net| {
            if net
                .ports
                .get(&self.place)
                .is_some_and(|port| Arc::ptr_eq(port, &self.backlog))
            {
                net.ports.remove(&self.place);
            }
        });
    }
}

type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// The simulated network between replicas; an address is `MACHINE:PORT`.
pub struct SimNet;

fn place(addr: &str) -> io::Result<(u16, u16)> {
    addr.split_once(':')
        .and_then(|(machine, port)| Some((machine.parse().ok()?, port.parse().ok()?)))
        .ok_or_else(|| io::Error::other("not an address of the simulation"))
}

impl Transport for SimNet {
    fn dial<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let (machine, port) = place(addr)?;
            let limit = Duration::from_millis(500);
            let stream = tokio::time::timeout(limit, connect(machine, port)).await??;
            Ok(Box::new(Watched::new(stream, true)) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, addr: &'a str) -> Pending<'a, Box<dyn Listener>> {
        Box::pin(async move { Ok(Box::new(bind(place(addr)?.1)) as Box<dyn Listener>) })
    }
}

impl Listener for SimListener {
    fn accept(&mut self) -> Pending<'_, Box<dyn Stream>> {
        Box::pin(async move {
            let stream = self.next().await;
            Ok(Box::new(Watched::new(stream, false)) as Box<dyn Stream>)
        })
    }

    fn addr(&self) -> String {
        format!("{}:{}", self.place.0, self.place.1)
    }
}
