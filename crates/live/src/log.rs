//! The log port: where events become durable, and where readers find what the ring no longer has.
//!
//! Its contract is written on [`Log`]; the suite in `tests/it/log_contract.rs` runs against every adapter. The
//! adapters are [`embedded`], for one process, and [`redis`], for a fleet, with the [`Bus`] that joins its hubs.

pub mod embedded;
mod follow_ups;
pub mod redis;

use crate::SubjectName;
use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, Millis, StreamId};

pub use bongsu_kernel::Boxed;
pub use follow_ups::{FollowUp, FollowUps, Pending, Recipients, Watch};

/// A durable, ordered log per subject.
///
/// - **Order.** Ids of a subject only grow, also over restarts, clock changes and trimming; none is given twice.
/// - **Atomic.** An append checks its idempotency key, stores the event, keeps the answer under the key and writes
///   down who is to be told, all or nothing, also when the process is killed at any moment.
/// - **Durable.** An append is answered only after it would survive a crash.
/// - **Repeating.** The same subject, key and digest within 24 hours gives the first answer again; another digest is
///   a [`AppendError::Conflict`]. Without a key every append is a new event.
/// - **Told in order.** When it is durable, an event is given to the [`Sink`], in the order of its subject: by the log
///   itself before it answers, or by the [`Bus`] of a log that several hubs share.
/// - **Trimmed.** A subject keeps at least its newest `keep` events, and not many more.
/// - **Membership versions.** The recipients of an event may follow from who is a member of the subject, which is recorded
///   elsewhere. Whoever caches members gets the version first, reads the members then, and appends with that version;
///   whoever changes members makes the change durable first and changes the version then. An append whose version is not the
///   current one keeps nothing ([`AppendError::StaleMembership`]), but a repeated key gets its first answer. Once a version
///   was changed no append with it is taken any more. A version may also change for no reason, or be lost.
/// - **Errors.** After an error nothing of an append was kept, unless the error says that this is unknown.
pub trait Log: Send + Sync {
    /// Appends in the given order; each event has an outcome of its own.
    fn append(&self, events: Vec<Append>) -> Boxed<'_, Result<Vec<Result<Appended, AppendError>>, LogError>>;

    /// Reads on after a position, at most so many events and about so many bytes, but at least one event.
    fn read(&self, subject: &SubjectName, after: StreamId, most: Most) -> Boxed<'_, Result<Page, LogError>>;

    /// The newest place of a subject.
    fn head(&self, subject: &SubjectName) -> Boxed<'_, Result<Place, LogError>>;

