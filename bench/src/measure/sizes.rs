//! How much and how long: the full measurement, and the quick one that shows whether something is badly off.

use crate::args::{ReferenceOptions, RunOptions};
use std::time::Duration;

pub(crate) struct Sizes {
    pub(crate) publishers: [usize; 3],
    pub(crate) publish_rooms: u32,
    pub(crate) publish_window: Duration,

    pub(crate) member_rounds: usize,
    pub(crate) member_window: Duration,

    /// Subscribers in the one-room measurements and in the idle one.
    pub(crate) subscribers: usize,
    pub(crate) one_room_rate: u32,
    pub(crate) rooms: u32,
    pub(crate) per_room: usize,
    pub(crate) rooms_rate: u32,
    pub(crate) delivery_window: Duration,

    pub(crate) cpu_rounds: usize,
    pub(crate) cpu_window: Duration,
    pub(crate) full_speed_window: Duration,
    /// Requests a second that are about many people or rooms each.
    pub(crate) spread_rate: u32,

    pub(crate) most_idle: usize,
    /// Requests for a large page that nobody reads.
    pub(crate) unread_requests: [usize; 2],
    /// Long enough that every idle stream has had a heartbeat (15 s).
    pub(crate) idle_settle: Duration,

    /// There are as many people with an inbox as subscribers in one room.
    pub(crate) inbox_rows: u64,
    /// How long it may take until there are so many.
    pub(crate) fill_limit: Duration,
    pub(crate) inbox_window: Duration,
    pub(crate) reading_rate: u32,
    pub(crate) live_people: u32,
    pub(crate) live_rate: u32,
    /// Until a database has told all that it was asked.
    pub(crate) counted_after: Duration,
    pub(crate) inbox_idle: Duration,

    /// Programs that commit on their own, and how often together, where it is not as often as they can.
    pub(crate) writers: usize,
    pub(crate) commit_rate: u32,
    /// Viewers of one event.
    pub(crate) viewers: [usize; 3],

    pub(crate) warm_up: Duration,
    /// After streams were opened or closed: presence is told, and memory given back, about a second later.
    pub(crate) settle: Duration,
    pub(crate) drain: Duration,
}

impl Sizes {
    pub(crate) fn for_run(options: &RunOptions) -> Self {
        Self {
            subscribers: options.subscribers,
            rooms_rate: options.rooms_rate,
            ..Self::with_windows(options.quick)
        }
    }

    pub(crate) fn for_reference(options: &ReferenceOptions) -> Self {
        Self {
            subscribers: options.subscribers,
            one_room_rate: options.rate,
            cpu_rounds: options.rounds,
            cpu_window: Duration::from_secs(options.secs),
            ..Self::with_windows(false)
        }
    }

    fn with_windows(quick: bool) -> Self {
        let secs = |full, short| Duration::from_secs(if quick { short } else { full });
        Self {
            publishers: [1, 16, 256],
            publish_rooms: 1_000,
            publish_window: secs(8, 2),
            member_rounds: 3,
            member_window: secs(4, 2),
            subscribers: 10_000,
            one_room_rate: 4,
            rooms: 1_000,
            per_room: 10,
            rooms_rate: 2_000,
            delivery_window: secs(10, 3),
            // Fewer than three have no middle one.
            cpu_rounds: 3,
            cpu_window: secs(15, 4),
            full_speed_window: secs(5, 2),
            spread_rate: 20,
            most_idle: 19_000,
            unread_requests: if quick { [100, 300] } else { [600, 1_500] },
            idle_settle: secs(18, 3),
            inbox_rows: if quick { 100_000 } else { 1_000_000 },
            fill_limit: secs(40, 10),
            inbox_window: secs(4, 2),
            reading_rate: 500,
            live_people: 1_000,
            live_rate: 200,
            counted_after: Duration::from_secs(11),
            inbox_idle: secs(10, 3),
            writers: 16,
            commit_rate: 100,
            viewers: [1, 1_000, if quick { 2_000 } else { 10_000 }],
            warm_up: Duration::from_secs(1),
            settle: Duration::from_secs(2),
            drain: Duration::from_secs(60),
        }
    }
}
