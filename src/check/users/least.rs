//! Numbers by position; finds those in a range that are small, without a look at the others.

/// Numbers of some positions.
#[derive(Default)]
pub(super) struct Least {
    /// The positions that have one, in order.
    positions: Vec<u32>,
    tree: LeastTree,
}

impl Least {
    /// From positions in order and their numbers.
    pub fn of<'a>(numbers: impl Iterator<Item = (usize, &'a u32)>) -> Self {
        let mut positions = Vec::new();
        let mut values = Vec::new();
        for (position, &number) in numbers {
            positions.push(position as u32);
            values.push(number);
        }
        Self { positions, tree: LeastTree::new(values) }
    }

    /// Calls `found` for each position of `start..end` whose number is at most `bound`.
    pub fn at_most(&self, start: u32, end: u32, bound: u32, mut found: impl FnMut(u32)) {
        if start >= end || self.positions.is_empty() {
            return;
        }
        let low = self.positions.partition_point(|&position| position < start);
        let high = low + self.positions[low..].partition_point(|&position| position < end);
        self.tree.at_most(low, high, bound, &mut |index| found(self.positions[index]));
    }
}

/// A binary heap of minima.
#[derive(Default)]
struct LeastTree {
    /// The numbers themselves from `base` on.
    nodes: Vec<u32>,
    base: usize,
}

impl LeastTree {
    fn new(numbers: Vec<u32>) -> Self {
        let base = numbers.len();
        let mut nodes = vec![0; base];
        nodes.extend(numbers);
        for node in (1..base).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        Self { nodes, base }
    }

    fn at_most(&self, start: usize, end: usize, bound: u32, found: &mut impl FnMut(usize)) {
        let (mut low, mut high) = (start + self.base, end + self.base);
        while low < high {
            if low & 1 == 1 {
                self.descend(low, bound, found);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                self.descend(high, bound, found);
            }
            low >>= 1;
            high >>= 1;
        }
    }

    fn descend(&self, node: usize, bound: u32, found: &mut impl FnMut(usize)) {
        if self.nodes[node] > bound {
            return;
        }
        if node >= self.base {
            found(node - self.base);
            return;
        }
        self.descend(2 * node, bound, found);
        self.descend(2 * node + 1, bound, found);
    }
}
