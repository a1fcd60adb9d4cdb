//! A set of small numbers that knows the neighbours of each.

/// Bits, and above each level of words one with a bit for each of them that is not zero.
pub(super) struct Members {
    levels: Vec<Vec<u64>>,
}

impl Members {
    /// An empty set of numbers below `count`.
    pub fn new(count: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = count;
        while levels.is_empty() || words > 1 {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
        }
        Self { levels }
    }

    /// Whether it was not in the set.
    #[inline]
    pub fn insert(&mut self, number: u32) -> bool {
        let mut at = number as usize;
        for (level, words) in self.levels.iter_mut().enumerate() {
            let word = &mut words[at / 64];
            let had = *word;
            *word |= 1 << (at % 64);
            if had != 0 {
                return level > 0 || had != *word;
            }
            at /= 64;
        }
        true
    }

    #[inline]
    pub fn remove(&mut self, number: u32) {
        let mut at = number as usize;
        for words in &mut self.levels {
            let word = &mut words[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The greatest member below a number.
    #[inline]
    pub fn before(&self, number: u32) -> Option<u32> {
        let mut at = number as usize;
        for (level, words) in self.levels.iter().enumerate() {
            let below = words[at / 64] & !(u64::MAX << (at % 64));
            at /= 64;
            if below != 0 {
                at = at * 64 + below.ilog2() as usize;
                for words in self.levels[..level].iter().rev() {
                    at = at * 64 + words[at].ilog2() as usize;
                }
                return Some(at as u32);
            }
        }
        None
    }

    /// The least member above a number.
    #[inline]
    pub fn after(&self, number: u32) -> Option<u32> {
        let mut at = number as usize;
        for (level, words) in self.levels.iter().enumerate() {
            let above = words[at / 64] & (u64::MAX - 1).checked_shl((at % 64) as u32).unwrap_or(0);
            at /= 64;
            if above != 0 {
                at = at * 64 + above.trailing_zeros() as usize;
                for words in self.levels[..level].iter().rev() {
                    at = at * 64 + words[at].trailing_zeros() as usize;
                }
                return Some(at as u32);
            }
        }
        None
    }
}
