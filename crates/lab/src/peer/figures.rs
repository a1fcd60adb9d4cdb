//! What the model counts.

/// Figures of an allocator, in bytes where they are not counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// In blocks that have not been freed, as placed.
    pub allocated: u64,
    /// The highest `allocated` has been.
    pub peak_allocated: u64,
    /// In blocks not freed, and freed ones that wait for other streams.
    pub active: u64,
    /// Held from the driver.
    pub reserved: u64,
    /// The highest `reserved` has been.
    pub peak_reserved: u64,
    /// Calls of the driver that allocated a segment or mapped a page.
    pub growth_calls: u64,
    /// Calls of the driver that freed a segment or unmapped a page.
    pub shrink_calls: u64,
    /// How often the limit was reached and the cache emptied for a second try.
    pub retries: u64,
}

impl Figures {
    pub(super) fn allocate(&mut self, bytes: u64) {
        self.active += bytes;
        self.allocated += bytes;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    pub(super) fn reserve(&mut self, bytes: u64, calls: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        self.growth_calls += calls;
    }
}
