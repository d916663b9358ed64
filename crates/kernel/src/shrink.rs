//! Gives back the memory of maps that held much more once: a map by itself keeps the places of its largest moment for
//! ever.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maps with fewer places than this are left as they are.
const MIN_CAPACITY: usize = 1_024;

/// Called after something was removed. It moves entries only when the map is nearly empty, so that each removal pays for
/// a few moves at most.
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
