//! Blocks with lifetimes, for which a static planner finds places: as read from its files, or of a capture.
//!
//! A lifetime has a begin and an end. Each is a time, or a vector clock with a number for each thread. A block may have
//! another's memory if its begin is, number by number, at or behind the other's end. OmniMalloc's files say so, and so
//! does [`Lifetimes`] of what a block *needs* and what another *knows*.

use std::io::{self, BufRead, Write};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use regraph::settings::Reuse;
use regraph::BlockNumber;
use regraph_plan::layout::Layout;
use regraph_plan::lifetimes::{Lifetime, Lifetimes};
use regraph_plan::minimum::Minimum;
use regraph_trace::{ReadError, BYTES_LIMIT};

use crate::import::{rows, written, Row};

/// Bytes that stand for a unit of memory: what the library rounds blocks up to, so that it rounds none.
const UNIT: NonZeroU64 = NonZeroU64::new(512).unwrap();

/// Blocks with lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    rows: Vec<Row>,
    /// Bytes to a unit of the sizes that are read and written.
    unit: NonZeroU64,
}

/// A place for each block of a [`Problem`]. All sizes are in the problem's units.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Solution {
    /// What no placement does without.
    pub minimum: u64,
    /// What the places take.
    pub height: u64,
    /// Where each block begins, in the problem's order.
    pub offsets: Vec<u64>,
    /// How long the search for the minimum took.
    pub minimum_time: Duration,
    /// How long the search for the places took.
    pub layout_time: Duration,
}

impl Problem {
    /// Reads a file as [`import`](crate::import) describes it, whose times may be vector clocks. Sizes are in any unit.
    ///
    /// # Errors
    /// The first line that is not as described there or whose time has more or fewer numbers than those above, sizes of
    /// 2^51 or more together, a line or an input that is longer than is read of traces, or a failure of the input.
    pub fn read(input: impl BufRead) -> Result<Self, ReadError> {
        let rows = rows(input, UNIT, None, BYTES_LIMIT.into())?;
        Ok(Self { rows, unit: UNIT })
    }

    /// The blocks of a capture, named by their numbers. Sizes are in bytes, as the blocks occupy them.
    ///
    /// Blocks are left out that no node can have used, for which no memory is needed, and those of which not all users
    /// are known. One that was not freed ends behind all others.
    pub fn of_capture(lifetimes: &Lifetimes) -> Self {
        let blocks = lifetimes.blocks();
        let used: Vec<usize> = (0..blocks.len())
            .filter(|&row| blocks[row].worked && !lifetimes.precedes(row, row))
            .collect();
        let numbers = used.iter().flat_map(|&row| [lifetimes.known(row), lifetimes.needed(row)]);
        let behind = numbers.flatten().max().map_or(1, |&most| i64::from(most) + 1);
        let row = |&row: &usize| {
            let lower: Vec<i64> = lifetimes.known(row).iter().map(|&it| it.into()).collect();
            let needed = lower.iter().zip(lifetimes.needed(row));
            let upper = if blocks[row].freed {
                needed.map(|(&known, &needed)| known.max(needed.into())).collect()
            } else {
                vec![behind; lower.len()]
            };
            Row { id: blocks[row].block.0.to_string(), lower, upper, bytes: blocks[row].bytes }
        };
        Self { rows: used.iter().map(row).collect(), unit: NonZeroU64::MIN }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.rows.len()
    }

    /// How many numbers each time has.
    pub fn threads(&self) -> usize {
        self.rows.first().map_or(1, |row| row.lower.len())
    }

    /// Writes the file that [`Problem::read`] reads, in the problem's order. Offsets, one for each block, are a column
    /// more, as OmniMalloc reads them.
    ///
    /// # Errors
    /// Failures of the output.
    pub fn write(&self, mut output: impl Write, offsets: Option<&[u64]>) -> io::Result<()> {
        let more = if offsets.is_some() { ",offset" } else { "" };
        writeln!(output, "id,lower,upper,size{more}")?;
        for (number, Row { id, lower, upper, bytes }) in self.rows.iter().enumerate() {
            let (lower, upper, size) = (written(lower), written(upper), *bytes / self.unit);
            let id = if id.contains([',', '"']) {
                format!("\"{}\"", id.replace('"', "\"\""))
            } else {
                id.clone()
            };
            write!(output, "{id},{lower},{upper},{size}")?;
            match offsets.and_then(|offsets| offsets.get(number)) {
                Some(offset) => writeln!(output, ",{offset}")?,
                None => writeln!(output)?,
            }
        }
        output.flush()
    }

    /// The least memory, and places for all blocks.
    pub fn solve(&self) -> Solution {
        let order = self.order();
        let lifetimes = self.lifetimes(&order);
        let start = Instant::now();
        let minimum = Minimum::of(&lifetimes).bytes;
        let minimum_time = start.elapsed();
        // Each block is freed before the next one is asked for: lifetimes alone say what may lie where.
        let frees: Vec<_> = (1..=order.len() as u32).map(Some).collect();
        let start = Instant::now();
        let layout = Layout::new(&lifetimes, &frees, Reuse::CrossStream);
        let layout_time = start.elapsed();
        let mut offsets = vec![0; order.len()];
        for (&row, place) in order.iter().zip(layout.places()) {
            offsets[row] = place.offset / self.unit;
        }
        let (minimum, height) = (minimum / self.unit, layout.bytes() / self.unit);
        Solution { minimum, height, offsets, minimum_time, layout_time }
    }

    /// The rows in an order in which none comes before one whose memory it may have: by the sum of their begins' numbers,
    /// which is less where every number is at most the other's and one is less.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let sum = |row: &Row| row.lower.iter().map(|&it| i128::from(it)).sum::<i128>();
        order.sort_by_key(|&row| sum(&self.rows[row]));
        order
    }

    /// The lifetimes of the rows in an order. Of each thread's times only their order counts, so they become small.
    fn lifetimes(&self, order: &[usize]) -> Lifetimes {
        let threads = self.threads();
        let times: Vec<Vec<i64>> = (0..threads)
            .map(|thread| {
                let ends = |row: &Row| [row.lower[thread], row.upper[thread]];
                let mut times: Vec<i64> = self.rows.iter().flat_map(ends).collect();
                times.sort_unstable();
                times.dedup();
                times
            })
            .collect();
        let ranks = |clock: &[i64]| -> Vec<u32> {
            let ranks = clock.iter().zip(&times);
            ranks.map(|(&it, times)| times.partition_point(|&time| time < it) as u32).collect()
        };
        let mut lifetimes = Lifetimes::new(threads);
        for &row in order {
            let Row { lower, upper, bytes, .. } = &self.rows[row];
            let block = Lifetime::new(BlockNumber(row as u64), (0, *bytes), 0, true);
            lifetimes.push(block, &ranks(lower), &ranks(upper));
        }
        lifetimes
    }
}
