//! Live delivery: subjects with a durable log and a ring buffer of recent messages, and the streams that read them.
//!
//! A publish appends an event to the [`log`] and then puts the event into the ring buffer of its subject, where it is
//! encoded once per wire format. A stream holds a cursor into the ring buffer and reads the log where the ring buffer
//! does not reach. Each stream belongs to a shard (one thread); a publish wakes a shard once, however many streams the
//! shard has. The crate `rooms` owns the subjects of rooms; `http::server` owns the shards.

mod access;
mod budget;
pub mod composite;
mod connection;
mod connection_state;
pub mod control;
mod encode;
mod hub;
pub mod log;
mod message;
#[cfg(all(test, feature = "model"))]
mod model;
mod multi_stream;
mod open_connections;
mod options;
mod personal_streams;
mod reader;
mod repair;
mod ring;
mod shard;
pub mod socket;
pub mod source;
pub mod stream;
mod subject;
mod sync;
mod wheel;

pub use access::{ConnectionQuota, RevocationGate};
pub use encode::Target;
pub use hub::{Hub, OpenError};
pub use log::{
    Append, AppendError, AppendOutcome, Log, LogEntry, LogError, LogPosition, Page, StartPosition,
};
pub use message::{Data, Item, LocalizedMessage, Message, MessageId};
pub use multi_stream::MultiSubjectStream;
pub use options::{Options, RETRY_MS, SETTINGS, StreamConfig};
pub use personal_streams::{ApiFuture, PersonalStreams};
pub use socket::{LiveSocket, Operation, PolicyFuture, SocketPolicy};
pub use source::{LogSource, Source, SubjectKind};
pub use stream::{BoxedGuard, CloseHandle, LiveStream, SubscriptionGuard};
pub use subject::SubjectName;
