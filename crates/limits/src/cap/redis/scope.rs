//! The places of this instance, by scope, and which scopes Redis has to be told of.
//!
//! What an instance holds is known to itself first; what it says to Redis is numbered, so that a late word changes nothing.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::cap::{Place, Scope};

/// Scopes are spread over so many slots.
pub(super) const SHARDS: u8 = 16;

#[derive(Default)]
pub(super) struct Scopes {
    known: Mutex<HashMap<Arc<str>, Arc<Counted>, foldhash::fast::RandomState>>,
    changed: Arc<Changed>,
    /// Numbers what is said to Redis.
    last_number: AtomicU64,
}

/// Scopes whose count Redis may have wrong. Each is there at most once.
#[derive(Default)]
pub(super) struct Changed {
    scopes: Mutex<Vec<Arc<Counted>>>,
    pub(super) bell: Notify,
}

/// The places of this instance in one scope.
pub(super) struct Counted {
    pub(super) name: Arc<str>,
    pub(super) shard: u8,
    held: AtomicU32,
    listed: AtomicBool,
    /// Held by whoever says something of this scope to Redis.
    pub(super) telling: Arc<tokio::sync::Mutex<()>>,
    changed: Arc<Changed>,
}

impl Scopes {
    pub(super) fn find(&self, name: &str) -> Arc<Counted> {
        let mut known = self.known();
        if let Some(scope) = known.get(name) {
            return scope.clone();
        }
        let name: Arc<str> = name.into();
        let scope = Arc::new(Counted {
            shard: shard_of(&name),
            name: name.clone(),
            held: AtomicU32::new(0),
            listed: AtomicBool::new(false),
            telling: Arc::default(),
            changed: self.changed.clone(),
        });
        known.insert(name, scope.clone());
        scope
    }

    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn changed(&self) -> &Changed {
        &self.changed
    }

    /// Redis may have forgotten everything that this instance has in a shard.
    pub(super) fn doubt_shard(&self, shard: u8) {
        let scopes: Vec<Arc<Counted>> =
            self.known().values().filter(|scope| scope.shard == shard && scope.held() > 0).cloned().collect();
        for scope in scopes {
            scope.doubt();
        }
    }

    /// Whether this instance has, or is about to have, something in each shard.
    pub(super) fn used_shards(&self) -> Vec<u8> {
        let mut used = [false; SHARDS as usize];
        for scope in self.known().values() {
            used[usize::from(scope.shard)] = true;
        }
        (0..SHARDS).filter(|shard| used[usize::from(*shard)]).collect()
    }

    /// Forgets scopes in which nobody has a place, or is about to, and which Redis knows to be empty.
    pub(super) fn forget_empty(&self, told: &[Arc<Counted>]) {
        let mut known = self.known();
        for scope in told {
            // The map's, and the one at hand.
            let unused = Arc::strong_count(scope) == 2 && scope.held() == 0;
            if unused && !scope.listed.load(Ordering::Acquire) {
                known.remove(&scope.name);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Counted>, foldhash::fast::RandomState>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changed {
    /// Those that have to be told of, up to so many. What changes from now on comes again.
    pub(super) fn take(&self, most: usize) -> Vec<Arc<Counted>> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = scopes.len().saturating_sub(most);
        let taken = scopes.split_off(rest);
        for scope in &taken {
            scope.listed.store(false, Ordering::Release);
        }
        taken
    }
}

impl Counted {
    pub(super) fn held(&self) -> u32 {
        self.held.load(Ordering::Acquire)
    }

    pub(super) fn hold(self: &Arc<Self>) -> Place {
        self.held.fetch_add(1, Ordering::AcqRel);
        Place(self.clone())
    }

    /// Has Redis told of what this instance has here, soon.
    pub(super) fn doubt(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.changed.scopes.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
            self.changed.bell.notify_one();
        }
    }
}

impl Scope for Counted {
    fn leave(self: Arc<Self>) {
        self.held.fetch_sub(1, Ordering::AcqRel);
        self.doubt();
    }
}

/// Doubts a scope when it is dropped, unless it was dispelled.
pub(super) struct Doubt<'a>(Option<&'a Arc<Counted>>);

impl<'a> Doubt<'a> {
    pub(super) fn of(scope: &'a Arc<Counted>) -> Self {
        Self(Some(scope))
    }

    pub(super) fn dispel(mut self) {
        self.0 = None;
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(scope) = self.0 {
            scope.doubt();
        }
    }
}

fn shard_of(name: &str) -> u8 {
    // Every hub has to come to the same one.
    let hash = foldhash::quality::FixedState::default().hash_one(name);
    // Less than the number of shards.
    (hash % u64::from(SHARDS)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_listed_once_and_forgotten_when_redis_knows_that_it_is_empty() {
        let scopes = Scopes::default();
        let scope = scopes.find("anna");
        let places = [scope.hold(), scope.hold()];
        assert_eq!(scope.held(), 2);
        drop((places, scope));
        let changed = scopes.changed().take(10);
        assert_eq!(changed.len(), 1);
        assert!(scopes.changed().take(10).is_empty());
        let entering = scopes.find("anna");
        scopes.forget_empty(&changed);
        assert!(Arc::ptr_eq(&entering, &scopes.find("anna")), "somebody is about to enter");
        drop(entering);
        changed[0].doubt();
        scopes.forget_empty(&changed);
        assert_eq!(scopes.used_shards(), [shard_of("anna")], "Redis is still to be told");
        drop(scopes.changed().take(10));
        scopes.forget_empty(&changed);
        assert!(scopes.used_shards().is_empty());
    }

    #[test]
    fn what_was_given_up_in_the_middle_is_doubted() {
        let scopes = Scopes::default();
        let scope = scopes.find("anna");
        Doubt::of(&scope).dispel();
        assert!(scopes.changed().take(10).is_empty());
        drop(Doubt::of(&scope));
        assert_eq!(scopes.changed().take(10).len(), 1);
    }
}
