//! A table from keys to small numbers that is only added to.

/// Marks an empty slot; no number is this great.
const EMPTY: u32 = u32::MAX;

/// Numbers of keys, by open addressing: a table of twice as many slots as there are keys or more, and each
/// number in the first free one from where its key's hash points to. The keys are kept by the caller, who says
/// in each call which number has which.
pub(super) struct Numbers {
    slots: Vec<u32>,
    /// How far a hash is shifted to be a slot.
    shift: u32,
    len: usize,
}

impl Numbers {
    /// A table for so many keys; it grows when there are more.
    pub fn with_capacity(count: usize) -> Self {
        let slots = (count * 2).next_power_of_two().max(16);
        Self { slots: vec![EMPTY; slots], shift: 64 - slots.ilog2(), len: 0 }
    }

    /// The slot where a key's number is, or would be.
    #[inline]
    fn slot(&self, key: u64, key_of: impl Fn(u32) -> u64) -> usize {
        // Both halves of the product count, so that no regular distance of keys makes them meet.
        let product = u128::from(key) * 0x9e37_79b9_7f4a_7c15;
        let mut slot = ((product as u64 ^ (product >> 64) as u64) >> self.shift) as usize;
        while self.slots[slot] != EMPTY && key_of(self.slots[slot]) != key {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        slot
    }

    #[inline]
    pub fn get(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        Some(self.slots[self.slot(key, key_of)]).filter(|&number| number != EMPTY)
    }

    /// Gives a key a number. Answers the one that it had.
    #[inline]
    pub fn insert(&mut self, key: u64, number: u32, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let slot = self.slot(key, &key_of);
        let had = std::mem::replace(&mut self.slots[slot], number);
        if had != EMPTY {
            return Some(had);
        }
        self.len += 1;
        if self.len * 2 > self.slots.len() {
            let mut larger = Self::with_capacity(self.len * 2);
            for &number in self.slots.iter().filter(|&&number| number != EMPTY) {
                let free = larger.slot(key_of(number), &key_of);
                larger.slots[free] = number;
            }
            *self = Self { len: self.len, ..larger };
        }
        None
    }
}

/// Small numbers of keys most of which lie close together: those are looked up by their distance from the first.
#[derive(Default)]
pub(super) struct Dense {
    first: Option<u64>,
    near: Vec<u32>,
    len: usize,
    far: Option<Numbers>,
}

impl Dense {
    /// So far from the first a key may always be; the more there are, the farther.
    const LEAST: usize = 256;

    #[inline]
    pub fn get(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let near = self.near.get(key.wrapping_sub(self.first?) as usize).copied();
        let near = near.filter(|&number| number != EMPTY);
        near.or_else(|| self.far.as_ref()?.get(key, key_of))
    }

    /// Gives a key a number. Answers the one that it had.
    #[inline]
    pub fn insert(&mut self, key: u64, number: u32, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let distance = key.wrapping_sub(*self.first.get_or_insert(key)) as usize;
        // A key that was far off when it came stays there.
        let is_far = |far: &Numbers| far.get(key, &key_of).is_some();
        if distance >= Self::LEAST + 4 * self.len || self.far.as_ref().is_some_and(is_far) {
            let far = self.far.get_or_insert_with(|| Numbers::with_capacity(0));
            return far.insert(key, number, key_of);
        }
        if distance >= self.near.len() {
            self.near.resize(distance + 1, EMPTY);
        }
        self.len += 1;
        Some(std::mem::replace(&mut self.near[distance], number)).filter(|&had| had != EMPTY)
    }
}
