//! The port: where it is kept who is in which room, and where every coming and going is decided.
//!
//! Its contract is written on [`Store`]; the suite in `tests/it/store_contract.rs` runs against every adapter. The
//! adapters are [`embedded`], for one process, and [`redis`], for a fleet.

pub mod embedded;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::{Code, Id, Millis};
use bongsu_live::log::Boxed;

/// In a larger room an update lists nobody, and changes are gathered.
pub const MOST_LISTED: usize = 200;
/// People in one list, at most.
pub const MAX_PAGE_SIZE: usize = 1_000;
/// Changes of a larger room are gathered so long.
pub const GATHER: Duration = Duration::from_secs(1);

/// Who is in which room, as one hub sees and tells it.
///
/// A person is in a room while there is a sign of them: a stream on a hub, or a heartbeat. A hub's own streams count
/// as one sign however many there are: the hub counts them.
///
/// - **Expiry.** A sign is good for `user_ttl`, by the store's own clock. A store that outlives its hubs also expires
///   the sign of a hub, which says it again every [`Store::renewal`]; where hub and store are one process, it needs no
///   renewal. Who has no sign left has gone, and is no longer among [`Store::who`] from that moment on.
/// - **Lost instances.** The signs of an instance that is no longer in the fleet end with its lease, however long they
///   would be good; its people leave as if each had been told as gone by it, heartbeats and other instances' signs apart.
/// - **Leaving.** Who is told as gone by the last hub that had them leaves at once, also when they sent heartbeats
///   beside their stream. Someone who has only heartbeats is not touched by that.
/// - **Announced once.** Every change (nobody's sign to the first, the last to none, expiry) is decided and announced
///   in one step, and every hub that listens hears it once, in the order of its room. What is announced includes the
///   room as it is after that change. An expiry is announced when a hub that has people in the room looks: at the
///   latest when [`Told::look_within`] has passed.
/// - **Large rooms.** Past [`MOST_LISTED`] people nobody is listed, and what changes within [`GATHER`] is one
///   announcement, which names a person only when it is about one change. It is made when a hub looks; all that listen
///   are asked to, with [`Ears::soon`], unless the store makes it by itself.
/// - **Repeating.** Saying the same again changes nothing but the time of the sign, so after any error it is safe.
/// - **Lost.** An announcement may be lost on the way. Then [`Ears::doubt`] is called, or the next one does not follow
///   on from the last ([`Change::previous`]).
/// - **Errors.** After an error it is unknown whether something was done, and the same may be said again.
pub trait Store: Send + Sync {
    /// Says who of this hub's people is in a room, newly or still, and who has left it. With nobody at all it only
    /// looks whose time is up.
    fn tell(&self, room: &Id, here: &[Id], gone: &[Id]) -> Boxed<'_, Result<Told, Error>>;

    /// A sign of somebody who may have no stream.
    fn beat(&self, room: &Id, person: &Id) -> Boxed<'_, Result<(), Error>>;

    /// How many are in a room, and the first `most` of them ([`MAX_PAGE_SIZE`] at most) in the order of
    /// [`in_order`](crate::in_order), after a person who need not be there. Costs no more than what is listed.
    fn who(&self, room: &Id, after: Option<&Id>, most: usize) -> Boxed<'_, Result<Who, Error>>;

    /// Returns when every change from now on is heard. After an error the store goes on trying, and calls [`Ears::doubt`]
    /// once it is heard.
    fn listen(&self, room: &Id) -> Boxed<'_, Result<(), Error>>;

    /// Nobody here listens to that room any more.
    fn forget(&self, room: &Id);

    /// How often a hub has to say again who is here; never, when what it said stays.
    fn renewal(&self) -> Option<Duration>;
}

/// Who is told of changes. Called by the store in the order of a room: it must not wait.
pub trait Ears: Send + Sync {
    fn change(&self, room: &Id, change: Change);

    /// An announcement of this room is due then: a hub that has people there looks ([`Store::tell`]).
    fn soon(&self, room: &Id, within: Duration);

    /// Changes of this room may have been missed until now.
    fn doubt(&self, room: &Id);
}

/// What saying something gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Somebody's time may be up then, or an announcement be due: whoever has people in the room looks again.
    pub look_within: Option<Duration>,
    /// Of the last announcement that includes it. None where [`Ears`] have heard everything by now.
    pub version: Option<u64>,
    /// How many are in the room now. In a large one the last announcement may have said another number.
    pub count: usize,
}

/// Somebody came or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Grows within a room.
    pub version: u64,
    /// The version before this one, where the store knows it.
    pub previous: Option<u64>,
    pub at: Millis,
    pub joined: Option<Id>,
    pub left: Option<Id>,
    pub count: usize,
    /// Everybody, unless the room is large.
    pub online: Option<Vec<Id>>,
}

/// A room at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Of the last announcement that this includes.
    pub version: u64,
    pub at: Millis,
    /// Of the whole room.
    pub count: usize,
    /// Those who were asked for.
    pub online: Vec<Online>,
    /// Whether others follow them.
    pub has_more: bool,
}

/// A person in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Online {
    pub user: Id,
    pub last_seen: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine is away, or did not answer; repeating helps once it is back.
    #[error("{0}")]
    Away(String),
    /// The engine refused; repeating does not help until somebody has looked at it.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Away(_) => Code::Redis5001,
            Self::Refused(_) => Code::Redis5002,
        }
    }
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}
