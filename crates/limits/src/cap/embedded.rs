//! Places of one process, counted in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Cap, Place, Refused, Scope};
use crate::Boxed;

/// See the module.
#[derive(Default)]
pub struct EmbeddedCap(Arc<Counts>);

type Counts = Mutex<HashMap<Arc<str>, u32>>;

struct Counted {
    counts: Arc<Counts>,
    scope: Arc<str>,
}

impl EmbeddedCap {
    fn enter_now(&self, scope: &str, limit: u32) -> Result<Place, Refused> {
        let scope: Arc<str> = scope.into();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = counts.get(&scope).copied().unwrap_or_default();
        if held >= limit {
            return Err(Refused::Full);
        }
        counts.insert(scope.clone(), held + 1);
        Ok(Place(Arc::new(Counted { counts: self.0.clone(), scope })))
    }
}

impl Cap for EmbeddedCap {
    fn enter<'a>(&'a self, scope: &'a str, limit: u32) -> Boxed<'a, Result<Place, Refused>> {
        Box::pin(async move { self.enter_now(scope, limit) })
    }
}

impl Scope for Counted {
    fn leave(self: Arc<Self>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut held) = counts.entry(self.scope.clone()) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_without_places_leaves_nothing_behind() {
        let cap = EmbeddedCap::default();
        let places = [(); 3].map(|()| cap.enter_now("anna", 3).unwrap());
        assert_eq!(cap.enter_now("anna", 3).unwrap_err(), Refused::Full);
        drop(places);
        assert!(cap.0.lock().unwrap().is_empty());
    }
}
