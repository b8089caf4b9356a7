//! Evidence that is an order cycle: the shortest one.
//!
//! Vertices are operations on a register whose written values are distinct;
//! edges say "must come before": in real time; a write before the reads of its
//! value; a read of the initial value before every write; and, where an
//! operation on value u precedes one on value v in real time, every operation
//! on u before every one on v, since the operations on one value are contiguous.

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{Bfs, EdgeRef, Walker};

use crate::models::register::{RegCall, RegOp, Took};
use crate::ops::Timed;

/// Vertices above this are too many for a graph of all pairs.
const LARGE: usize = 64;

fn graph(ops: &[Timed<RegOp>], at: &[usize], initial: u32) -> DiGraph<usize, ()> {
    let mut g = DiGraph::new();
    let nodes: Vec<NodeIndex> = at.iter().map(|&i| g.add_node(i)).collect();
    let precedes = |a: usize, b: usize| ops[a].ret < ops[b].call;
    let value = |i: usize| ops[i].op.a;
    for (x, &a) in at.iter().enumerate() {
        for (y, &b) in at.iter().enumerate().filter(|&(y, _)| y != x) {
            let write = |i: usize| ops[i].op.call == RegCall::Write && ops[i].op.took != Took::No;
            let same = value(a) == value(b);
            let reads_from = same && write(a) && !write(b);
            let first = value(a) == initial && !write(a) && write(b);
            let apart = !same
                && at.iter().any(|&u| {
                    value(u) == value(a)
                        && at.iter().any(|&v| value(v) == value(b) && precedes(u, v))
                });
            if precedes(a, b) || reads_from || first || apart {
                g.add_edge(nodes[x], nodes[y], ());
            }
        }
    }
    g
}

/// Shortest path from `to` back to `from`, by breadth-first search.
fn path(g: &DiGraph<usize, ()>, from: NodeIndex, to: NodeIndex) -> Option<Vec<NodeIndex>> {
    let mut parent = vec![None; g.node_count()];
    for node in Bfs::new(g, from).iter(g) {
        for e in g.edges(node).filter(|e| e.target() != from) {
            parent[e.target().index()].get_or_insert(node);
        }
    }
    let mut path = vec![to];
    while *path.last()? != from {
        path.push(parent[path.last()?.index()]?);
    }
    path.reverse();
    Some(path)
}

/// A shortest cycle of operations, each of which must come before the next, the
/// last before the first. Empty if there is none.
pub(crate) fn shortest(ops: &[Timed<RegOp>], at: &[usize], initial: u32) -> Vec<usize> {
    if at.len() > LARGE {
        return Vec::new();
    }
    let g = graph(ops, at, initial);
    let closed = |e: petgraph::graph::EdgeReference<()>| path(&g, e.target(), e.source());
    let best = g.edge_references().filter_map(closed).min_by_key(Vec::len);
    best.unwrap_or_default().into_iter().map(|n| g[n]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(call: u64, ret: u64, kind: RegCall, a: u32) -> Timed<RegOp> {
        Timed {
            call,
            ret,
            process: call,
            op: RegOp {
                fence: 0,
                a,
                b: 0,
                call: kind,
                took: Took::Yes,
            },
        }
    }

    #[test]
    fn stale_read_is_a_cycle_of_two() {
        // write 1, write 2, then a read of 1: it must come before write 2, and after.
        let ops = [
            op(0, 1, RegCall::Write, 1),
            op(2, 3, RegCall::Write, 2),
            op(4, 5, RegCall::Read, 1),
        ];
        let cycle = shortest(&ops, &[0, 1, 2], 0);
        assert_eq!(cycle.len(), 2, "{cycle:?}");
        assert_ne!(
            ops[cycle[0]].op.a, ops[cycle[1]].op.a,
            "between the two values"
        );
    }

    #[test]
    fn good_order_has_none() {
        let ops = [
            op(0, 1, RegCall::Write, 1),
            op(2, 3, RegCall::Read, 1),
            op(4, 5, RegCall::Write, 2),
        ];
        assert!(shortest(&ops, &[0, 1, 2], 0).is_empty());
    }
}
