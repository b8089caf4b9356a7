//! Which directions of which links a partition cuts. Pure.

use std::collections::BTreeSet;

use rand::Rng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::net::probe::Link;
use crate::process::ProcId;
use crate::receipt::Reason;

/// How the targets are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The targets, still together, against everyone else that `from` names: with target `one` it
    /// is isolate-one, with `minority` a minority, with `leader` isolate-leader.
    #[default]
    Isolate,
    /// The targets in two halves, drawn.
    Halves,
    /// Two halves that share one node, which sees both.
    Bridge,
    /// Every node sees a majority, no two the same one. At least 4 nodes.
    MajoritiesRing,
}

/// Whom `isolate` cuts the targets from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    #[default]
    Nodes,
    Workers,
    All,
}

/// Which way packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    #[default]
    Both,
    /// The targets hear nothing (of two halves: the first hears nothing of the second).
    In,
    /// The targets are not heard.
    Out,
}

/// The cut directions among `all`.
///
/// # Errors
/// When there are too few targets for the shape, or nothing would be cut.
pub fn cuts(
    shape: Shape,
    direction: Direction,
    from: From,
    all: &[ProcId],
    targets: &[ProcId],
    rng: &mut impl Rng,
) -> Result<BTreeSet<Link>, Reason> {
    let mut ring = targets.to_vec();
    ring.sort_unstable();
    ring.shuffle(rng);
    let n = ring.len();
    let few = |need: usize| Reason(format!("this partition needs {need} targets, has {n}"));
    let mut cut = BTreeSet::new();
    let mut between = |a: ProcId, b: ProcId| {
        if direction != Direction::In {
            cut.insert((a, b));
        }
        if direction != Direction::Out {
            cut.insert((b, a));
        }
    };
    match shape {
        Shape::Isolate => {
            let others = all.iter().filter(|id| match (from, id) {
                (From::All, _) => true,
                (From::Nodes, id) => matches!(id, ProcId::Node(_)),
                (From::Workers, id) => matches!(id, ProcId::Worker(_)),
            });
            for other in others.filter(|o| !targets.contains(o)) {
                targets.iter().for_each(|t| between(*t, *other));
            }
        }
        Shape::Halves if n < 2 => return Err(few(2)),
        Shape::Halves => {
            let (first, second) = ring.split_at(n / 2);
            first
                .iter()
                .for_each(|a| second.iter().for_each(|b| between(*a, *b)));
        }
        Shape::Bridge if n < 3 => return Err(few(3)),
        Shape::Bridge => {
            let (first, second) = ring[1..].split_at((n - 1) / 2);
            first
                .iter()
                .for_each(|a| second.iter().for_each(|b| between(*a, *b)));
        }
        Shape::MajoritiesRing if n < 4 => return Err(few(4)),
        Shape::MajoritiesRing => {
            let near = (n / 2).div_ceil(2);
            for i in 0..n {
                for j in i + 1..n {
                    if (j - i).min(n - (j - i)) > near {
                        between(ring[i], ring[j]);
                    }
                }
            }
        }
    }
    if cut.is_empty() {
        return Err(Reason::new(
            "this partition cuts nothing: nobody is on the other side",
        ));
    }
    Ok(cut)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn nodes(n: u32) -> Vec<ProcId> {
        (0..n).map(ProcId::Node).collect()
    }

    fn make(shape: Shape, dir: Direction, from: From, n: u32, t: &[ProcId]) -> BTreeSet<Link> {
        let all: Vec<_> = nodes(n)
            .into_iter()
            .chain((0..2).map(ProcId::Worker))
            .collect();
        cuts(shape, dir, from, &all, t, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
    }

    /// How many of the others each node still exchanges packets with, both ways.
    fn sees(cut: &BTreeSet<Link>, n: u32) -> Vec<usize> {
        let open = |a, b| !cut.contains(&(a, b)) && !cut.contains(&(b, a));
        let count = |a| {
            nodes(n)
                .into_iter()
                .filter(|b| a != *b && open(a, *b))
                .count()
        };
        nodes(n).into_iter().map(count).collect()
    }

    #[test]
    fn isolate_cuts_targets_from_those_named_both_ways() {
        let one = [ProcId::Node(1)];
        let cut = make(Shape::Isolate, Direction::Both, From::Nodes, 3, &one);
        assert_eq!(cut.len(), 4);
        assert!(cut.contains(&(ProcId::Node(1), ProcId::Node(0))));
        assert_eq!(
            make(Shape::Isolate, Direction::Both, From::All, 3, &one).len(),
            8
        );
        let worker = [ProcId::Worker(0)];
        assert_eq!(
            make(Shape::Isolate, Direction::Both, From::Nodes, 3, &worker).len(),
            6
        );
    }

    #[test]
    fn one_way_cuts_one_direction() {
        let (t, o) = (ProcId::Node(0), ProcId::Node(1));
        let cut = make(Shape::Isolate, Direction::In, From::Nodes, 2, &[t]);
        assert_eq!(cut, BTreeSet::from([(o, t)]));
        let cut = make(Shape::Isolate, Direction::Out, From::Nodes, 2, &[t]);
        assert_eq!(cut, BTreeSet::from([(t, o)]));
    }

    #[test]
    fn shapes() {
        let mut halves = sees(
            &make(Shape::Halves, Direction::Both, From::Nodes, 5, &nodes(5)),
            5,
        );
        halves.sort_unstable();
        assert_eq!(halves, [1, 1, 2, 2, 2]);
        let mut bridge = sees(
            &make(Shape::Bridge, Direction::Both, From::Nodes, 5, &nodes(5)),
            5,
        );
        bridge.sort_unstable();
        assert_eq!(bridge, [2, 2, 2, 2, 4]);
        for n in 4..9 {
            let cut = make(
                Shape::MajoritiesRing,
                Direction::Both,
                From::Nodes,
                n,
                &nodes(n),
            );
            let majority = n as usize / 2 + 1;
            for others in sees(&cut, n) {
                assert!(
                    others + 1 >= majority && others + 1 < n as usize,
                    "{n}: {others}"
                );
            }
        }
    }

    #[test]
    fn what_cuts_nothing_is_refused() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let all = nodes(3);
        for shape in [Shape::Isolate, Shape::MajoritiesRing] {
            let got = cuts(shape, Direction::Both, From::Nodes, &all, &all, rng);
            assert!(got.is_err(), "{shape:?}");
        }
        assert!(
            cuts(
                Shape::Halves,
                Direction::Both,
                From::Nodes,
                &all,
                &all[..1],
                rng
            )
            .is_err()
        );
    }
}
