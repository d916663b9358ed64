//! The log port: stores events durably, and serves readers whose position is older than the ring buffer.
//!
//! The contract is documented on [`Log`]; the suite in `tests/it/log_contract.rs` runs against every adapter. The
//! adapters are [`embedded`], for one process, and [`redis`], for a fleet, with the [`Bus`] between its instances.

pub mod embedded;
mod follow_ups;
pub mod redis;

use crate::SubjectName;
use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, Millis, StreamId};

pub use bongsu_kernel::BoxFuture;
pub use follow_ups::{FollowUp, FollowUpWatch, FollowUps, PendingFollowUp, Recipients};

/// The future that a method of a log, source or bus returns.
pub type LogFuture<'a, T> = BoxFuture<'a, Result<T, LogError>>;

/// A durable, ordered log per subject.
///
/// - **Order.** Ids of a subject only grow, also over restarts, clock changes and trimming; no id is used twice.
/// - **Atomic.** An append checks its idempotency key, stores the event, stores the answer under the key and adds the
///   follow-up record: all of these steps or none, even if the process is killed at any moment.
/// - **Durable.** An append is answered only when a crash can no longer lose the event.
/// - **Idempotent.** An append with the same subject, key and digest within 24 hours returns the first answer again;
///   another digest returns [`AppendError::Conflict`]. Without a key every append is a new event.
/// - **Delivered in order.** Each durable event is delivered to the [`Sink`], in the order of its subject: by the log
///   itself before it answers, or by the [`Bus`] of a log that several instances share.
/// - **Trimmed.** A subject keeps at least its newest `keep` events; older ones are removed some time later.
/// - **Membership versions.** The recipients of an event may depend on the members of the subject, which the log does
///   not store. A publisher that caches members reads the version first, then the members, and appends with that
///   version; a change of members is made durable first and changes the version afterwards. An append whose version is
///   not the current one stores no event and returns [`AppendError::StaleMembership`], but a repeated key still returns
///   its first answer. After a version was changed, no append with the old one succeeds. A version may also change
///   without a change of members, or be lost.
/// - **Errors.** After an error no part of the append was stored, unless the error says that this is unknown.
pub trait Log: Send + Sync {
    /// Appends events in the given order. The result has one outcome per event.
    fn append(&self, events: Vec<Append>) -> LogFuture<'_, Vec<Result<AppendOutcome, AppendError>>>;

    /// Reads the events after a position, within the limits but at least one event.
    fn read(&self, subject: &SubjectName, after: StreamId, limits: ReadLimits) -> LogFuture<'_, Page>;

    /// The position of the newest entry of a subject.
    fn head(&self, subject: &SubjectName) -> LogFuture<'_, LogPosition>;

    /// Removes all entries of a subject except the newest, and the answers stored under its keys. Later ids are larger.
    fn purge(&self, subject: &SubjectName) -> LogFuture<'_, ()>;

    /// The version of a subject's membership, for [`Append::membership_version`].
    fn membership_version(&self, subject: &SubjectName) -> LogFuture<'_, u64>;

    /// Changes the version. After an error it is unknown whether the version changed, so the caller retries.
    fn change_membership_version(&self, subject: &SubjectName) -> LogFuture<'_, ()>;

    /// Why the log is unavailable right now; None while it is available.
    fn outage(&self) -> Option<&'static str>;
}

/// Receives every durable event.
pub trait Sink: Send + Sync {
    fn deliver(&self, delivery: Delivery<'_>);

    /// Delivers an event that no log holds to the current subscribers.
    fn deliver_ephemeral(&self, subject: &SubjectName, message: &EphemeralMessage);

    /// Called when events of this subject may have been lost on the bus. The log has them.
    fn mark_stale(&self, subject: &SubjectName);
}

/// Delivers the events of a log that several instances share to the [`Sink`] of each instance, in the order of their
/// subject.
///
/// The bus may lose an event. It reports a known loss with [`Sink::mark_stale`]; every event carries the id
/// of the previous one, so that any other loss is detected with the next event.
pub trait Bus: Send + Sync {
    /// Returns when every event that is appended from now on will be delivered.
    fn subscribe(&self, subject: &SubjectName) -> LogFuture<'_, ()>;

    /// Called when this instance has no subscribers of the subject any more.
    fn unsubscribe(&self, subject: &SubjectName);

    /// Reports how many streams of this instance follow the subject. Other instances see the number a moment later.
    fn report_audience(&self, _subject: &SubjectName, _streams: usize) {}

