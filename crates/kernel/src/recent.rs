//! A map that forgets what was not used for longest, so that it never holds more than it may.
//!
//! Two halves: what was used lately, and what was used before that. When the first is full it becomes the second,
//! and the second is forgotten as a whole. That costs no list of ages, and every look is a look into two maps.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

pub struct Recent<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Holds at most `most` entries, and at least the `most / 2` that were used last.
    pub fn new(most: usize) -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), half: (most / 2).max(1) }
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
        self.newer.get_mut(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        self.older.remove(&key);
        self.put(key, value);
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.newer.remove(key);
        self.older.remove(key);
    }

    /// All entries, in no order. Looking at them so is not using them.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.newer.iter().chain(&self.older)
    }

    fn put(&mut self, key: K, value: V) {
        if self.newer.len() >= self.half && !self.newer.contains_key(&key) {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut recent = Recent::new(10);
        for n in 0..1_000 {
            recent.insert(n, n);
            assert_eq!(recent.get(&0).copied(), Some(0), "used all the time, at {n}");
            assert!(recent.newer.len() + recent.older.len() <= 10, "at {n}");
        }
        assert_eq!(recent.get(&996).copied(), Some(996), "one of the last");
        assert_eq!(recent.get(&500), None, "long ago");
        recent.insert(996, 7);
        assert_eq!(recent.get(&996).copied(), Some(7), "the newer value");
        let all: usize = recent.iter().count();
        recent.remove(&996);
        assert_eq!((recent.get(&996).copied(), recent.get(&0).copied()), (None, Some(0)));
        assert_eq!(recent.iter().count(), all - 1);
    }
}
