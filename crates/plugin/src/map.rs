//! Hash maps whose order is the same in every run.

/// A map seeded the same in every run, so that a run can be repeated.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, ahash::RandomState>;

/// An empty [`Map`].
pub(crate) fn new_map<K, V>() -> Map<K, V> {
    Map::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
}
