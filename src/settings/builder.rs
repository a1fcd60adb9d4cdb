//! Setters that can be chained.

use super::{Rounding, Settings};
use crate::policy::{PlanChoice, Programmatic, Reuse};

impl Settings {
    /// Sets from which size on free blocks are never split, in bytes.
    #[must_use]
    pub fn max_split_bytes(mut self, bytes: Option<u64>) -> Self {
        self.max_split_bytes = bytes;
        self
    }

    /// Sets how much larger than the request a block that is never split may be, in bytes.
    #[must_use]
    pub fn max_non_split_rounding_bytes(mut self, bytes: u64) -> Self {
        self.max_non_split_rounding_bytes = bytes;
        self
    }

    /// Sets above which share of the allowed memory unused segments are given back.
    #[must_use]
    pub fn garbage_collection_threshold(mut self, share: Option<f64>) -> Self {
        self.garbage_collection_threshold = share;
        self
    }

    /// Sets how sizes are rounded.
    #[must_use]
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Sets whether segments grow in place.
    #[must_use]
    pub fn expandable_segments(mut self, expandable: bool) -> Self {
        self.expandable_segments = expandable;
        self
    }

    /// Sets whether memory is made for other processes and network cards too.
    #[must_use]
    pub fn exportable(mut self, exportable: bool) -> Self {
        self.exportable = exportable;
        self
    }

    /// Sets the most that may be held, as a share of the device's memory.
    #[must_use]
    pub fn memory_fraction(mut self, share: Option<f64>) -> Self {
        self.memory_fraction = share;
        self
    }

    /// Sets the most that may be held per device, in bytes.
    #[must_use]
    pub fn memory_limit_bytes(mut self, bytes: Option<u64>) -> Self {
        self.memory_limit_bytes = bytes;
        self
    }

    /// Sets how much every capture may map at once ahead of what it asks for, in bytes.
    #[must_use]
    pub fn growth_step_bytes(mut self, bytes: Option<u64>) -> Self {
        self.growth_step_bytes = bytes;
        self
    }

    /// Sets when captures get the memory behind their addresses.
    #[must_use]
    pub fn plan(mut self, plan: PlanChoice) -> Self {
        self.plan = plan;
        self
    }

    /// Sets the most mappings of a capture's plan.
    #[must_use]
    pub fn plan_max_mappings(mut self, mappings: Option<u64>) -> Self {
        self.plan_max_mappings = mappings;
        self
    }

    /// Sets the most that a plan maps as one piece, in bytes.
    #[must_use]
    pub fn plan_max_piece_bytes(mut self, bytes: Option<u64>) -> Self {
        self.plan_max_piece_bytes = bytes;
        self
    }

    /// Sets the most time for a plan's mappings, as a share of the capture's own, in percent.
    #[must_use]
    pub fn plan_max_share_percent(mut self, percent: Option<u64>) -> Self {
        self.plan_max_share_percent = percent;
        self
    }

    /// Sets how many graphs with plans a pool is to have.
    #[must_use]
    pub fn plan_pool_graphs(mut self, graphs: Option<u64>) -> Self {
        self.plan_pool_graphs = graphs;
        self
    }

    /// Sets how many times as long a layout is searched for.
    #[must_use]
    pub fn plan_search(mut self, times: usize) -> Self {
        self.plan_search = times;
        self
    }

    /// Sets what programmatic edges prove.
    #[must_use]
    pub fn programmatic(mut self, programmatic: Programmatic) -> Self {
        self.programmatic = programmatic;
        self
    }

    /// Sets which streams may take a free block.
    #[must_use]
    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.reuse = reuse;
        self
    }

    /// Sets whether the checker judges each capture.
    #[must_use]
    pub fn check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }

    /// Sets whether graphs are searched for reads of what nothing in them wrote before.
    #[must_use]
    pub fn early_reads(mut self, search: bool) -> Self {
        self.early_reads = search;
        self
    }

    /// Sets whether graphs' memory is filled before their first launches.
    #[must_use]
    pub fn poison(mut self, poison: bool) -> Self {
        self.poison = poison;
        self
    }

    /// Sets how many events the history keeps; 0 turns it off.
    #[must_use]
    pub fn history(mut self, events: usize) -> Self {
        self.history = events;
        self
    }

    /// Sets whether events carry the host's stack frames.
    #[must_use]
    pub fn stacks(mut self, stacks: bool) -> Self {
        self.stacks = stacks;
        self
    }

    /// Sets whether freed memory is kept for later requests.
    #[must_use]
    pub fn caching(mut self, caching: bool) -> Self {
        self.caching = caching;
        self
    }
}
