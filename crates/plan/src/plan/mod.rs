//! Physical memory for addresses, after the capture.
//!
//! While a program is captured no work runs, so its blocks need addresses and no memory. At the capture's end it is
//! known which block precedes which, and each page of physical memory can serve a chain of pages of addresses. A plan
//! costs mappings: some 20 us each, for any size.
//!
//! Pages of addresses in use together are one run (`pages`). The cover (`cover`) says how much runs pass on to each
//! other, `threads` which physical pages these are, so that neighbours stay together, and `pieces` cuts where they do
//! not. Runs are joined where that saves mappings, for no memory more or for as much as a limit of mappings asks for
//! (`budget`). Pieces that are there already are put where they fit (`held`); for graphs that are there already one set
//! of pieces is found anew (`compact`). `design/plans.md` has the whole story.

mod budget;
mod choose;
mod compact;
mod cost;
mod held;
mod pages;
mod pieces;
mod pool;
mod tape;
mod threads;
mod together;

pub use compact::{Compacted, Used, User};
pub use cost::Costs;

use std::time::Duration;

use crate::cover::Heaviest;
use crate::lifetimes::Lifetimes;

use budget::Found;
use held::HeldPages;
use pages::Runs;

/// The least memory for blocks at their addresses, in bytes: [`Plan::minimum_bytes`] without a plan.
///
/// # Panics
/// Panics if the granularity is 0.
pub fn least(lifetimes: &Lifetimes, granularity: u64) -> u64 {
    let runs = Runs::new(lifetimes, granularity);
    Heaviest::of(&runs.items(&runs.order())).minimum * granularity
}

/// Bounds of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The most mappings of the plan; `None` for as many as the least memory needs.
    pub max_mappings: Option<usize>,
    /// The largest piece of memory, in bytes; `None` for no bound. Pieces are shared whole, so a pool of many graphs
    /// needs small pieces to hold no more than its largest graph needs: pieces of the device's granularity guarantee
    /// that.
    pub max_piece_bytes: Option<u64>,
    /// The most time that mapping may take, as a share of the capture's own until its end, in percent; `None` for any.
    /// The engine, which knows the capture's time, applies it with [`Costs::default`].
    pub max_share_percent: Option<u64>,
    /// How many graphs with plans the pool is to have at one time, with this one; `None` for any number. New pieces are
    /// cut so that later graphs find sizes that fit, which takes more mappings; pieces of the last graph are not cut.
    pub pool_graphs: Option<usize>,
}

impl Options {
    /// Sets the most mappings.
    #[must_use]
    pub fn max_mappings(mut self, mappings: Option<usize>) -> Self {
        self.max_mappings = mappings;
        self
    }

    /// Sets the largest piece of memory, in bytes.
    #[must_use]
    pub fn max_piece_bytes(mut self, bytes: Option<u64>) -> Self {
        self.max_piece_bytes = bytes;
        self
    }

    /// Sets the most time that mapping may take, as a share of the capture's own, in percent.
    #[must_use]
    pub fn max_share_percent(mut self, percent: Option<u64>) -> Self {
        self.max_share_percent = percent;
        self
    }

    /// Sets how many graphs with plans the pool is to have.
    #[must_use]
    pub fn pool_graphs(mut self, graphs: Option<usize>) -> Self {
        self.pool_graphs = graphs;
        self
    }

    /// These options for a capture that took `time`, into a pool that has so many graphs: the share of time that mappings
    /// may take becomes a limit of their number, and the number of the pool's graphs that of those to come.
    #[must_use]
    pub fn after(&self, time: Duration, graphs: usize) -> Self {
        let most = self.max_share_percent.map(|percent| {
            let costs = Costs::default();
            let share = time.as_nanos() * u128::from(percent) / 100;
            let each = (costs.map + costs.set_access).as_nanos().max(1);
            usize::try_from(share / each).unwrap_or(usize::MAX)
        });
        let max_mappings = most.into_iter().chain(self.max_mappings).min();
        let pool_graphs = self.pool_graphs.map(|all| all.saturating_sub(graphs));
        Self { max_mappings, max_share_percent: None, pool_graphs, ..self.clone() }
    }
}

