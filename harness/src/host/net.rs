//! Bridges, veths and addresses by rtnetlink: nothing needs to be installed.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::AsRawFd,
};

use futures_util::TryStreamExt;
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};

use super::{HostError, namespace::NetNs};

/// Where a unit is plugged in.
#[derive(Debug, Clone)]
pub struct Plug<'a> {
    /// The bridge's name in this process's namespace.
    pub bridge: &'a str,
    /// Name of the bridge's end, unique in this namespace, at most 15 bytes.
    pub veth: String,
    pub addr: Ipv4Addr,
    pub prefix: u8,
}

/// Makes a bridge with an address in this process's namespace, and lifts loopback.
pub(super) fn make_bridge(name: &str, addr: Ipv4Addr, prefix: u8) -> Result<(), HostError> {
    let made = std::thread::scope(|s| {
        s.spawn(|| {
            netlink(async |h| {
                up_loopback(&h).await?;
                h.link()
                    .add(LinkBridge::new(name).up().build())
                    .execute()
                    .await?;
                let index = index_of(&h, name).await?;
                h.address()
                    .add(index, IpAddr::V4(addr), prefix)
                    .execute()
                    .await
            })
        })
        .join()
    });
    flat(made).map_err(|e| failed(format!("bridge {name}"), &e))
}

/// Removes an interface of this process's namespace; its veths' ends too, where it is one.
pub(super) fn remove_link(name: &str) -> Result<(), HostError> {
    let removed = std::thread::scope(|s| {
        s.spawn(|| {
            netlink(async |h| {
                let index = index_of(&h, name).await?;
                h.link().del(index).execute().await
            })
        })
        .join()
    });
    flat(removed).map_err(|e| failed(format!("removing {name}"), &e))
}

/// Connects a namespace to a bridge: inside it, `eth0` with the address.
pub(super) fn plug(ns: &NetNs, at: &Plug<'_>) -> Result<(), HostError> {
    let peer = format!("{}p", at.veth);
    let peer = peer.as_str();
    let outside =
        std::thread::scope(|s| s.spawn(|| netlink(|h| join_bridge(h, ns, at, peer))).join());
    flat(outside).map_err(|e| failed(format!("veth {} on {}", at.veth, at.bridge), &e))?;
    ns.run(|| {
        netlink(async |h| {
            up_loopback(&h).await?;
            let index = index_of(&h, peer).await?;
            let link = LinkUnspec::new_with_index(index).name("eth0").build();
            h.link().set(link).execute().await?;
            h.address()
                .add(index, IpAddr::V4(at.addr), at.prefix)
                .execute()
                .await?;
            let link = LinkUnspec::new_with_index(index).up().build();
            h.link().set(link).execute().await
        })
    })
    .map_err(|e| failed(format!("address {}", at.addr), &e))
}

async fn join_bridge(
    h: Handle,
    ns: &NetNs,
    at: &Plug<'_>,
    peer: &str,
) -> Result<(), rtnetlink::Error> {
    let bridge = index_of(&h, at.bridge).await?;
    h.link()
        .add(LinkVeth::new(&at.veth, peer).build())
        .execute()
        .await?;
    let index = index_of(&h, peer).await?;
    let fd = std::os::fd::AsFd::as_fd(ns).as_raw_fd();
    let moved = LinkUnspec::new_with_index(index).setns_by_fd(fd).build();
    h.link().set(moved).execute().await?;
    let index = index_of(&h, &at.veth).await?;
    let joined = LinkUnspec::new_with_index(index)
        .controller(bridge)
        .up()
        .build();
    h.link().set(joined).execute().await
}

async fn up_loopback(h: &Handle) -> Result<(), rtnetlink::Error> {
    let index = index_of(h, "lo").await?;
    let link = LinkUnspec::new_with_index(index).up().build();
    h.link().set(link).execute().await
}

async fn index_of(h: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    let mut found = h.link().get().match_name(name.to_string()).execute();
    let link = found.try_next().await?;
    link.map(|l| l.header.index)
        .ok_or(rtnetlink::Error::RequestFailed)
}

/// Talks to the kernel from the calling thread's network namespace.
fn netlink<T>(ask: impl AsyncFnOnce(Handle) -> Result<T, rtnetlink::Error>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        ask(handle).await.map_err(io::Error::other)
    })
}

fn flat<T>(joined: std::thread::Result<io::Result<T>>) -> io::Result<T> {
    joined.unwrap_or_else(|_| Err(io::Error::other("the netlink thread panicked")))
}

fn failed(what: String, e: &io::Error) -> HostError {
    HostError::Network {
        what,
        reason: e.to_string(),
    }
}
