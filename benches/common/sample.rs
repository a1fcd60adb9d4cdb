//! What one go takes, of several.

use std::env::args;

/// How many goes count; one before them warms up.
const GOES: usize = 10;

/// Makes goes of `run`, each of which says how many nanoseconds it took, and prints their mean per element of a go, with
/// the least and the most. Does nothing where the command line names a part of other names.
pub fn sample(name: &str, elements: u64, mut run: impl FnMut() -> f64) {
    let part = args().skip(1).find(|argument| !argument.starts_with('-'));
    if part.is_some_and(|part| !name.contains(&part)) {
        return;
    }
    run();
    let each: Vec<f64> = (0..GOES).map(|_| run() / elements as f64).collect();
    let mean = each.iter().sum::<f64>() / GOES as f64;
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    let most = each.iter().copied().fold(0.0, f64::max);
    println!("{name:<40} {mean:>10.1} ns ({least:.1} to {most:.1})");
}