/// A piece that exists already, of graphs that never run at the same time as the planned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Whether blocks that the capture does not free may lie there too; else only blocks that it frees.
    pub lasting: bool,
}

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its size, a multiple of the granularity.
    pub bytes: u64,
    /// The index of the held piece that this is; `None` for a new piece.
    pub held: Option<u32>,
    /// Whether a block lies there that the capture did not free: no other graph may use the piece while that block is
    /// live.
    pub lasting: bool,
}

/// A piece at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The device address, a multiple of the granularity.
    pub address: u64,
    /// The index of the piece, which is mapped whole.
    pub piece: u32,
}

/// Which memory lies behind which addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The pieces of physical memory.
    pub pieces: Vec<Piece>,
    /// The mappings, by address. Every page with a block that was used, or that was not freed, lies in a mapping.
    pub mappings: Vec<Mapping>,
    /// The least memory for these pages of addresses, in bytes, without held pieces. No placement of the same pages
    /// that adds no edges to the graph needs less.
    pub minimum_bytes: u64,
    /// How many bytes of new memory the plan needs beyond a plan whose held pieces fit and that has no limit of
    /// mappings.
    pub excess_bytes: u64,
    /// Whether the plan has more mappings than [`Options::max_mappings`], because fewer are not possible: the addresses
    /// fall into more runs, or `max_piece_bytes` forbids larger pieces.
    pub over_budget: bool,
}

impl Plan {
    /// Plans for a capture's blocks.
    ///
    /// `granularity` is the device's, in bytes; `held` are pieces that are there already; those whose sizes are no
    /// multiple of the granularity are not used. The same input always leads to the same plan.
    ///
    /// New pieces are cut into ever smaller ones, each a quarter or third of what is left, as far as the options allow so
    /// many mappings, unless [`Options::pool_graphs`] is one. Later graphs whose blocks have other sizes can use them,
    /// since sums of them come to every size up to the whole.
    ///
    /// # Panics
    /// Panics if the granularity is 0.
    pub fn new(lifetimes: &Lifetimes, granularity: u64, held: &[Held], options: &Options) -> Self {
        let budget = options.max_mappings.unwrap_or(usize::MAX);
        let divides = options.pool_graphs.is_none_or(|graphs| graphs > 1);
        let most = options.max_piece_bytes.map_or(u64::MAX, |most| (most / granularity).max(1));
        let runs = Runs::new(lifetimes, granularity);
        let lasting = runs.lasting();
        let Found { layout, minimum, over } = budget::within(&runs, budget, most);
        let whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(granularity);
        let named = held.iter().zip(0..).filter(|(held, _)| whole(held.bytes));
        let (for_any, others): (Vec<_>, Vec<_>) = named.partition(|(held, _)| held.lasting);
        let pages = |held: Vec<(&Held, u32)>| -> Vec<(u64, u32)> {
            held.into_iter().map(|(held, name)| (held.bytes / granularity, name)).collect()
        };
        let held = HeldPages { lasting: pages(for_any), others: pages(others) };
        let spare = budget.saturating_sub(layout.mappings.len());
        let parts = held::fit(&layout, &held, spare, divides);
        let (layout, held_by) = layout.parted(&parts, &runs);

        let piece = |(&(pages, lasting), &held): (&(u64, bool), &Option<u32>)| Piece {
            bytes: pages * granularity,
            held,
            lasting,
        };
        let mapping = |&(page, piece): &(u64, u32)| Mapping { address: page * granularity, piece };
        let mut plan = Self {
            pieces: layout.pieces.iter().zip(&held_by).map(piece).collect(),
            mappings: layout.mappings.iter().map(mapping).collect(),
            minimum_bytes: minimum * granularity,
            excess_bytes: 0,
            over_budget: over,
        };
        let sum = |held: &[(u64, u32)]| held.iter().map(|held| held.0).sum::<u64>();
        let (for_lasting, for_others) = (sum(&held.lasting), sum(&held.others));
        let there = for_others + for_lasting.saturating_sub(lasting);
        let needed =
            lasting.saturating_sub(for_lasting) + (minimum - lasting).saturating_sub(there);
        plan.excess_bytes = plan.new_bytes().saturating_sub(needed * granularity);
        plan
    }

    /// Bytes of all pieces, held pieces included.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Bytes of pieces that are new.
    pub fn new_bytes(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.held.is_none()).map(|piece| piece.bytes).sum()
    }
}
