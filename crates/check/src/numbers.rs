//! A table from handles to small numbers that is only added to.

use super::violation::Violation;
use regraph_driver::NodeHandle;

/// Marks an empty slot; no number is this great.
const EMPTY: u32 = u32::MAX;

/// The numbers of handles, by open addressing: a table of twice as many slots as there are handles
/// or more, and each handle in the first free one from where its hash points to.
pub(super) struct Numbers {
    slots: Vec<(u64, u32)>,
    /// How far a hash is shifted to be a slot.
    shift: u32,
    len: usize,
}

impl Numbers {
    /// A table for so many handles; it grows when there are more.
    pub fn with_capacity(count: usize) -> Self {
        let slots = (count * 2).next_power_of_two().max(16);
        Self { slots: vec![(0, EMPTY); slots], shift: 64 - slots.ilog2(), len: 0 }
    }

    /// The slot where a handle is, or would be.
    #[inline]
    fn slot(&self, handle: u64) -> usize {
        // Both halves of the product count, so that no regular distance of handles makes them meet.
        let product = u128::from(handle) * 0x9e37_79b9_7f4a_7c15;
        let mut slot = ((product as u64 ^ (product >> 64) as u64) >> self.shift) as usize;
        loop {
            let (key, number) = self.slots[slot];
            if number == EMPTY || key == handle {
                return slot;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    pub fn get(&self, handle: u64) -> Option<u32> {
        let number = self.slots[self.slot(handle)].1;
        (number != EMPTY).then_some(number)
    }

    /// The number of a node that must have one.
    #[inline]
    pub fn node(&self, node: NodeHandle) -> Result<u32, Violation> {
        match self.get(node.bits() as u64) {
            Some(number) => Ok(number),
            None => Err(Violation::UnknownNode { node }),
        }
    }

    /// Gives a handle a number. Answers the one that it had.
    #[inline]
    pub fn insert(&mut self, handle: u64, number: u32) -> Option<u32> {
        let slot = self.slot(handle);
        let had = std::mem::replace(&mut self.slots[slot], (handle, number)).1;
        if had != EMPTY {
            return Some(had);
        }
        self.len += 1;
        if self.len * 2 > self.slots.len() {
            let mut larger = Self::with_capacity(self.len * 2);
            for &(handle, number) in self.slots.iter().filter(|slot| slot.1 != EMPTY) {
                larger.insert(handle, number);
            }
            *self = larger;
        }
        None
    }

    /// Changes every number.
    pub fn change(&mut self, change: impl Fn(u32) -> u32) {
        for slot in self.slots.iter_mut().filter(|slot| slot.1 != EMPTY) {
            slot.1 = change(slot.1);
        }
    }
}
