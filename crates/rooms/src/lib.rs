//! Rooms: people who watch the same page receive its events, live and without gaps.
//!
//! Services publish events to a room ([`publish`]). People follow the room live ([`routes`]) or read the events that
//! they missed ([`catch_up`]). With `ROOMS_MODE=open` a room exists as soon as it is named; with
//! `ROOMS_MODE=registered` rooms and members have to be registered ([`register`]).

pub mod catch_up;
mod membership;
mod options;
mod part;
pub mod publish;
pub mod registration;
pub mod routes;
pub mod store;

use std::sync::Arc;

use bongsu_kernel::Id;
use bongsu_kernel::telemetry::BoundedCounters;
use bongsu_limits::bucket::Buckets;
use bongsu_live::{Hub, Log, SubjectName};
use bongsu_presence::Presence;

pub use options::{Mode, Options, SETTINGS};
pub use part::ROOMS_PART;

use membership::Memberships;

/// Rooms that one stream may follow.
pub const MAX_ROOMS_PER_STREAM: usize = 32;
/// Event types with a metrics label of their own; all further ones are counted as `other`.
const MAX_EVENT_TYPE_LABELS: usize = 200;

/// The handle of this part. Cheap to clone.
#[derive(Clone)]
pub struct Rooms(Arc<Inner>);

struct Inner {
    hub: Hub,
    log: Arc<dyn Log>,
    /// None when records are off.
    memberships: Option<Memberships>,
    presence: Presence,
    buckets: Arc<dyn Buckets>,
    options: Options,
    published: BoundedCounters,
}

/// The subject kind of rooms.
pub const SUBJECT_KIND: &str = "room";

/// The subject of a room's events.
fn subject(room: &Id) -> SubjectName {
    SubjectName::new(SUBJECT_KIND, room)
}
