//! The port of personal streams, for connections that read a person's inbox. Implemented by the part that owns the
//! inbox streams.

use bongsu_http::{ApiError, StreamPerson};
use bongsu_kernel::{Id, StreamId};

use crate::log::BoxFuture;
use crate::options::StreamConfig;
use crate::stream::BoxedGuard;
use crate::{CloseHandle, LiveStream, SubjectName};

/// The future that a method of [`PersonalStreams`] returns; the error is the answer to the client.
pub type ApiFuture<'a, T> = BoxFuture<'a, Result<T, ApiError>>;

/// Provides personal streams. A hub without a database has no provider.
pub trait PersonalStreams: Send + Sync {
    /// The subject of a person's inbox.
    fn subject(&self, person: &Id) -> SubjectName;

    /// The configuration of a connection that reads a personal stream.
    fn stream_config(&self) -> StreamConfig;

    /// Counts a connection towards the person's limit until the guard is dropped. `close_handle` closes the connection
    /// when a newer one replaces it.
    fn join(&self, person: &Id, close_handle: CloseHandle) -> ApiFuture<'_, BoxedGuard>;

    /// Opens a personal stream on its own connection, after a position or with the newest unread entries.
    fn open(&self, caller: StreamPerson, position: Option<StreamId>) -> ApiFuture<'_, LiveStream>;
}
