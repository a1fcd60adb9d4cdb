//! Order of two nodes, where a look around the later one will do.

use smallvec::SmallVec;

use super::super::graph::Graph;
use super::super::order::Order;
use super::log::Log;
use super::sighted::Sighted;

/// So many edges are followed back from a node before clocks are asked.
const NEAR: u32 = 64;

/// Tells at once which of two nodes comes first, where a look around the later one will do.
pub(super) struct Near<'a> {
    pub graph: &'a Graph,
    pub order: &'a Order<'a>,
    pub sighted: &'a Sighted,
    pub logs: &'a [Log],
}

impl Near<'_> {
    /// Whether one node comes before another by edges of any kind: it is a direct predecessor of
    /// the other, or comes before one.
    pub fn comes_before(&self, earlier: u32, later: u32) -> Option<bool> {
        let known = self.known(earlier, later);
        if known.is_some() {
            return known;
        }
        let mut steps = 0;
        let mut open: SmallVec<[u32; 16]> = SmallVec::from_slice(&[later]);
        while let Some(node) = open.pop() {
            for edge in self.graph.any().of(node) {
                if edge.from == earlier {
                    return Some(true);
                }
                match self.known(earlier, edge.from) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => open.push(edge.from),
                }
                steps += 1;
                if steps == NEAR {
                    return None;
                }
            }
        }
        Some(false)
    }

    fn known(&self, earlier: u32, later: u32) -> Option<bool> {
        let known = self.order.at_once(earlier, later);
        known.or_else(|| self.sighted.precedes(earlier, later, self.logs))
    }
}
