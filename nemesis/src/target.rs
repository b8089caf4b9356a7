//! The shared words for who is hit.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::env::Env;
use crate::fault::Order;
use crate::process::{Proc, ProcId};
use crate::receipt::Reason;

/// One word. `one`, `minority`, `majority`, `all`, `leader` and `followers` speak of nodes,
/// `holder`, `waiter`, `trigger` and `workers` of workers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// One node, drawn.
    One,
    /// ⌊(n−1)/2⌋ nodes, at least one, drawn.
    Minority,
    /// ⌊n/2⌋+1 nodes, drawn.
    Majority,
    /// Every node.
    All,
    /// The node that leads now, as the service says.
    Leader,
    /// Every node but the leader.
    Followers,
    /// The worker that holds the order's lock now.
    Holder,
    /// A worker that waits for the order's lock now.
    Waiter,
    /// The worker whose event triggered the fault.
    Trigger,
    /// Every worker.
    Workers,
    Proc(ProcId),
}

const WORDS: [(&str, Target); 10] = [
    ("one", Target::One),
    ("minority", Target::Minority),
    ("majority", Target::Majority),
    ("all", Target::All),
    ("leader", Target::Leader),
    ("followers", Target::Followers),
    ("holder", Target::Holder),
    ("waiter", Target::Waiter),
    ("trigger", Target::Trigger),
    ("workers", Target::Workers),
];

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Target::Proc(id) = self {
            return write!(f, "{id}");
        }
        let word = WORDS
            .iter()
            .find(|(_, t)| t == self)
            .map_or("?", |(w, _)| w);
        f.write_str(word)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if let Some((_, t)) = WORDS.iter().find(|(w, _)| *w == s) {
            return Ok(t.clone());
        }
        s.parse().map(Target::Proc).map_err(|_| {
            let words: Vec<&str> = WORDS.iter().map(|(w, _)| *w).collect();
            format!(
                "{s:?} is no target: write worker:N, node:N or one of {}",
                words.join(", ")
            )
        })
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<Target> for String {
    fn from(t: Target) -> String {
        t.to_string()
    }
}

/// One word or a list of words; a list means their union.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(transparent)]
pub struct Targets(pub Vec<Target>);

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Words)
    }
}

