//! A number for each chain, for each of many.

use std::ops::Range;

/// So many numbers are compared at a time, without a branch each.
const LANES: usize = 8;

/// Numbers of chains that follow one another.
pub(crate) type Lanes = [u32; LANES];

/// Rows of numbers, each filled up with zeros.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Lanes in a row.
    width: usize,
    lanes: Vec<Lanes>,
}

impl Numbers {
    /// No rows of so many numbers, and room for some.
    pub fn new(numbers: usize, rows: usize) -> Self {
        let width = numbers.div_ceil(LANES);
        Self { width, lanes: Vec::with_capacity(width * rows) }
    }

    /// Adds a row.
    pub fn push(&mut self, numbers: &[u32]) {
        let (whole, rest) = numbers.as_chunks();
        self.lanes.extend_from_slice(whole);
        if !rest.is_empty() {
            let mut last = [0; LANES];
            last[..rest.len()].copy_from_slice(rest);
            self.lanes.push(last);
        }
    }

    /// Adds a row that lies in lanes already.
    pub fn push_row(&mut self, row: &[Lanes]) {
        self.lanes.extend_from_slice(row);
    }

    /// A row.
    #[inline]
    pub fn row(&self, row: usize) -> &[Lanes] {
        &self.lanes[row * self.width..(row + 1) * self.width]
    }

    /// A row, to be changed.
    pub fn row_mut(&mut self, row: usize) -> &mut [Lanes] {
        &mut self.lanes[row * self.width..(row + 1) * self.width]
    }

    /// A number of a row; 0 where there is none.
    #[inline]
    pub fn number(&self, row: usize, at: u32) -> u32 {
        let at = row * self.width * LANES + at as usize;
        self.lanes.as_flattened().get(at).copied().unwrap_or(0)
    }

    /// Some lanes of a row.
    #[inline]
    pub fn part(&self, row: usize, lanes: Range<u32>) -> &[Lanes] {
        let start = row * self.width;
        &self.lanes[start + lanes.start as usize..start + lanes.end as usize]
    }

    /// From the first lanes of a row with a number to the last.
    pub fn used(&self, row: usize) -> Range<u32> {
        let some = |lanes: &Lanes| *lanes != [0; LANES];
        let row = self.row(row);
        let start = row.iter().position(some).unwrap_or(0);
        let end = row.iter().rposition(some).map_or(start, |last| last + 1);
        start as u32..end as u32
    }
}

/// Whether `known` holds all of `needed`, number by number.
#[inline]
pub(crate) fn within(needed: &[Lanes], known: &[Lanes]) -> bool {
    let all = |(needed, known): (&Lanes, &Lanes)| {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        needed.iter().zip(known).fold(true, |all, (needed, known)| all & (needed <= known))
    };
    needed.iter().zip(known).all(all)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use regraph_record::journal::BlockNumber;

    use crate::lifetimes::{Lifetime, Lifetimes};
    use crate::minimum::Minimum;
    use crate::plan::{Options, Plan};

    thread_local! {
        /// How many lanes this thread has compared.
        pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    const PAGE: u64 = 4096;

    /// The blocks of so many launches on one stream behind each other's programmatic edges that prove nothing, each
    /// allocated before its launch and freed behind the last: each launch is a chain of its own, and a block knows the
    /// one before.
    fn unproven(launches: usize) -> Lifetimes {
        let mut lifetimes = Lifetimes::new(launches);
        for own in 0..launches {
            let [known, needed]: [Vec<u32>; 2] = [own.saturating_sub(1)..own, own..launches]
                .map(|of| (0..launches).map(|launch| u32::from(of.contains(&launch))).collect());
            let block = BlockNumber(own as u64);
            let lifetime = Lifetime::new(block, (own as u64 * PAGE, PAGE), 0, true);
            lifetimes.push(lifetime, &known, &needed);
        }
        lifetimes
    }

    /// As many blocks as chains are compared pair by pair, not pair by pair and chain by chain.
    #[test]
    fn chains_that_an_item_does_not_need_are_not_compared() {
        let compared = |launches: usize| {
            let lifetimes = unproven(launches);
            let least = launches as u64 * PAGE;
            let before = COMPARED.get();
            assert_eq!(Plan::new(&lifetimes, PAGE, &[], &Options::default()).bytes(), least);
            let planned = COMPARED.get();
            assert_eq!(Minimum::of(&lifetimes).bytes, least);
            [planned - before, COMPARED.get() - planned]
        };
        let (few, many) = (compared(150), compared(600));
        for (few, many) in few.into_iter().zip(many) {
            // Four times as many: 16 times the pairs, and 64 times the lanes of all pairs.
            assert!(many <= 20 * few, "{few} of 150 launches, {many} of 600");
        }
    }
}
