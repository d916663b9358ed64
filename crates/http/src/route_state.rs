//! The state of a part's routes: its handle, and the identity that extractors such as [`Person`](crate::Person) ask for.

use axum::extract::FromRef;

use crate::{ApiError, Identity};

#[derive(Clone)]
pub struct RouteState<T> {
    pub part: T,
    pub identity: Identity,
}

impl<T> FromRef<RouteState<T>> for Identity {
    fn from_ref(state: &RouteState<T>) -> Self {
        state.identity.clone()
    }
}

/// A part that is there only where something is recorded.
impl<T> RouteState<Option<T>> {
    pub fn get(&self) -> Result<&T, ApiError> {
        self.part.as_ref().ok_or_else(ApiError::no_records)
    }
}