/// Reads both shapes by hand: an untagged enum would hide which word is wrong.
struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = Targets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a target such as \"leader\", or a list of targets")
    }

    fn visit_str<E: de::Error>(self, s: &str) -> Result<Targets, E> {
        Ok(Targets(vec![s.parse().map_err(E::custom)?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Targets, A::Error> {
        let mut all = Vec::new();
        while let Some(t) = seq.next_element()? {
            all.push(t);
        }
        Ok(Targets(all))
    }
}

/// Turns an order's words into processes, sorted by id (nodes first), each once.
///
/// Draws depend on `order.draw` alone, so a replayed order hits the same nodes.
///
/// # Errors
/// When a word means nobody now: no leader known, no holder, no such node.
pub async fn resolve(env: &dyn Env, order: &Order) -> Result<Vec<Proc>, Reason> {
    let procs = env.procs();
    let nodes: Vec<ProcId> = procs
        .iter()
        .map(|p| p.id)
        .filter(|id| matches!(id, ProcId::Node(_)))
        .collect();
    let mut chosen = BTreeSet::new();
    for word in &order.targets.0 {
        match word {
            Target::One => chosen.extend(draw(&nodes, 1, order)?),
            Target::Minority => chosen.extend(draw(&nodes, minority(nodes.len()), order)?),
            Target::Majority => chosen.extend(draw(&nodes, nodes.len() / 2 + 1, order)?),
            Target::All => chosen.extend(draw(&nodes, nodes.len(), order)?),
            Target::Leader => {
                chosen.insert(leader(env).await?);
            }
            Target::Followers => {
                let led = leader(env).await?;
                chosen.extend(nodes.iter().copied().filter(|n| *n != led));
            }
            Target::Holder => {
                let id = env.holder(order.lock.as_deref());
                chosen.insert(id.ok_or_else(|| Reason::new("no worker holds the lock now"))?);
            }
            Target::Waiter => {
                let id = env.waiter(order.lock.as_deref());
                chosen.insert(id.ok_or_else(|| Reason::new("no worker waits for the lock now"))?);
            }
            Target::Trigger => {
                let w = order.trigger.ok_or_else(|| {
                    Reason::new("target \"trigger\" needs a fault with `on`: no event here")
                })?;
                chosen.insert(ProcId::Worker(w));
            }
            Target::Workers => {
                let all = procs.iter().map(|p| p.id);
                chosen.extend(all.filter(|id| matches!(id, ProcId::Worker(_))));
            }
            Target::Proc(id) => {
                chosen.insert(*id);
            }
        }
    }
    if chosen.is_empty() {
        return Err(Reason::new("the targets name nobody here"));
    }
    chosen
        .into_iter()
        .map(|id| {
            let found = procs.iter().find(|p| p.id == id).cloned();
            found.ok_or_else(|| Reason::new(format!("{id} is not running in this run")))
        })
        .collect()
}

/// [`resolve`], again and again for a while: a lock has no holder between two holds, and a cluster
/// no leader during an election.
///
/// # Errors
/// The last reason, when the words still mean nobody after `wait`.
pub async fn resolve_within(
    env: &dyn Env,
    order: &Order,
    wait: Duration,
) -> Result<Vec<Proc>, Reason> {
    use Target::{Followers, Holder, Leader, Waiter};
    let passing = |t: &Target| matches!(t, Holder | Waiter | Leader | Followers);
    let wait = if order.targets.0.iter().any(passing) {
        wait
    } else {
        Duration::ZERO
    };
    let deadline = Instant::now() + wait;
    loop {
        match resolve(env, order).await {
            Err(_) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(1)).await
            }
            done => return done,
        }
    }
}

fn minority(n: usize) -> usize {
    (n.saturating_sub(1) / 2).max(1)
}

fn draw(nodes: &[ProcId], n: usize, order: &Order) -> Result<Vec<ProcId>, Reason> {
    if nodes.is_empty() {
        return Err(Reason::new("this run has no nodes"));
    }
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.shuffle(&mut order.rng());
    nodes.truncate(n);
    Ok(nodes)
}

async fn leader(env: &dyn Env) -> Result<ProcId, Reason> {
    let hint = env
        .leader_hint()
        .ok_or_else(|| Reason::new("this system does not say which node leads: name node:N"))?;
    hint.leader()
        .await
        .ok_or_else(|| Reason::new("no node leads now"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::process::Members;
    use crate::testing::{TestEnv, block_on, order};

    fn env(nodes: u32) -> TestEnv {
        let ids = (0..nodes)
            .map(ProcId::Node)
            .chain((0..3).map(ProcId::Worker));
        TestEnv::of(ids.map(|id| Proc {
            id,
            root: 1,
            members: Members::Tree,
            netns: None,
            addr: None,
            port: None,
        }))
    }

    fn who(env: &TestEnv, word: &str) -> Result<Vec<String>, String> {
        let order = order("pause", word, serde_json::json!({}));
        let found = block_on(resolve(env, &order)).map_err(|r| r.0)?;
        Ok(found.iter().map(|p| p.id.to_string()).collect())
    }

    #[test]
    fn sizes_of_groups() {
        for (n, minority, majority) in [(1, 1, 1), (2, 1, 2), (3, 1, 2), (4, 1, 3), (5, 2, 3)] {
            let env = env(n);
            assert_eq!(who(&env, "one").unwrap().len(), 1);
            assert_eq!(who(&env, "minority").unwrap().len(), minority, "{n}");
            assert_eq!(who(&env, "majority").unwrap().len(), majority, "{n}");
            assert_eq!(who(&env, "all").unwrap().len(), n as usize);
        }
    }

    #[test]
    fn roles() {
        let mut env = env(3);
        assert!(who(&env, "leader").is_err());
        assert!(who(&env, "holder").is_err());
        assert!(who(&env, "trigger").is_err());
        assert!(who(&env, "node:9").is_err());
        env.leader = Some(ProcId::Node(1));
        env.holder = Some(ProcId::Worker(2));
        assert_eq!(who(&env, "leader").unwrap(), ["node:1"]);
        assert_eq!(who(&env, "followers").unwrap(), ["node:0", "node:2"]);
        assert_eq!(who(&env, "holder").unwrap(), ["worker:2"]);
        assert_eq!(who(&env, "workers").unwrap().len(), 3);
    }

    #[test]
    fn a_role_that_nobody_has_is_waited_for() {
        let env = env(3);
        let wait = Duration::from_millis(30);
        let began = Instant::now();
        let o = order("pause", "holder", serde_json::json!({}));
        assert!(block_on(resolve_within(&env, &o, wait)).is_err());
        assert!(began.elapsed() >= wait);
        let began = Instant::now();
        let o = order("pause", "node:9", serde_json::json!({}));
        assert!(block_on(resolve_within(&env, &o, Duration::from_secs(60))).is_err());
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "a name does not come to be"
        );
    }

    #[test]
    fn a_draw_repeats_and_a_list_is_a_union() {
        let env = env(5);
        let mut o = order("pause", "minority", serde_json::json!({}));
        let a: Vec<_> = block_on(resolve(&env, &o))
            .unwrap()
            .iter()
            .map(|p| p.id)
            .collect();
        let b: Vec<_> = block_on(resolve(&env, &o))
            .unwrap()
            .iter()
            .map(|p| p.id)
            .collect();
        assert_eq!(a, b);
        o.targets =
            serde_json::from_value(serde_json::json!(["node:1", "all", "worker:0"])).unwrap();
        assert_eq!(block_on(resolve(&env, &o)).unwrap().len(), 6);
    }
}
