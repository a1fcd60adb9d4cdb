//! Random sizes.

use regraph_plan::random::Random;

/// From `low` to `high`, every factor as likely as any other of the same ratio.
pub(crate) fn log_uniform(random: &mut Random, low: u64, high: u64) -> u64 {
    // Bisection by square roots: exact rounding makes it the same on every machine, which the logarithms of C libraries
    // are not.
    let (mut low, mut high) = (low as f64, high as f64);
    let bits = random.next();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_uniform_stays_within_and_halves_at_the_geometric_mean() {
        let mut random = Random::new(7);
        let values: Vec<_> =
            (0..4_000).map(|_| log_uniform(&mut random, 1 << 10, 1 << 20)).collect();
        assert!(values.iter().all(|value| (1 << 10..=1 << 20).contains(value)));
        let low = values.iter().filter(|value| **value < 1 << 15).count();
        assert!((1_800..2_200).contains(&low), "{low}");
    }
}