    /// Like `report_audience`, for a stream that was just opened. Other instances see the number when this returns.
    fn announce_audience(&self, _subject: &SubjectName, _streams: usize) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// An event that no log holds.
#[derive(Debug)]
pub struct EphemeralMessage {
    pub event_type: EventType,
    pub data: Object,
    pub at: Millis,
}

/// A durable event on its way to the subscribers.
#[derive(Debug)]
pub struct Delivery<'a> {
    pub subject: &'a SubjectName,
    /// The id of the previous entry of the subject.
    pub previous: StreamId,
    pub entry: &'a LogEntry,
    pub accepted: std::time::Instant,
}

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct Append {
    pub subject: SubjectName,
    pub event_type: EventType,
    pub data: Object,
    pub publisher: Option<Id>,
    pub idempotency: Option<Idempotency>,
    /// The people who get an inbox entry. Stored as a follow-up record together with the event.
    pub recipients: Recipients,
    /// The membership version that the recipients depend on. None: the log compares no version.
    pub membership_version: Option<u64>,
    /// The number of subscribers on this instance. For the answer, the log adds those of other instances.
    pub audience: u32,
    /// How many events the subject keeps.
    pub keep: u32,
    /// The trace of the event: stored with the event and in the follow-up record.
    pub trace: Option<TraceParent>,
}

/// The idempotency key of an append: appends with the same key and content are one event.
#[derive(Clone, Debug)]
pub struct Idempotency {
    pub key: String,
    /// The content digest.
    pub digest: [u8; 32],
    /// The digest that an earlier version of the hub stored for this content, if it differs. A key stored
    /// with this digest has the same content, so that a request may be repeated after an upgrade.
    pub earlier_digest: Option<[u8; 32]>,
}

impl Idempotency {
    /// Whether a stored digest is one of the same content.
    fn is_same_content(&self, stored: [u8; 32]) -> bool {
        stored == self.digest || Some(stored) == self.earlier_digest
    }
}

/// A successful append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    pub id: StreamId,
    pub at: Millis,
    pub audience: u32,
    /// The event was already stored by an earlier append with the same key.
    pub duplicate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The key was used for other content. A retry fails in the same way.
    #[error("the idempotency key was used for other content")]
    Conflict,
    /// The membership has changed since its version was read, or an earlier event of the same subject and batch failed
    /// for this reason, and the order is kept. The caller reads the version and the members again and retries.
    #[error("the membership of the subject has changed")]
    StaleMembership,
    /// The event could not be appended. Other events of the same batch may have been appended.
    #[error(transparent)]
    Failed(LogError),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The append was not stored; a retry succeeds once the disk has space.
    #[error("the disk is full")]
    Full,
    /// The append was not stored; a retry may succeed.
    #[error("the log failed: {0}")]
    Failed(String),
    /// It is unknown whether the append was stored; a retry with a key is safe.
    #[error("the log did not answer in time")]
    TimedOut,
    /// The engine is unavailable. The append was not stored; a retry succeeds once the engine is back.
    #[error("{0}")]
    Unavailable(String),
    /// The connection to the engine broke. It is unknown whether the append was stored; a retry with a key is safe.
    #[error("{0}")]
    Unanswered(String),
    /// The engine refused the request. Retries fail until an operator has removed the cause.
    #[error("{0}")]
    Refused(String),
}

impl LogError {
    /// The error of a source that reads from the records in SQL.
    pub fn from_records(error: &bongsu_sql::Error) -> Self {
        if error.is_transient() {
            Self::Unavailable(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }

    /// Whether a retry may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unanswered(_) | Self::TimedOut)
    }
}

/// The position of an entry: its id, and its number among all entries of the subject if the log counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub id: StreamId,
    pub number: Option<u64>,
}

impl LogPosition {
    /// Before the first entry.
    pub const START: Self = Self { id: StreamId::START, number: Some(0) };
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub position: LogPosition,
    pub event_type: EventType,
    pub data: Object,
    pub publisher: Option<Id>,
    pub at: Millis,
    pub trace: Option<TraceParent>,
}

/// One event with its follow-up record, for the command `explain`.
#[derive(Clone, Debug)]
pub struct EventTrace {
    /// None if the event was trimmed or never existed.
    pub event: Option<LogEntry>,
    /// None after the inbox has made entries from the record, or if the event has no recipients.
    pub follow_up: Option<FollowUp>,
}

/// The maximum size of a page: entries, and bytes of their payloads.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    pub entries: usize,
    pub bytes: usize,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct Page<T = LogEntry> {
    pub start: StartPosition,
    pub entries: Vec<T>,
    /// Whether the log holds entries after these.
    pub more: bool,
    /// The position of the newest entry of the subject.
    pub head: LogPosition,
}

/// How the position after which a page was read relates to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// The position of a stored entry, or the beginning (`0-0`, and `0-1` while no entry was trimmed).
    Known,
    /// Older than every stored entry. The page begins with the oldest entry.
    Trimmed { oldest: LogPosition },
    /// Known, but more entries follow than a reconnecting client is sent. The page holds the first of them. A
    /// reconnecting client continues after [`Page::head`]; a stream that was open all along continues after the page.
    TooFarBehind,
    /// Not a position of this log. The page is empty and the stream continues after [`Page::head`], unless the source
    /// sends all entries that it has: then the page begins with the oldest.
    Unknown,
}
