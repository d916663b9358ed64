//! Locks and atomics, replaced by shuttle's in the model check.
//!
//! A lock that a panic poisoned stays in use: every structure behind these locks is consistent between any two
//! statements.

#[cfg(not(feature = "model"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, atomic};

#[cfg(feature = "model")]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, atomic};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
