//! The state of a part's routes: the handle of the part, and the identity that extractors such as
//! [`Person`](crate::Person) use.

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

/// The state of a part that exists only with records.
impl<T> RouteState<Option<T>> {
    /// The handle of the part, or the error that this hub keeps no records.
    pub fn get(&self) -> Result<&T, ApiError> {
        self.part.as_ref().ok_or_else(ApiError::no_records)
    }
}
