//! The run's network: a subnet that nobody uses, a bridge whose name we choose.

use std::{collections::HashMap, net::Ipv4Addr};

use bollard::{
    Docker,
    models::{Ipam, IpamConfig, NetworkCreateRequest},
    query_parameters::{
        ListContainersOptionsBuilder, ListNetworksOptions, ListNetworksOptionsBuilder,
        RemoveContainerOptionsBuilder,
    },
};
use futures_util::future::join_all;

use super::{LABEL, docker_error};
use crate::host::{HostError, fnv, machine::blocking, net};

pub(super) const PREFIX: u8 = 22;
/// Where free subnets are looked for: 128 of 1,024 addresses, in a corner of 10/8 that few use.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 0);
const CANDIDATES: u32 = 128;

pub(super) struct Made {
    pub name: String,
    pub base: Ipv4Addr,
    pub gateway: Ipv4Addr,
    pub prefix: u8,
}

/// An address range `[from, to]`.
type Range = (u32, u32);

pub(super) async fn create(docker: &Docker, run_id: &str, bridge: &str) -> Result<Made, HostError> {
    let mut taken = routes();
    let networks = docker.list_networks(None::<ListNetworksOptions>).await;
    for n in networks.map_err(|e| docker_error("networks", &e))? {
        let configs = n.ipam.and_then(|i| i.config).unwrap_or_default();
        taken.extend(configs.iter().filter_map(|c| cidr(c.subnet.as_deref()?)));
    }
    let name = format!("fencepost-{run_id}");
    let mut last = "every candidate is in use".to_string();
    for base in candidates(&taken) {
        let gateway = Ipv4Addr::from(u32::from(base) + 1);
        let request = NetworkCreateRequest {
            name: name.clone(),
            driver: Some("bridge".into()),
            ipam: Some(Ipam {
                config: Some(vec![IpamConfig {
                    subnet: Some(format!("{base}/{PREFIX}")),
                    gateway: Some(gateway.to_string()),
                    ..IpamConfig::default()
                }]),
                ..Ipam::default()
            }),
            options: Some(HashMap::from([(
                "com.docker.network.bridge.name".to_string(),
                bridge.to_string(),
            )])),
            labels: Some(HashMap::from([(LABEL.to_string(), run_id.to_string())])),
            ..NetworkCreateRequest::default()
        };
        match docker.create_network(request).await {
            Ok(_) => {
                return Ok(Made {
                    name,
                    base,
                    gateway,
                    prefix: PREFIX,
                });
            }
            // Another run may have taken it since we looked.
            Err(e) => last = docker_error("network", &e).to_string(),
        }
        if !last.contains("overlap") {
            break;
        }
    }
    Err(HostError::Network {
        what: "a subnet for the run".into(),
        reason: last,
    })
}

fn candidates(taken: &[Range]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let size = 1 << (32 - PREFIX);
    (0..CANDIDATES)
        .map(move |n| u32::from(FIRST) + n * size)
        .filter(move |from| {
            taken
                .iter()
                .all(|(a, b)| from + size - 1 < *a || *b < *from)
        })
        .map(Ipv4Addr::from)
}

fn cidr(text: &str) -> Option<Range> {
    let (addr, bits) = text.split_once('/')?;
    let (addr, bits): (Ipv4Addr, u32) = (addr.parse().ok()?, bits.parse().ok()?);
    let host = u32::MAX.checked_shr(bits).unwrap_or(0);
    let from = u32::from(addr) & !host;
    Some((from, from | host))
}

/// Networks that this machine has a route to, but for the default route.
fn routes() -> Vec<Range> {
    parse_routes(&std::fs::read_to_string("/proc/net/route").unwrap_or_default())
}

fn parse_routes(text: &str) -> Vec<Range> {
    let hex = |s: &str| u32::from_str_radix(s, 16).map(u32::swap_bytes).ok();
    text.lines()
        .skip(1)
        .filter_map(|l| {
            let f: Vec<&str> = l.split_ascii_whitespace().collect();
            let (to, mask) = (hex(f.get(1)?)?, hex(f.get(7)?)?);
            (mask != 0).then_some((to & mask, to | !mask))
        })
        .collect()
}