    /// Removes all of a subject but its newest entry, and the answers kept for its keys. Ids go on from there.
    fn purge(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>>;

    /// The version of a subject's membership, for [`Append::membership_version`].
    fn membership_version(&self, subject: &SubjectName) -> Boxed<'_, Result<u64, LogError>>;

    /// Changes the version. After an error it may have changed or not: repeat it.
    fn change_membership_version(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>>;

    /// What is wrong right now, if anything.
    fn trouble(&self) -> Option<&'static str>;
}

/// Who is told of every durable event.
pub trait Sink: Send + Sync {
    fn deliver(&self, delivery: Delivery<'_>);

    /// An event that no log holds, for those who listen right now.
    fn pass(&self, subject: &SubjectName, passing: &Passing);

    /// Events of this subject may have been missed: the log has them.
    fn doubt(&self, subject: &SubjectName);
}

/// What brings the events of a log that several hubs share.
///
/// It may lose an event, and says so where it can ([`Sink::doubt`]); every event names the one before it, so that a
/// loss shows with the next one. Its [`Sink`] is told of a subject's events in order.
pub trait Bus: Send + Sync {
    /// Returns when everything that is appended from now on is heard.
    fn listen(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>>;

    /// Nobody here listens to it any more.
    fn forget(&self, subject: &SubjectName);

    /// So many streams of this hub listen to it now: others learn it a moment later, where they need to know.
    fn audience(&self, _subject: &SubjectName, _streams: usize) {}

    /// The same for a stream that has just come; others know it when this returns.
    fn announce(&self, _subject: &SubjectName, _streams: usize) -> Boxed<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// An event that no log holds.
#[derive(Debug)]
pub struct Passing {
    pub event_type: EventType,
    pub data: Object,
    pub at: Millis,
}

/// A durable event on its way to those who listen.
#[derive(Debug)]
pub struct Delivery<'a> {
    pub subject: &'a SubjectName,
    /// The id before this one in the subject.
    pub previous: StreamId,
    pub entry: &'a Entry,
    pub accepted: std::time::Instant,
}

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct Append {
    pub subject: SubjectName,
    pub event_type: EventType,
    pub data: Object,
    pub publisher: Option<Id>,
    pub once: Option<Once>,
    /// Who gets an inbox entry: written down with the event.
    pub recipients: Recipients,
    /// The version of the membership that the recipients follow from. None: they follow from none, nothing is compared.
    pub membership_version: Option<u64>,
    /// Kept with the answer under the key, so that the second answer equals the first.
    pub audience: u32,
    /// How many events the subject keeps.
    pub keep: u32,
    /// The trace that it belongs to: kept with the event and written into the follow-up record.
    pub trace: Option<TraceParent>,
}

/// What makes a repeated append one event.
#[derive(Clone, Debug)]
pub struct Once {
    pub key: String,
    /// Of everything that makes up the content.
    pub digest: [u8; 32],
    /// What earlier versions stored for this content, where that was another digest. It counts as the same content, so that a
    /// request may be repeated after an upgrade.
    pub earlier_digest: Option<[u8; 32]>,
}

impl Once {
    /// Whether this digest was stored for the same content.
    fn is_same_content(&self, stored: [u8; 32]) -> bool {
        stored == self.digest || Some(stored) == self.earlier_digest
    }
}

/// What an append gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub id: StreamId,
    pub at: Millis,
    pub audience: u32,
    /// It was there already.
    pub duplicate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The key was used for other content; repeating cannot help.
    #[error("the idempotency key was used for other content")]
    Conflict,
    /// The membership has changed since its version was read, or an earlier event of the same subject and batch met that:
    /// events of a subject do not overtake each other. Reading it again and appending again helps.
    #[error("the membership of the subject has changed")]
    StaleMembership,
    /// This one could not be appended, while others of the same batch may have been.
    #[error(transparent)]
    Failed(LogError),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Nothing was kept; repeating helps once there is space.
    #[error("the disk is full")]
    Full,
    /// Nothing was kept; repeating may help.
    #[error("the log failed: {0}")]
    Failed(String),
    /// Whether it was kept is unknown; repeating with a key is safe.
    #[error("the log did not answer in time")]
    TimedOut,
    /// The engine that keeps it is away; nothing was kept, and repeating helps once it is back.
    #[error("{0}")]
    Away(String),
    /// The engine's connection broke: whether it was kept is unknown; repeating with a key is safe.
    #[error("{0}")]
    Unanswered(String),
    /// The engine refused; repeating does not help until somebody has looked at it.
    #[error("{0}")]
    Refused(String),
}

impl LogError {
    /// Of a source that reads the records.
    pub fn from_records(error: &bongsu_sql::Error) -> Self {
        if error.may_pass() { Self::Away(error.to_string()) } else { Self::Failed(error.to_string()) }
    }

    /// Whether the same may work a moment later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Unanswered(_) | Self::TimedOut)
    }
}

/// An event's place: its id, and which event of its subject it is, where the log counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub id: StreamId,
    pub number: Option<u64>,
}

impl Place {
    /// Before everything.
    pub const START: Self = Self { id: StreamId::START, number: Some(0) };
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub place: Place,
    pub event_type: EventType,
    pub data: Object,
    pub publisher: Option<Id>,
    pub at: Millis,
    pub trace: Option<TraceParent>,
}

/// What a log has of one event, for an operator who looks at it from outside.
#[derive(Clone, Debug)]
pub struct Traces {
    /// None when it was trimmed, or never was.
    pub event: Option<Entry>,
    /// The follow-up record, while the inbox has not derived entries from it.
    pub waiting: Option<FollowUp>,
}

/// The bounds of a read.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub entries: usize,
    pub bytes: usize,
}

/// What a read gave.
#[derive(Clone, Debug)]
pub struct Page<T = Entry> {
    pub start: Start,
    pub entries: Vec<T>,
    /// Whether the log holds more after these.
    pub more: bool,
    /// The newest place of the subject.
    pub head: Place,
}

/// What the position that was asked for turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// An event that is there, or the beginning (`0-0`; `0-1` only while nothing of it was trimmed).
    Known,
    /// Older than all that is left; the entries begin with the oldest.
    Trimmed { oldest: Place },
    /// Known, and more followed than is told to who comes back: the entries are the first of it, and what comes next is
    /// after [`Page::head`]. Who was there all along reads on after the last of them.
    Cut,
    /// Nothing that this log knows; there are no entries, and what comes next is after [`Page::head`]. Where a source
    /// would rather tell all that it has, the entries begin with its oldest.
    Unknown,
}
