//! Cuts links with an nftables table of our own in the targets' network namespaces.
//!
//! `drop`: the receiver drops what the other side sends. `reset`: the sender's own packets are
//! rejected with a TCP reset on their way out, so that both ends learn of it at once.
//! Proof: datagrams that pass before, fail while it holds, and pass after healing; and the rules
//! of each namespace, byte for byte the same before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::json;

use super::cuts::{Direction, From, Shape, cuts};
use crate::env::Env;
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::net::probe::{Link, Probe};
use crate::net::{NetNs, nft};
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt};

pub const ABOUT: &str = "cut links between nodes, or workers from nodes, by DROP or RST";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    shape: Shape,
    from: From,
    direction: Direction,
    how: How,
}

/// What happens to a packet on a cut link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum How {
    /// Silence.
    #[default]
    Drop,
    /// TCP is answered with a reset; everything else is dropped.
    Reset,
}

impl Partition {
    fn links(&self, all: &[Proc], order: &Order, hit: &[Proc]) -> Result<BTreeSet<Link>, Reason> {
        let ids = |ps: &[Proc]| ps.iter().map(|p| p.id).collect::<Vec<_>>();
        let rng = &mut order.rng();
        cuts(
            self.shape,
            self.direction,
            self.from,
            &ids(all),
            &ids(hit),
            rng,
        )
    }
}

impl Fault for Partition {
    fn kind(&self) -> Kind {
        Kind::Cut
    }

    fn available(&self, env: &dyn Env, order: &Order, targets: &[Proc]) -> Result<(), Reason> {
        self.links(&env.procs(), order, targets)?;
        for p in targets {
            NetNs::of(p)?;
        }
        nft::have("nft", "nftables")
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(async move {
            let procs = env.procs();
            let links = match self.links(&procs, order, targets) {
                Ok(links) => links,
                Err(r) => return Installed::nothing(Receipt::skipped(r)),
            };
            let table = format!("fencepost_{}_{}", env.run_id(), order.id);
            match cut(table, &procs, links, self.how, nft::apply).await {
                Ok(done) => done,
                Err(r) => Installed::nothing(Receipt::indeterminate(r)),
            }
        })
    }

    fn affects(&self, env: &dyn Env, order: &Order, targets: &[Proc]) -> Vec<ProcId> {
        let links = self.links(&env.procs(), order, targets).unwrap_or_default();
        let ends: BTreeSet<ProcId> = links.into_iter().flat_map(|(a, b)| [a, b]).collect();
        ends.into_iter().collect()
    }
}

type Apply = fn(&str) -> Result<(), Reason>;

async fn cut(
    table: String,
    procs: &[Proc],
    links: BTreeSet<Link>,
    how: How,
    apply: Apply,
) -> Result<Installed, Reason> {
    let ends: BTreeSet<ProcId> = links.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let involved: Vec<&Proc> = procs.iter().filter(|p| ends.contains(&p.id)).collect();
    let probe = Probe::open(&involved).await?;
    let all: BTreeSet<Link> = ends
        .iter()
        .flat_map(|a| ends.iter().filter(move |b| a != *b).map(|b| (*a, *b)))
        .collect();
    let before = probe.datagrams(&all).await?;

    let mut held = Held {
        table,
        sites: Vec::new(),
        links,
        probe,
        before,
    };
    for (id, commands) in rules(&held.table, &involved, &held.links, how)? {
        let Some(p) = involved.iter().find(|p| p.id == id) else {
            continue;
        };
        let ns = NetNs::of(p)?;
        let was = ns.enter(nft::foreign_rules).await?;
        held.sites.push(Site {
            id,
            ns: ns.clone(),
            was,
        });
        ns.enter(move || apply(&commands)).await?;
    }
    let receipt = held.proof().await?;
    Ok(Installed::new(receipt, held))
}

/// The nft commands for each namespace that gets rules.
fn rules(
    table: &str,
    procs: &[&Proc],
    links: &BTreeSet<Link>,
    how: How,
) -> Result<BTreeMap<ProcId, String>, Reason> {
    let addr = |id: ProcId| {
        let found = procs.iter().find(|p| p.id == id).and_then(|p| p.addr);
        found.ok_or_else(|| Reason(format!("{id} has no address")))
    };
    let (hook, side) = match how {
        How::Drop => ("input", "saddr"),
        How::Reset => ("output", "daddr"),
    };
    let mut lines: BTreeMap<ProcId, String> = BTreeMap::new();
    for (from, to) in links {
        let (place, other) = match how {
            How::Drop => (*to, *from),
            How::Reset => (*from, *to),
        };
        let other = addr(other)?;
        let family = if matches!(other, IpAddr::V4(_)) {
            "ip"
        } else {
            "ip6"
        };
        let text = lines.entry(place).or_default();
        if how == How::Reset {
            let _ = writeln!(
                text,
                "{family} {side} {other} meta l4proto tcp reject with tcp reset"
            );
        }
        let _ = writeln!(text, "{family} {side} {other} drop");
    }
    for text in lines.values_mut() {
        *text = format!(
            "table inet {table} {{\nchain {hook} {{\ntype filter hook {hook} priority raw; policy accept;\n{text}}}\n}}\n"
        );
    }
    Ok(lines)
}