/// How many of each were removed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    pub containers: usize,
    pub networks: usize,
}

/// Removes every container and network that carries the run's label, and the containers' volumes.
pub async fn remove_run(docker: &Docker, run_id: &str) -> Result<Removed, HostError> {
    let mut removed = Removed::default();
    let label = format!("{LABEL}={run_id}");
    let filters = HashMap::from([("label", vec![label.as_str()])]);
    let all = ListContainersOptionsBuilder::default()
        .all(true)
        .filters(&filters)
        .build();
    let containers = docker.list_containers(Some(all)).await;
    let containers = containers.map_err(|e| docker_error("containers", &e))?;
    let ids: Vec<String> = containers.into_iter().filter_map(|c| c.id).collect();
    let removals = ids.iter().map(|id| {
        let force = RemoveContainerOptionsBuilder::default()
            .force(true)
            .v(true)
            .build();
        docker.remove_container(id, Some(force))
    });
    for result in join_all(removals).await {
        result
            .or_else(gone)
            .map_err(|e| docker_error("removing a container", &e))?;
        removed.containers += 1;
    }
    let mine = ListNetworksOptionsBuilder::default()
        .filters(&filters)
        .build();
    let networks = docker.list_networks(Some(mine)).await;
    for id in networks
        .map_err(|e| docker_error("networks", &e))?
        .into_iter()
        .filter_map(|n| n.id)
    {
        let went = docker.remove_network(&id).await.or_else(gone);
        went.map_err(|e| docker_error("removing a network", &e))?;
        removed.networks += 1;
    }
    Ok(removed)
}

/// The bridge's name, and the prefix of the veths on it: short, since names of interfaces are.
pub(super) fn bridge_name(run_id: &str) -> String {
    format!("fp{:06x}", fnv(run_id.as_bytes()) & 0xff_ffff)
}

/// Removes interfaces of the run that are in this namespace still. A veth goes with the namespace
/// of its other end, a bridge with its network: there are some only where that failed.
pub async fn remove_interfaces(run_id: &str) -> Result<usize, HostError> {
    let prefix = bridge_name(run_id);
    let all = nix::net::if_::if_nameindex().map_err(|e| HostError::io("interfaces")(e.into()))?;
    let names = all
        .iter()
        .filter_map(|i| Some(i.name().to_str().ok()?.to_string()));
    let mine: Vec<String> = names.filter(|n| n.starts_with(&prefix)).collect();
    let count = mine.len();
    blocking(move || mine.iter().try_for_each(|name| net::remove_link(name))).await?;
    Ok(count)
}

/// Somebody else (a `heal`) was quicker.
fn gone(e: bollard::errors::Error) -> Result<(), bollard::errors::Error> {
    match e {
        bollard::errors::Error::DockerResponseServerError {
            status_code: 404 | 409,
            ref message,
        } if message.contains("No such")
            || message.contains("not found")
            || message.contains("already in progress") =>
        {
            Ok(())
        }
        e => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_ranges_are_avoided() {
        let first = candidates(&[]).next();
        assert_eq!(first, Some(FIRST));
        let taken = [cidr("10.214.0.0/21"), cidr("10.214.9.7/32")];
        let taken: Vec<Range> = taken.into_iter().flatten().collect();
        let free: Vec<Ipv4Addr> = candidates(&taken).take(2).collect();
        assert_eq!(free[0], Ipv4Addr::new(10, 214, 12, 0));
        assert!(candidates(&[(0, u32::MAX)]).next().is_none());
    }

    #[test]
    fn cidr_is_a_range() {
        assert_eq!(cidr("0.0.0.0/0"), Some((0, u32::MAX)));
        assert_eq!(cidr("1.2.3.4/32"), Some((0x0102_0304, 0x0102_0304)));
        assert_eq!(cidr("fe80::/64"), None);
    }

    #[test]
    fn routes_are_read_and_the_default_left_out() {
        let text = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                    eth0 00000000 010011AC 0003 0 0 0 00000000 0 0 0\n\
                    eth0 000011AC 00000000 0001 0 0 0 0000FFFF 0 0 0\n";
        assert_eq!(parse_routes(text), vec![(0xac11_0000, 0xac11_ffff)]);
    }
}
