//! Delay, loss, duplicates, reordering, a rate limit, or replies dropped after the request was
//! applied: an NFQUEUE of ours in each target's namespace, fed by iptables rules.
//!
//! Proof: our own packets over one link of each target, before, during and after.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, json};

use super::cuts::{self, Direction, From, Shape as Cut};
use super::shape::Shape;
use super::shown::{Shown, load};
use crate::env::Env;
use crate::fault::{Fault, Fut, Handle, Installed, Order};
use crate::net::measure::Load;
use crate::net::probe::{Link, Probe};
use crate::net::queue::Running;
use crate::net::{NetNs, nft};
use crate::process::{Proc, ProcId};
use crate::receipt::{Kind, Reason, Receipt, Status};

pub const ABOUT: &str = "delay, lose, double, reorder or slow packets; drop replies after apply";

/// How long a reply may take before it counts as dropped.
const REPLY: Duration = Duration::from_millis(400);
const FEW: u32 = 20;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Packets {
    /// On links between the targets and these.
    from: From,
    /// `out` (default): packets that leave the targets; `in`: packets that come to them.
    direction: Direction,
    /// What happens to them.
    shape: Shape,
}

impl Default for Packets {
    fn default() -> Self {
        Packets {
            from: From::All,
            direction: Direction::Out,
            shape: Shape::default(),
        }
    }
}

impl Packets {
    /// One target and those on the other ends of its bent links.
    fn peers(&self, all: &[Proc], order: &Order, hit: &Proc) -> Result<Vec<ProcId>, Reason> {
        let ids: Vec<ProcId> = all.iter().map(|p| p.id).collect();
        let rng = &mut order.rng();
        let links = cuts::cuts(
            Cut::Isolate,
            Direction::Out,
            self.from,
            &ids,
            &[hit.id],
            rng,
        )?;
        Ok(links.into_iter().map(|(_, other)| other).collect())
    }

    /// Dropped replies are packets that come in, whatever `direction` says.
    fn way(&self) -> Direction {
        if self.shape.drop_replies {
            Direction::In
        } else {
            self.direction
        }
    }
}

impl Fault for Packets {
    fn kind(&self) -> Kind {
        Kind::Packets
    }

    fn available(&self, env: &dyn Env, order: &Order, targets: &[Proc]) -> Result<(), Reason> {
        self.shape.check().map_err(Reason)?;
        if self.shape.duplicate > 0.0 && self.way() != Direction::Out {
            return Err(Reason::new(
                "duplicate works on outgoing packets: set direction = \"out\"",
            ));
        }
        for p in targets {
            NetNs::of(p)?;
            self.peers(&env.procs(), order, p)?;
            if p.addr.is_none_or(|a| !a.is_ipv4()) {
                return Err(Reason(format!("{} has no IPv4 address", p.id)));
            }
        }
        nft::have("iptables", "iptables")
    }

    fn install<'a>(
        &'a self,
        env: &'a dyn Env,
        order: &'a Order,
        targets: &'a [Proc],
    ) -> Fut<'a, Installed> {
        Box::pin(async move {
            match bend(self, env, order, targets, true).await {
                Ok(done) => done,
                Err(r) => Installed::nothing(Receipt::indeterminate(r)),
            }
        })
    }
}

