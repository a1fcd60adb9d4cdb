//! Random cases, the same ones in each run, however long they take.
#![allow(dead_code, reason = "each test file uses a part")]

use std::ops::RangeInclusive;

use arbtest::arbitrary::{Result, Unstructured};

/// Gives `property` so many cases of `bytes` random bytes, from few ones on. The variable `REGRAPH_CASES` of the
/// environment multiplies that number. A case that fails tells its seed, which [`case`] repeats.
pub fn cases(
    count: u64,
    bytes: RangeInclusive<u64>,
    mut property: impl FnMut(&mut Unstructured<'_>) -> Result<()>,
) {
    let times = std::env::var("REGRAPH_CASES").map_or(1, |times| times.parse().expect("a number"));
    let mut random = fastrand::Rng::with_seed(count);
    let mut size = *bytes.start();
    for number in 0..count * times {
        // Three cases of each size.
        if number > 0 && number % 3 == 0 {
            size = (size * 5 / 4).min(*bytes.end());
        }
        // One whose bytes do not suffice says nothing.
        case(u64::from(random.u32(1..)) << 32 | size, |u| property(u).or(Ok(())));
    }
}

/// Gives `property` the case of one seed.
#[allow(clippy::disallowed_methods, reason = "with a seed it runs one case, in any time")]
pub fn case(seed: u64, property: impl FnMut(&mut Unstructured<'_>) -> Result<()>) {
    arbtest::arbtest(property).seed(seed);
}
