//! Probes between namespaces: does a datagram, does a TCP connection get from one to another?
//!
//! The sockets are ours, made inside the targets' namespaces, so that a paused or killed target
//! changes nothing. A datagram tells the directions of a link apart; a connection needs both.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::OwnedFd;
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::time::{Instant, sleep, timeout_at};

use super::ns::NetNs;
use crate::process::{Proc, ProcId};
use crate::receipt::Reason;

/// A direction of a link.
pub type Link = (ProcId, ProcId);

/// How long a probe waits for what should arrive.
const WAIT: Duration = Duration::from_millis(400);
const DATAGRAMS: u32 = 3;

/// One namespace with our sockets in it.
pub(super) struct End {
    pub ns: NetNs,
    pub addr: IpAddr,
    pub udp: UdpSocket,
    pub tcp: TcpListener,
}

impl End {
    /// Late arrivals of an earlier probe say nothing about the next one.
    pub fn drain(&self) {
        let mut old = [0; 2048];
        while self.udp.try_recv_from(&mut old).is_ok() {}
    }
}

/// Ends of all links that are to be probed.
pub struct Probe {
    ends: BTreeMap<ProcId, End>,
}

impl Probe {
    /// Opens sockets in the namespaces of these processes.
    ///
    /// # Errors
    /// When one has no namespace or no address, or sockets cannot be made there.
    pub async fn open(procs: &[&Proc]) -> Result<Probe, Reason> {
        let mut ends = BTreeMap::new();
        for p in procs {
            let ns = NetNs::of(p)?;
            let addr = p
                .addr
                .ok_or_else(|| Reason(format!("{} has no address", p.id)))?;
            let any = SocketAddr::new(addr, 0);
            let (udp, tcp) = ns
                .enter(move || {
                    let udp = std::net::UdpSocket::bind(any)?;
                    let tcp = std::net::TcpListener::bind(any)?;
                    udp.set_nonblocking(true)?;
                    tcp.set_nonblocking(true)?;
                    Ok((udp, tcp))
                })
                .await
                .map_err(|r| Reason(format!("no probe in {}: {r}", p.id)))?;
            let (udp, tcp) = (UdpSocket::from_std(udp)?, TcpListener::from_std(tcp)?);
            ends.insert(p.id, End { ns, addr, udp, tcp });
        }
        Ok(Probe { ends })
    }

    pub(super) fn both(&self, (a, b): Link) -> Result<(&End, &End), Reason> {
        let end = |id: ProcId| {
            self.ends
                .get(&id)
                .ok_or_else(|| Reason(format!("no probe was opened in {id}")))
        };
        Ok((end(a)?, end(b)?))
    }

    /// Sends datagrams over all links at once and sees which arrive.
    ///
    /// # Errors
    /// When a socket fails in another way than losing packets.
    pub async fn datagrams(&self, links: &BTreeSet<Link>) -> Result<BTreeSet<Link>, Reason> {
        let until = Instant::now() + WAIT;
        let mut from = BTreeMap::new();
        for (id, end) in &self.ends {
            from.insert(end.udp.local_addr()?, *id);
            end.drain();
        }
        let mut passed = BTreeSet::new();
        for round in 0..DATAGRAMS {
            for (a, b) in links.iter().filter(|l| !passed.contains(*l)) {
                if let (Some(a), Some(b)) = (self.ends.get(a), self.ends.get(b)) {
                    // A rule may refuse the send itself (EPERM): that is a loss too.
                    let _ = a.udp.send_to(b"fencepost", b.udp.local_addr()?).await;
                }
            }
            let pause = if round + 1 == DATAGRAMS {
                until
            } else {
                Instant::now() + WAIT / 8
            };
            while passed.len() < links.len() && Instant::now() < pause {
                self.collect(&from, links, &mut passed);
                sleep(Duration::from_millis(2)).await;
            }
        }
        Ok(passed)
    }

    fn collect(
        &self,
        from: &BTreeMap<SocketAddr, ProcId>,
        links: &BTreeSet<Link>,
        passed: &mut BTreeSet<Link>,
    ) {
        let mut buffer = [0; 64];
        for (to, end) in &self.ends {
            while let Ok((_, sender)) = end.udp.try_recv_from(&mut buffer) {
                let link = from.get(&sender).map(|a| (*a, *to));
                passed.extend(link.filter(|l| links.contains(l)));
            }
        }
    }

    /// Tries to connect over each link; connections stay in the listener's queue, unaccepted.
    pub async fn connections(&self, links: &BTreeSet<Link>) -> BTreeMap<Link, String> {
        let mut tries = tokio::task::JoinSet::new();
        for (a, b) in links {
            let (Some(from), Some(to)) = (self.ends.get(a), self.ends.get(b)) else {
                continue;
            };
            let (ns, addr, link) = (from.ns.clone(), from.addr, (*a, *b));
            let Ok(to) = to.tcp.local_addr() else {
                continue;
            };
            tries.spawn(async move { (link, connect(&ns, addr, to).await) });
        }
        let mut seen = BTreeMap::new();
        while let Some(Ok((link, how))) = tries.join_next().await {
            seen.insert(link, how);
        }
        for end in self.ends.values() {
            while let Ok(Ok(_)) = timeout_at(Instant::now(), end.tcp.accept()).await {}
        }
        seen
    }
}

/// A TCP socket that belongs to `ns`.
pub(super) async fn tcp_socket(ns: &NetNs, from: IpAddr) -> Result<TcpSocket, Reason> {
    let family = if from.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd: OwnedFd = ns
        .enter(move || Ok(socket(family, SockType::Stream, flags, None).map_err(io::Error::from)?))
        .await?;
    Ok(TcpSocket::from_std_stream(fd.into()))
}

async fn connect(ns: &NetNs, from: IpAddr, to: SocketAddr) -> String {
    let socket = match tcp_socket(ns, from).await {
        Ok(socket) => socket,
        Err(r) => return r.0,
    };
    match timeout_at(Instant::now() + WAIT, socket.connect(to)).await {
        Err(_) => "timeout".into(),
        Ok(Ok(_)) => "connected".into(),
        Ok(Err(e)) => match e.kind() {
            io::ErrorKind::ConnectionRefused => "refused".into(),
            io::ErrorKind::ConnectionReset => "reset".into(),
            _ => e.to_string(),
        },
    }
}