async fn bend(
    fault: &Packets,
    env: &dyn Env,
    order: &Order,
    targets: &[Proc],
    with_rules: bool,
) -> Result<Installed, Reason> {
    let procs = env.procs();
    let number: u16 = order.id.trim_start_matches('f').parse::<u16>().unwrap_or(0) % 10_000 + 7_000;
    let chain = format!("fp_{}_{}", env.run_id(), order.id);
    let chain = chain.chars().take(28).collect::<String>();
    let mut bent = Bent {
        sites: Vec::new(),
        probe: Probe::open(&[]).await?,
        fault: fault.clone(),
    };
    let mut probed = Vec::new();
    for p in targets {
        let peers = fault.peers(&procs, order, p)?;
        let peers: Vec<&Proc> = procs.iter().filter(|q| peers.contains(&q.id)).collect();
        probed.push(p);
        probed.extend(peers.first());
        let link = (p.id, peers.first().map_or(p.id, |q| q.id));
        let ns = NetNs::of(p)?;
        let was = ns.enter(nft::foreign_rules).await.unwrap_or_default();
        let queue = None;
        let addrs = peers
            .iter()
            .filter_map(|q| Some(q.addr?.to_string()))
            .collect();
        bent.sites.push(Site {
            ns,
            was,
            before: None,
            link,
            queue,
            chain: chain.clone(),
            addrs,
            way: fault.way(),
        });
    }
    bent.probe = Probe::open(&probed).await?;
    // The link was whole: few packets tell, and an event that set this off does not wait.
    let before = bent.measure(FEW).await?;
    for (i, site) in bent.sites.iter_mut().enumerate() {
        site.before = before.get(i).copied();
        let mut rng = order.rng();
        rng.set_stream(i as u64 + 1);
        site.queue = Some(Running::start(&site.ns, number, fault.shape.clone(), rng)?);
        if with_rules {
            site.add_rules(number).await?;
        }
    }
    let during = bent.measure(u32::MAX).await?;
    let receipt = bent.proof(&before, &during);
    Ok(Installed::new(receipt, bent))
}

struct Site {
    ns: NetNs,
    /// The rules of others.
    was: String,
    before: Option<Shown>,
    /// The link that is measured.
    link: Link,
    queue: Option<Running>,
    chain: String,
    addrs: Vec<String>,
    way: Direction,
}

impl Site {
    fn hooks(&self) -> Vec<(&'static str, &'static str)> {
        let (out, come) = (("OUTPUT", "-d"), ("INPUT", "-s"));
        match self.way {
            Direction::Both => vec![out, come],
            Direction::Out => vec![out],
            Direction::In => vec![come],
        }
    }

    async fn add_rules(&self, number: u16) -> Result<(), Reason> {
        let mut lines = vec![format!("-N {}", self.chain)];
        for (hook, side) in self.hooks() {
            for addr in &self.addrs {
                lines.push(format!(
                    "-A {} {side} {addr} -j NFQUEUE --queue-num {number} --queue-bypass",
                    self.chain
                ));
            }
            lines.push(format!("-I {hook} -j {}", self.chain));
        }
        self.ns
            .enter(move || lines.iter().try_for_each(|l| iptables(l)))
            .await
    }

    /// Takes the rules away again; also when only some of them were made.
    fn remove_rules(&self) -> Result<(), Reason> {
        let hooks = self.hooks();
        self.ns.run(|| {
            if !nft::run("iptables", &["-w", "-t", "mangle", "-S"], "")?.contains(&self.chain) {
                return Ok(());
            }
            for (hook, _) in hooks {
                // It may be missing where the install failed half-way.
                let _ = iptables(&format!("-D {hook} -j {}", self.chain));
            }
            iptables(&format!("-F {}", self.chain))?;
            iptables(&format!("-X {}", self.chain))?;
            // iptables makes its table on first use and leaves it, empty, behind.
            let empty = !nft::run("iptables", &["-w", "-t", "mangle", "-S"], "")?.contains("-A ");
            if empty
                && !self.was.contains("table ip mangle")
                && nft::rules()?.contains("table ip mangle")
            {
                nft::apply("delete table ip mangle\n")?;
            }
            Ok(())
        })
    }
}

fn iptables(line: &str) -> Result<(), Reason> {
    let args: Vec<&str> = ["-w", "-t", "mangle"]
        .into_iter()
        .chain(line.split(' '))
        .collect();
    nft::run("iptables", &args, "").map(|_| ())
}

struct Bent {
    sites: Vec<Site>,
    probe: Probe,
    fault: Packets,
}