struct Site {
    id: ProcId,
    ns: NetNs,
    /// The namespace's rules but ours.
    was: String,
}

/// A partition that holds.
struct Held {
    table: String,
    sites: Vec<Site>,
    links: BTreeSet<Link>,
    probe: Probe,
    /// Links over which datagrams passed before.
    before: BTreeSet<Link>,
}

impl Held {
    async fn proof(&self) -> Result<Receipt, Reason> {
        let all: BTreeSet<Link> = self.before.union(&self.links).copied().collect();
        let during = self.probe.datagrams(&all).await?;
        let tcp = self.probe.connections(&self.links).await;
        let unseen: BTreeSet<Link> = self.links.difference(&self.before).copied().collect();
        let through: BTreeSet<Link> = self.links.intersection(&during).copied().collect();
        let cut = &self.links;
        let lost: BTreeSet<Link> = self
            .before
            .iter()
            .filter(|l| !cut.contains(l) && !during.contains(l))
            .copied()
            .collect();
        let connected: BTreeSet<Link> = tcp
            .iter()
            .filter(|(_, how)| *how == "connected")
            .map(|(l, _)| *l)
            .collect();
        let why = if !through.is_empty() || !connected.is_empty() {
            Some("packets still pass over links that should be cut")
        } else if !unseen.is_empty() {
            Some("links did not pass packets before the fault: their loss proves nothing")
        } else if !lost.is_empty() {
            Some("links that should be whole lose packets too")
        } else {
            None
        };
        let receipt = match why {
            None => Receipt::installed(),
            Some(why) => Receipt::indeterminate(Reason::new(why)),
        };
        let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
        tcp.values()
            .for_each(|how| *answers.entry(how).or_default() += 1);
        Ok(receipt
            .proof("cut", names(&self.links))
            .proof("still_pass", names(&through))
            .proof("failed_before", names(&unseen))
            .proof("lost_besides", names(&lost))
            .proof("kept", during.difference(&self.links).count())
            .proof("tcp", answers))
    }

    fn remove(&mut self) -> Result<(), Reason> {
        let command = format!("delete table inet {}\n", self.table);
        let mut failed = Ok(());
        self.sites.retain(|site| {
            match site.ns.run(|| match nft::apply(&command) {
                // Never made, or gone already.
                Err(_) if !nft::rules()?.contains(&self.table) => Ok(()),
                other => other,
            }) {
                Ok(()) => false,
                Err(r) => {
                    failed = Err(Reason(format!("{}: {r}", site.id)));
                    true
                }
            }
        });
        failed
    }
}

fn names(links: &BTreeSet<Link>) -> Vec<String> {
    links.iter().map(|(a, b)| format!("{a}>{b}")).collect()
}

impl Handle for Held {
    fn heal<'a>(&'a mut self, _env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            let sites: Vec<(ProcId, NetNs, String)> = self
                .sites
                .iter()
                .map(|s| (s.id, s.ns.clone(), s.was.clone()))
                .collect();
            if let Err(r) = self.remove() {
                return Receipt::indeterminate(r);
            }
            let mut changed = Vec::new();
            for (id, ns, was) in sites {
                match ns.enter(nft::foreign_rules).await {
                    Ok(is) if is == was => {}
                    Ok(_) => changed.push(id),
                    Err(r) => return Receipt::indeterminate(r),
                }
            }
            let after = match self.probe.datagrams(&self.links).await {
                Ok(after) => after,
                Err(r) => return Receipt::indeterminate(r),
            };
            let dead: BTreeSet<Link> = self
                .links
                .intersection(&self.before)
                .filter(|l| !after.contains(l))
                .copied()
                .collect();
            let receipt = if !dead.is_empty() {
                Receipt::indeterminate(Reason::new("links do not pass packets after healing"))
            } else if !changed.is_empty() {
                Receipt::indeterminate(Reason::new("firewall rules differ from those before"))
            } else {
                Receipt::healed()
            };
            receipt
                .proof("pass_again", after.len())
                .proof("dead", names(&dead))
                .proof("rules_identical", json!(changed.is_empty()))
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without a report there is nobody to tell; the namespaces end with the run anyway.
        let _ = self.remove();
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
