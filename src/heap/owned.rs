//! Which addresses are a heap's.

use super::Heap;

impl Heap {
    /// Whether an address lies in what the heap has from the driver, or has reserved there.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.segments.iter().flatten().any(|segment| {
            address.checked_sub(segment.address).is_some_and(|offset| offset < segment.bytes)
        })
    }
}
