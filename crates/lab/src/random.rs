//! A small random generator (splitmix64), the same on every machine.

/// The generator's state.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// From 0 to below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u32
    }

    /// From 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// From `low` to `high`, every factor as likely as any other of the same ratio.
    pub fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        // Bisection by square roots: exact rounding makes it the same on every machine, which
        // the logarithms of C libraries are not.
        let (mut low, mut high) = (low as f64, high as f64);
        let bits = self.next();
        for bit in 0..32 {
            let middle = (low * high).sqrt();
            if bits >> bit & 1 == 0 {
                high = middle;
            } else {
                low = middle;
            }
        }
        low.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_published_ones() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn log_uniform_stays_within_and_halves_at_the_geometric_mean() {
        let mut random = Random::new(7);
        let values: Vec<_> = (0..4_000).map(|_| random.log_uniform(1 << 10, 1 << 20)).collect();
        assert!(values.iter().all(|value| (1 << 10..=1 << 20).contains(value)));
        let low = values.iter().filter(|value| **value < 1 << 15).count();
        assert!((1_800..2_200).contains(&low), "{low}");
    }
}
