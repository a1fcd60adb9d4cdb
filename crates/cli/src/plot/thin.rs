//! Fewer points with the same peaks.

/// Chooses at most `limit` of the values (at least 4) and gives their places in ascending order.
///
/// All are kept where they are few enough. Otherwise the first and the last are, and the lowest and
/// the highest of each of many stretches of equal length, so that no peak is lost.
pub fn thin(values: &[u64], limit: usize) -> Vec<usize> {
    let limit = limit.max(4);
    let count = values.len();
    if count <= limit {
        return (0..count).collect();
    }
    let stretches = (limit - 2) / 2;
    let mut kept = Vec::with_capacity(limit);
    kept.push(0);
    for stretch in 0..stretches {
        let places = count * stretch / stretches..count * (stretch + 1) / stretches;
        // Of equal values the first: a level is drawn from where it begins.
        let lowest = places.clone().min_by_key(|&place| values[place]);
        let highest = places.rev().max_by_key(|&place| values[place]);
        kept.extend(lowest.into_iter().chain(highest));
    }
    kept.push(count - 1);
    kept.sort_unstable();
    kept.dedup();
    kept
}
