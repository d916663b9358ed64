//! A cache of bounded weight that evicts entries that were not used recently (an approximation of LRU).
//!
//! It has two generations, `newer` and `older`. When `newer` would exceed half of the maximum weight, it
//! replaces `older`, whose entries are evicted together. So the cache needs no list in order of use, and a
//! lookup reads two maps.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A cache of the recently used entries.
pub struct RecentCache<K, V> {
    newer: HashMap<K, WeightedValue<V>>,
    older: HashMap<K, WeightedValue<V>>,
    newer_weight: usize,
    max_half_weight: usize,
}

struct WeightedValue<V> {
    value: V,
    weight: usize,
}

impl<K: Eq + Hash, V> RecentCache<K, V> {
    /// A cache of at most `max_weight` in total. The most recently used entries, up to half of that weight,
    /// are not evicted.
    pub fn new(max_weight: usize) -> Self {
        let (newer, older) = (HashMap::new(), HashMap::new());
        Self { newer, older, newer_weight: 0, max_half_weight: (max_weight / 2).max(1) }
    }

    /// Returns an entry and marks it as used.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if !self.newer.contains_key(key) {
            let (key, value) = self.older.remove_entry(key)?;
            self.put(key, value);
        }
        self.newer.get_mut(key).map(|weighted| &mut weighted.value)
    }

    /// Inserts or replaces an entry. An entry of more than half of the maximum weight is not stored.
    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight <= self.max_half_weight {
            self.put(key, WeightedValue { value, weight });
        }
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        match self.newer.remove(key) {
            Some(weighted) => self.newer_weight -= weighted.weight,
            None => drop(self.older.remove(key)),
        }
    }

    /// All entries, in no particular order. Does not mark them as used.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.newer.iter().chain(&self.older).map(|(key, weighted)| (key, &weighted.value))
    }

    fn put(&mut self, key: K, weighted: WeightedValue<V>) {
        if self.newer_weight + weighted.weight > self.max_half_weight {
            self.older = std::mem::take(&mut self.newer);
            self.newer_weight = 0;
        }
        self.newer_weight += weighted.weight;
        self.newer.insert(key, weighted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K, V> RecentCache<K, V> {
        fn weight(&self) -> usize {
            self.newer.values().chain(self.older.values()).map(|weighted| weighted.weight).sum()
        }
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut cache = RecentCache::new(10);
        for n in 0..1_000 {
            cache.insert(n, n, 1);
            assert_eq!(cache.get(&0).copied(), Some(0), "used in every round, in round {n}");
            assert!(cache.weight() <= 10, "in round {n}");
        }
        assert_eq!(cache.get(&996).copied(), Some(996), "one of the last entries");
        assert_eq!(cache.get(&500), None, "an old entry");
        cache.insert(996, 7, 1);
        assert_eq!(cache.get(&996).copied(), Some(7), "the new value");
        let count: usize = cache.iter().count();
        cache.remove(&996);
        assert_eq!((cache.get(&996).copied(), cache.get(&0).copied()), (None, Some(0)));
        assert_eq!(cache.iter().count(), count - 1);
    }

    #[test]
    fn entries_are_bounded_by_their_weight() {
        let mut cache = RecentCache::new(100);
        for n in 0..1_000 {
            cache.insert(n, n, n % 50);
            assert!(cache.weight() <= 100, "in round {n}");
            assert_eq!(cache.get(&n).copied(), Some(n), "the newest entry");
        }
        cache.insert(0, 0, 51);
        assert_eq!(cache.get(&0), None, "heavier than half of the maximum weight");
    }
}
