//! Rooms: everyone who looks at the same page sees what happens there, at once and without gaps.
//!
//! Services publish events to a room ([`publish`]); people follow it live ([`routes`], `live::stream`) or ask for
//! what they missed ([`catch_up`]). A room needs no registration: it is there when somebody names it, unless the
//! settings say otherwise ([`register`]).

pub mod catch_up;
mod membership;
mod options;
mod part;
pub mod publish;
pub mod register;
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

/// Rooms that one stream follows, at most.
pub const MOST_ROOMS: usize = 32;
/// Past so many kinds, an event type counts as `other` in metrics.
const MOST_EVENT_TYPES: usize = 200;

/// The handle of this part. Cheap to clone.
#[derive(Clone)]
pub struct Rooms(Arc<Inner>);

struct Inner {
    hub: Hub,
    log: Arc<dyn Log>,
    /// None when nothing is recorded.
    memberships: Option<Memberships>,
    presence: Presence,
    buckets: Arc<dyn Buckets>,
    options: Options,
    published: BoundedCounters,
}

/// The family of subjects that rooms are.
pub const FAMILY: &str = "room";

/// The subject that a room's events are about.
fn subject(room: &Id) -> SubjectName {
    SubjectName::new(FAMILY, room)
}
