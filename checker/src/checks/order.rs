//! The shortest cycle in orders that should agree: real time, fences, the store's log.
//!
//! An operation with a lower fence belongs before one with a higher fence; the log says in which order the
//! store took them; a grant that was answered before another was asked for came first. Where these
//! disagree there is a cycle, and the shortest one is the least that a person has to read.

use std::collections::VecDeque;

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// Why one thing comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ended before the other began.
    RealTime,
    /// Has the lower fence.
    Fence,
    /// Stands before it in the store's log.
    Store,
}

/// A shortest cycle among things `0..n` as (thing, why it comes before the next one), from the lowest thing in
/// it; the first found of equals. `None`: the orders agree.
pub fn shortest_cycle(n: usize, before: &[(usize, usize, Order)]) -> Option<Vec<(usize, Order)>> {
    let mut graph: DiGraph<(), Order> = DiGraph::new();
    let nodes: Vec<NodeIndex> = (0..n).map(|_| graph.add_node(())).collect();
    for (a, b, why) in before {
        graph.add_edge(nodes[*a], nodes[*b], *why);
    }
    let mut best: Option<Vec<(usize, Order)>> = None;
    for start in &nodes {
        let limit = best.as_ref().map_or(usize::MAX, Vec::len);
        if let Some(cycle) = cycle_from(&graph, *start, limit) {
            best = Some(cycle);
        }
    }
    best
}

/// The shortest cycle through `start` that is shorter than `limit`, by breadth-first search.
fn cycle_from(
    graph: &DiGraph<(), Order>,
    start: NodeIndex,
    limit: usize,
) -> Option<Vec<(usize, Order)>> {
    let mut came: Vec<Option<(NodeIndex, Order)>> = vec![None; graph.node_count()];
    let mut queue = VecDeque::from([(start, 1)]);
    while let Some((at, length)) = queue.pop_front() {
        if length >= limit {
            return None;
        }
        for edge in graph.edges(at) {
            let (to, why) = (edge.target(), *edge.weight());
            if to == start {
                return Some(walk_back(&came, start, at, why));
            }
            if came[to.index()].is_none() {
                came[to.index()] = Some((at, why));
                queue.push_back((to, length + 1));
            }
        }
    }
    None
}

fn walk_back(
    came: &[Option<(NodeIndex, Order)>],
    start: NodeIndex,
    last: NodeIndex,
    why: Order,
) -> Vec<(usize, Order)> {
    let mut cycle = vec![(last.index(), why)];
    let mut at = last;
    while at != start {
        let Some((before, why)) = came[at.index()] else {
            break;
        };
        cycle.push((before.index(), why));
        at = before;
    }
    cycle.reverse();
    cycle
}

#[cfg(test)]
mod tests {
    use super::Order::{Fence, RealTime, Store};
    use super::*;

    #[test]
    fn orders_that_agree_have_no_cycle() {
        let agree = [
            (0, 1, RealTime),
            (0, 1, Fence),
            (1, 2, Store),
            (0, 2, Fence),
        ];
        assert_eq!(shortest_cycle(3, &agree), None);
        assert_eq!(shortest_cycle(0, &[]), None);
    }

    #[test]
    fn the_shortest_of_several_is_found() {
        let edges = [
            (0, 1, RealTime),
            (1, 2, Store),
            (2, 0, Fence),
            (3, 4, Store),
            (4, 3, Fence),
        ];
        assert_eq!(
            shortest_cycle(5, &edges),
            Some(vec![(3, Store), (4, Fence)])
        );
        assert_eq!(shortest_cycle(5, &edges[..3]).map(|c| c.len()), Some(3));
    }
}
