//! The port: a store that keeps who is in which room, and decides when a person joins or leaves.
//!
//! Its contract is written on [`PresenceStore`]; the suite in `tests/it/store_contract.rs` runs against every adapter. The
//! adapters are [`embedded`], for one process, and [`redis`], for a fleet.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::{Code, Id, Millis};
use bongsu_live::log::BoxFuture;

/// The future that a method of a [`PresenceStore`] returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Maximum number of people in a room that is not large. Announcements of a large room list no people, and are batched.
pub const MAX_LISTED: usize = 200;
/// Maximum number of people in one page of [`PresenceStore::occupants`].
pub const MAX_PAGE_SIZE: usize = 1_000;
/// The changes of a large room within this time are announced together.
pub const CHANGE_BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Who is in which room, from the point of view of one instance.
///
/// A person is in a room while they have at least one lease there. An instance holds one lease for each person with
/// streams on it, however many streams these are; heartbeats hold another lease.
///
/// - **Expiry.** A lease ends `user_ttl` after its last renewal, by the clock of the store. A store that outlives an
///   instance needs the renewals of [`PresenceStore::renewal_interval`]; in the store of a single process, the leases of
///   streams do not expire. From the moment that their last lease ends, a person is not among [`PresenceStore::occupants`].
/// - **Lost instances.** All leases of an instance end when the instance is lost from the fleet, even if their
///   `user_ttl` is not over. The people of a lost instance leave as if the instance had reported them as left, but
///   leases of other instances and of heartbeats remain.
/// - **Leaving.** A person whom the last instance reports as left leaves at once: the lease of their heartbeats ends,
///   too. Reporting a person with only a heartbeat lease as left has no effect.
/// - **Announced once.** Every change (a person's first lease begins, or the last one ends) is decided and announced in
///   one atomic step. Every instance that has subscribed receives each announcement once, in the order of its room. An
///   announcement contains the room after the change. The expiry of a lease is announced at the next report of the room
///   by any instance, which is due within [`ReportOutcome::next_report_within`].
/// - **Large rooms.** With more than [`MAX_LISTED`] people, announcements list no people, and the changes within
///   [`CHANGE_BATCH_INTERVAL`] are one announcement, which names a person only if it contains one change. The next
///   report makes this announcement, for which the store calls [`PresenceListener::request_report`] on subscribed
///   instances, or the store makes it by itself.
/// - **Repeating.** A repeated report or heartbeat renews the leases and changes nothing else.
/// - **Lost announcements.** When an announcement may have been lost, [`PresenceListener::mark_stale`] is called, or
///   the next announcement has another [`PresenceChange::previous`] than the version of the last one that arrived.
/// - **Errors.** After an error it is unknown whether the call took effect, and it may be repeated.
pub trait PresenceStore: Send + Sync {
    /// Takes or renews the leases of the people in `present`, and ends those of the people in `left`. Even with no
    /// people it removes those whose leases have expired, and makes announcements that are due.
    fn report(&self, room: &Id, present: &[Id], left: &[Id]) -> StoreFuture<'_, ReportOutcome>;

    /// Takes or renews the heartbeat lease of a person.
    fn heartbeat(&self, room: &Id, person: &Id) -> StoreFuture<'_, ()>;

    /// Returns the number of people in a room, and the first `limit` of them ([`MAX_PAGE_SIZE`] at most) in the order
    /// of [`compare_ids`](crate::compare_ids). They begin after the id `after`, which need not be in the room. The cost
    /// grows with the people in the page, not with those in the room.
    fn occupants(&self, room: &Id, after: Option<&Id>, limit: usize) -> StoreFuture<'_, Occupants>;

    /// Subscribes to the announcements of a room. After Ok, the listener receives all later announcements.
    /// After an error the store keeps trying, and calls [`PresenceListener::mark_stale`] when it has
    /// subscribed.
    fn subscribe(&self, room: &Id) -> StoreFuture<'_, ()>;

    fn unsubscribe(&self, room: &Id);

    /// How often an instance has to renew its leases. None when they do not expire.
    fn renewal_interval(&self) -> Option<Duration>;
}

/// Receives the announcements of the subscribed rooms. The store calls the listener in the order of each room, so the
/// listener must not block.
pub trait PresenceListener: Send + Sync {
    fn deliver(&self, room: &Id, change: PresenceChange);

    /// An announcement is due after `within`: an instance with people in the room has to call [`PresenceStore::report`] then.
    fn request_report(&self, room: &Id, within: Duration);

    /// Announcements of this room may have been lost until now.
    fn mark_stale(&self, room: &Id);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportOutcome {
    /// The time until a lease may expire or an announcement is due: an instance with people in the room reports again
    /// by then. None when there is neither, or when the store handles both by itself.
    pub next_report_within: Option<Duration>,
    /// The version of the last announcement. None if [`PresenceListener`] has received all announcements already.
    pub version: Option<u64>,
    /// The number of people in the room. In a large room the last announcement may contain another one.
    pub count: usize,
}

/// A person joined or left, or several people did in a large room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceChange {
    /// Grows with every announcement of the room.
    pub version: u64,
    /// The version of the announcement before this one. None if the store does not know it.
    pub previous: Option<u64>,
    pub at: Millis,
    pub joined: Option<Id>,
    pub left: Option<Id>,
    pub count: usize,
    /// All people in the room. None if the room is large.
    pub online: Option<Vec<Id>>,
}

/// The people in a room at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupants {
    /// The version of the last announcement, which these people include.
    pub version: u64,
    pub at: Millis,
    /// The number of people in the whole room.
    pub count: usize,
    /// The requested page of the people.
    pub online: Vec<Occupant>,
    /// Whether there are people after this page.
    pub has_more: bool,
}

/// A person in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    pub user: Id,
    pub last_seen: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub enum Error {
    /// The engine is unavailable or did not answer. The call may be repeated when it is back.
    Unavailable(String),
    /// The engine refused. A repeated call fails as well until an operator has resolved the cause.
    Refused(String),
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Unavailable(_) => Code::Redis5001,
            Self::Refused(_) => Code::Redis5002,
        }
    }
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}