impl Bent {
    async fn measure(&self, at_most: u32) -> Result<Vec<Shown>, Reason> {
        let s = &self.fault.shape;
        let load = load(s);
        let load = Load {
            packets: load.packets.min(at_most),
            ..load
        };
        let mut shown = Vec::new();
        for site in &self.sites {
            let (asked, answered) = if s.drop_replies {
                self.probe.ask(site.link, REPLY).await?
            } else {
                (true, true)
            };
            let load = if s.drop_replies {
                Load { packets: 4, ..load }
            } else {
                load
            };
            let udp = self.probe.behaviour(site.link, load).await?;
            shown.push(Shown {
                udp,
                asked,
                answered,
            });
        }
        Ok(shown)
    }

    fn proof(&self, before: &[Shown], during: &[Shown]) -> Receipt {
        let mut evidence = Map::new();
        let mut fails = Vec::new();
        for ((site, was), is) in self.sites.iter().zip(before).zip(during) {
            let tally = site.queue.as_ref().map(Running::tally).unwrap_or_default();
            evidence.insert(
                site.link.0.to_string(),
                json!({ "before": was, "during": is, "queue": tally, "over": site.link.1 }),
            );
            // A busy machine can look like a bent one: what was seen must also be our doing.
            let idle = (tally.seen == 0).then_some("no packet came to our queue");
            let lacks = idle.or_else(|| is.lacks(was, &self.fault.shape));
            fails.extend(lacks.map(|f| format!("{}: {f}", site.link.0)));
        }
        let receipt = match fails.first() {
            None => Receipt::installed(),
            Some(f) => Receipt::indeterminate(Reason(f.clone())),
        };
        receipt.evidence(evidence)
    }

    async fn whole_again(&self, shown: &[Shown]) -> Receipt {
        let mut receipt = Receipt::healed();
        let mut evidence = Map::new();
        for (site, is) in self.sites.iter().zip(shown) {
            let same = site
                .ns
                .enter(nft::foreign_rules)
                .await
                .is_ok_and(|now| now == site.was);
            let bent = site
                .before
                .is_some_and(|before| is.still_bent(&before, &self.fault.shape));
            if bent || !same {
                let what = if same {
                    "packets are still bent"
                } else {
                    "rules differ from before"
                };
                receipt = Receipt::indeterminate(Reason(format!("{}: {what}", site.link.0)));
            }
            let shown = json!({ "after": is, "rules_identical": same });
            evidence.insert(site.link.0.to_string(), shown);
        }
        receipt.evidence(evidence)
    }

    fn remove(&mut self) -> Result<Vec<Site>, Reason> {
        for site in &self.sites {
            site.remove_rules()
                .map_err(|r| Reason(format!("{}: {r}", site.link.0)))?;
        }
        let mut sites = std::mem::take(&mut self.sites);
        sites.iter_mut().for_each(|s| s.queue = None);
        Ok(sites)
    }
}

impl Handle for Bent {
    fn heal<'a>(&'a mut self, _env: &'a dyn Env) -> Fut<'a, Receipt> {
        Box::pin(async move {
            self.sites = match self.remove() {
                Ok(sites) => sites,
                Err(r) => return Receipt::indeterminate(r),
            };
            let mut receipt = Receipt::healed();
            // A busy machine delays and loses packets by itself: look more than once.
            for _ in 0..3 {
                let shown = match self.measure(u32::MAX).await {
                    Ok(shown) => shown,
                    Err(r) => return Receipt::indeterminate(r),
                };
                receipt = self.whole_again(&shown).await;
                if receipt.status == Status::Healed {
                    break;
                }
            }
            self.sites.clear();
            receipt
        })
    }
}

impl Drop for Bent {
    fn drop(&mut self) {
        // Without a report there is nobody to tell; the namespaces end with the run anyway.
        let _ = self.remove();
    }
}

#[cfg(test)]
#[path = "packets_tests.rs"]
mod tests;
