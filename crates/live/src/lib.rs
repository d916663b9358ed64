//! Live delivery: subjects with a durable log and a ring of recent frames, and the streams that read them.
//!
//! An event is appended to the [`log`], encoded once, and put into its subject's ring; a stream is a cursor into
//! that ring, and reads the log where the ring does not reach. Streams belong to shards (one thread each); a
//! publish wakes a shard once, however many events and streams it has. What a stream may be told, and when, is
//! in [`stream`]; the neighbours are `rooms` (whose subjects these are) and `http::server` (whose shards).

mod budget;
pub mod composite;
mod connection;
pub mod control;
mod door;
mod encode;
mod hub;
pub mod log;
mod many;
mod message;
#[cfg(all(test, feature = "model"))]
mod model;
mod options;
mod people;
mod personal;
mod reader;
mod repair;
mod ring;
mod seat;
mod shard;
pub mod socket;
pub mod source;
pub mod stream;
mod subject;
mod sync;
mod wheel;

pub use door::{Gate, Places};
pub use encode::Target;
pub use hub::{Hub, OpenError};
pub use log::{Append, AppendError, Appended, Entry, Log, LogError, Page, Place, Start};
pub use many::ManyStream;
pub use message::{Data, Item, Localized, Message, MessageId};
pub use options::{Manner, Options, RETRY_MS, SETTINGS};
pub use personal::PersonalFeed;
pub use socket::{LiveSocket, Operation, SocketPolicy};
pub use source::{Family, LogSource, Source};
pub use stream::{Ender, LiveStream, SubscriptionGuard};
pub use subject::SubjectName;
