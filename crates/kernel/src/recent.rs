//! A map that forgets what was not used for longest, so that its entries never weigh more than they may.
//!
//! Two halves: what was used lately, and what was used before that. When the first is full it becomes the second,
//! and the second is forgotten as a whole. That costs no list of ages, and every look is a look into two maps.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

pub struct Recent<K, V> {
    newer: HashMap<K, Weighed<V>>,
    older: HashMap<K, Weighed<V>>,
    newer_weight: usize,
    max_half_weight: usize,
}

struct Weighed<V> {
    value: V,
    weight: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Holds entries up to a weight, and at least half of it of those that were used last.
    pub fn new(max_weight: usize) -> Self {
        let (newer, older) = (HashMap::new(), HashMap::new());
        Self { newer, older, newer_weight: 0, max_half_weight: (max_weight / 2).max(1) }
    }

    /// Looking at an entry is using it.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if !self.newer.contains_key(key) {
            let (key, value) = self.older.remove_entry(key)?;
            self.put(key, value);
        }
        self.newer.get_mut(key).map(|weighed| &mut weighed.value)
    }

    /// An entry of more than half the weight is not kept.
    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight <= self.max_half_weight {
            self.put(key, Weighed { value, weight });
        }
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        match self.newer.remove(key) {
            Some(weighed) => self.newer_weight -= weighed.weight,
            None => drop(self.older.remove(key)),
        }
    }

    /// All entries, in no order. Looking at them so is not using them.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.newer.iter().chain(&self.older).map(|(key, weighed)| (key, &weighed.value))
    }

    fn put(&mut self, key: K, weighed: Weighed<V>) {
        if self.newer_weight + weighed.weight > self.max_half_weight {
            self.older = std::mem::take(&mut self.newer);
            self.newer_weight = 0;
        }
        self.newer_weight += weighed.weight;
        self.newer.insert(key, weighed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K, V> Recent<K, V> {
        fn weight(&self) -> usize {
            self.newer.values().chain(self.older.values()).map(|weighed| weighed.weight).sum()
        }
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut recent = Recent::new(10);
        for n in 0..1_000 {
            recent.insert(n, n, 1);
            assert_eq!(recent.get(&0).copied(), Some(0), "used all the time, at {n}");
            assert!(recent.weight() <= 10, "at {n}");
        }
        assert_eq!(recent.get(&996).copied(), Some(996), "one of the last");
        assert_eq!(recent.get(&500), None, "long ago");
        recent.insert(996, 7, 1);
        assert_eq!(recent.get(&996).copied(), Some(7), "the newer value");
        let all: usize = recent.iter().count();
        recent.remove(&996);
        assert_eq!((recent.get(&996).copied(), recent.get(&0).copied()), (None, Some(0)));
        assert_eq!(recent.iter().count(), all - 1);
    }

    #[test]
    fn entries_are_bounded_by_their_weight() {
        let mut recent = Recent::new(100);
        for n in 0..1_000 {
            recent.insert(n, n, n % 50);
            assert!(recent.weight() <= 100, "at {n}");
            assert_eq!(recent.get(&n).copied(), Some(n), "the newest");
        }
        recent.insert(0, 0, 51);
        assert_eq!(recent.get(&0), None, "heavier than half of all may be");
    }
}
