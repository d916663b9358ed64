//! The sizes and durations of measurements: of the full run, and of the quick run, which only shows large deviations.

use crate::args::{ReferenceOptions, RunOptions};
use std::time::Duration;

pub(crate) struct Sizes {
    pub(crate) publishers: [usize; 3],
    pub(crate) publish_rooms: u32,
    pub(crate) publish_window: Duration,

    pub(crate) member_rounds: usize,
    pub(crate) member_window: Duration,

    /// Streams in the measurements of one room and of idle streams; also the number of persons with an inbox.
    pub(crate) subscribers: usize,
    pub(crate) one_room_rate: u32,
    pub(crate) rooms: u32,
    pub(crate) per_room: usize,
    pub(crate) rooms_rate: u32,
    pub(crate) delivery_window: Duration,

    pub(crate) cpu_rounds: usize,
    pub(crate) cpu_window: Duration,
    pub(crate) full_speed_window: Duration,
    /// Requests per second that are about many persons or rooms each.
    pub(crate) group_rate: u32,

    pub(crate) max_idle_streams: usize,
    /// Requests for a large page whose answer the client does not read.
    pub(crate) unread_requests: [usize; 2],
    /// Longer than the keepalive interval (15 s), so that every idle stream has received a keepalive.
    pub(crate) idle_settle_time: Duration,

    /// Rows in the inbox before reads are measured.
    pub(crate) inbox_rows: u64,
    /// Filling the inbox ends after this time, also with fewer rows.
    pub(crate) fill_timeout: Duration,
    pub(crate) inbox_window: Duration,
    pub(crate) reading_rate: u32,
    pub(crate) live_people: u32,
    pub(crate) live_rate: u32,
    /// Delay until the statistics of a database server include all earlier work.
    pub(crate) stats_delay: Duration,
    pub(crate) idle_window: Duration,

    /// Threads that commit outbox rows.
    pub(crate) writers: usize,
    /// Commits per second of all writers together, except in the throughput measurement.
    pub(crate) commit_rate: u32,
    /// Viewers of one event.
    pub(crate) viewers: [usize; 3],

    pub(crate) warm_up: Duration,
    /// Wait after streams were opened or closed: the hub sends presence and releases memory about a second later.
    pub(crate) settle_time: Duration,
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
            // A median needs at least three rounds.
            cpu_rounds: 3,
            cpu_window: secs(15, 4),
            full_speed_window: secs(5, 2),
            group_rate: 20,
            max_idle_streams: 19_000,
            unread_requests: if quick { [100, 300] } else { [600, 1_500] },
            idle_settle_time: secs(18, 3),
            inbox_rows: if quick { 100_000 } else { 1_000_000 },
            fill_timeout: secs(40, 10),
            inbox_window: secs(4, 2),
            reading_rate: 500,
            live_people: 1_000,
            live_rate: 200,
            stats_delay: Duration::from_secs(11),
            idle_window: secs(10, 3),
            writers: 16,
            commit_rate: 100,
            viewers: [1, 1_000, if quick { 2_000 } else { 10_000 }],
            warm_up: Duration::from_secs(1),
            settle_time: Duration::from_secs(2),
            drain: Duration::from_secs(60),
        }
    }
}
