//! Locks and atomics, replaced by shuttle's under the model check.
//!
//! A lock that was poisoned by a panic is used on: every structure here is whole between two statements.

#[cfg(not(feature = "model"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, atomic};

#[cfg(feature = "model")]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, atomic};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
