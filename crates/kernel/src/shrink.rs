//! Releases the memory of maps that are much smaller than they once were. A `HashMap` keeps its largest capacity
//! otherwise.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maps with at most this capacity are not shrunk.
const MIN_CAPACITY: usize = 1_024;

/// Shrinks a map of which less than an eighth is used, to twice its length. Callers call it after each removal: the
/// entries are moved so rarely that the amortized cost of a removal stays constant.
pub fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > MIN_CAPACITY && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_was_large_once_gives_its_memory_back() {
        let mut map: HashMap<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        for n in 0..100_000 {
            map.remove(&n);
            shrink(&mut map);
        }
        assert!(map.capacity() <= 2 * MIN_CAPACITY, "{}", map.capacity());
    }
}
