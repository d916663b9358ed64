//! Passes the changes that the store announces on to the streams of this instance, as `presence.update`.
//!
//! Every change is passed on once and in order. When changes may have been missed, the room becomes stale: later
//! changes are buffered until the occupants were read from the store ([`Announcer::finish_refresh`]). The occupants are
//! passed on as one update, and then the buffered changes that are newer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::json::Object;
use bongsu_kernel::{Clock, EventType, Id, Millis, lock, shrink};
use bongsu_live::SubjectName;
use bongsu_live::log::{EphemeralMessage, Sink};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::compare_ids;
use crate::local_presence::LocalPresence;
use crate::store::{MAX_LISTED, Occupants, PresenceChange, PresenceListener, ReportOutcome};

/// Changes that are buffered for a room while its occupants are read. With more of them the occupants are read again.
const MAX_BUFFERED_CHANGES: usize = 256;

type Views = HashMap<Id, View, foldhash::fast::RandomState>;

pub(crate) struct Announcer {
    sink: Arc<dyn Sink>,
    local: Arc<LocalPresence>,
    clock: Clock,
    event_type: EventType,
    /// Locked while an update is passed on, so that two updates never overtake each other.
    views: Mutex<Views>,
}

/// A room as the updates have described it to the streams of this instance. A room without a view has sent no
/// update yet; its occupants are read when its first stream is reported to the store.
enum View {
    Current {
        state: RoomState,
        /// New streams that wait for a version, so that their snapshot includes their own person.
        waiters: Vec<(u64, oneshot::Sender<()>)>,
    },
    /// The occupants have to be read. Changes that arrive after the read began are buffered.
    Stale { buffered: Vec<PresenceChange>, is_reading: bool },
}

/// A room according to the last update.
struct RoomState {
    version: u64,
    count: usize,
    /// None in a large room.
    online: Option<Vec<Id>>,
}

impl View {
    fn stale() -> Self {
        Self::Stale { buffered: Vec::new(), is_reading: false }
    }
}

impl Announcer {
    pub(crate) fn new(sink: Arc<dyn Sink>, local: Arc<LocalPresence>) -> Self {
        #[expect(clippy::expect_used, reason = "a constant, checked at start-up")]
        let event_type = EventType::new("presence.update").expect("a valid event type");
        Self { sink, local, clock: Clock::system(), event_type, views: Mutex::default() }
    }

    /// Requests a read of the occupants of a room as soon as possible, because a change may have been missed.
    pub(crate) fn refresh(&self, room: &Id) {
        self.refresh_locked(&mut lock(&self.views), room);
    }

    /// Marks the room stale and schedules a report, which reads the occupants. They include the buffered
    /// changes, which are dropped here.
    fn refresh_locked(&self, views: &mut Views, room: &Id) {
        views.insert(room.clone(), View::stale());
        self.local.schedule_after(room, Duration::ZERO);
    }

    /// Returns true when the caller has to read the occupants now, and pass them to [`Self::finish_refresh`].
    pub(crate) fn begin_refresh(&self, room: &Id) -> bool {
        match lock(&self.views).entry(room.clone()).or_insert_with(View::stale) {
            View::Stale { is_reading, .. } => {
                *is_reading = true;
                true
            }
            View::Current { .. } => false,
        }
    }

    /// Passes on the occupants that were read, and then the buffered changes.
    pub(crate) fn finish_refresh(&self, room: &Id, occupants: Occupants) {
        let mut views = lock(&self.views);
        let buffered = match views.remove(room) {
            Some(View::Stale { buffered, is_reading: true }) => buffered,
            // The room has become stale again since the read began.
            Some(View::Stale { .. }) => return self.refresh_locked(&mut views, room),
            // The last stream has left the room.
            _ => return,
        };
        let Occupants { version, at, count, online, .. } = occupants;
        let listed = online.into_iter().map(|online| online.user);
        let online = (count <= MAX_LISTED).then(|| listed.collect());
        self.pass_on(&mut views, room, at, (None, None), RoomState { version, count, online });
        for change in buffered {
            self.apply(&mut views, room, change);
        }
    }

    /// Takes the count from the outcome of a report: a change in a large room counts before it is announced.
    pub(crate) fn apply_outcome(&self, room: &Id, outcome: ReportOutcome) {
        if let Some(View::Current { state, .. }) = lock(&self.views).get_mut(room)
            && outcome.version.is_none_or(|version| version == state.version)
            && outcome.count > MAX_LISTED
        {
            state.count = outcome.count;
            state.online = None;
        }
    }

    /// Resolves when this version was passed on to the streams, or when the room is stale.
    pub(crate) async fn wait_for_version(&self, room: &Id, version: u64) {
        let (sender, receiver) = oneshot::channel();
        match lock(&self.views).get_mut(room) {
            Some(View::Current { state, waiters }) if state.version < version => {
                waiters.retain(|(_, waiter)| !waiter.is_closed());
                waiters.push((version, sender));
            }
            _ => return,
        }
        let _ = receiver.await;
    }

    /// Calls `deliver` with the room according to the last update, or with None while the room is stale: then an update
    /// with the occupants follows. No update is passed on during the call.
    pub(crate) fn snapshot(&self, room: &Id, deliver: &mut dyn FnMut(Option<&EphemeralMessage>)) {
        let views = lock(&self.views);
        let snapshot = match views.get(room) {
            Some(View::Current { state, .. }) => {
                self.message(self.clock.now(), &Update::new((None, None), state))
            }
            _ => None,
        };
        deliver(snapshot.as_ref());
    }

    /// Removes the view of a room that has no streams any more.
    pub(crate) fn remove(&self, room: &Id) {
        let mut views = lock(&self.views);
        views.remove(room);
        shrink(&mut views);
    }

    /// Passes a change on if it follows the last update. If a change between the two is missing, the room becomes
    /// stale.
    fn apply(&self, views: &mut Views, room: &Id, change: PresenceChange) {
        match views.get_mut(room) {
            // The occupants that were read include the change.
            Some(View::Current { state, .. }) if change.version <= state.version => return,
            Some(View::Current { state, .. }) => {
                if change.previous.is_some_and(|previous| previous != state.version) {
                    return self.refresh_locked(views, room);
                }
            }
            // The occupants will be read later and will include the change.
            None | Some(View::Stale { is_reading: false, .. }) => return,
            Some(View::Stale { buffered, .. }) if buffered.len() < MAX_BUFFERED_CHANGES => {
                return buffered.push(change);
            }
            Some(View::Stale { .. }) => return self.refresh_locked(views, room),
        }
        let PresenceChange { version, at, joined, left, count, online, .. } = change;
        self.pass_on(views, room, at, (joined, left), RoomState { version, count, online });
    }

    /// Passes an update on to the streams, and stores the state that it describes.
    fn pass_on(
        &self,
        views: &mut Views,
        room: &Id,
        at: Millis,
        joined_or_left: (Option<Id>, Option<Id>),
        state: RoomState,
    ) {
        if let Some(message) = self.message(at, &Update::new(joined_or_left, &state)) {
            self.sink.deliver_ephemeral(&SubjectName::new("room", room), &message);
        }
        let mut waiters = match views.remove(room) {
            Some(View::Current { waiters, .. }) => waiters,
            _ => Vec::new(),
        };
        // Dropping a sender ends the wait of its receiver.
        waiters.retain(|(version, _)| *version > state.version);
        views.insert(room.clone(), View::Current { state, waiters });
    }

    fn message(&self, at: Millis, update: &Update) -> Option<EphemeralMessage> {
        let data = serde_json::to_string(update).ok().and_then(|text| Object::from_stored(&text))?;
        Some(EphemeralMessage { event_type: self.event_type.clone(), data, at })
    }
}

impl PresenceListener for Announcer {
    fn deliver(&self, room: &Id, change: PresenceChange) {
        // The lookup releases the lock of the streams before the update, because a stream that closes during
        // the update takes that lock, too.
        if self.local.has_streams(room) {
            self.apply(&mut lock(&self.views), room, change);
        }
    }

    fn request_report(&self, room: &Id, within: Duration) {
        self.local.schedule_after(room, within);
    }

    fn mark_stale(&self, room: &Id) {
        let mut views = lock(&self.views);
        // The streams are looked up under the lock: otherwise the room could be removed in between, and its view would
        // stay.
        if self.local.has_streams(room) {
            views.insert(room.clone(), View::stale());
            // The store may have lost the leases of this room.
            self.local.renew_now(room);
        }
    }
}

/// The data of `presence.update`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    #[serde(skip_serializing_if = "Option::is_none")]
    online_users: Option<Vec<Id>>,
    joined: Option<Id>,
    left: Option<Id>,
    count: usize,
}

impl Update {
    fn new((joined, left): (Option<Id>, Option<Id>), state: &RoomState) -> Self {
        let mut online_users = state.online.clone();
        if let Some(online) = &mut online_users {
            online.sort_by(compare_ids);
        }
        Self { online_users, joined, left, count: state.count }
    }
}

#[cfg(test)]
mod tests {
    use bongsu_live::log::Delivery;

    use super::*;
    use crate::store::Occupant;

    /// Records the updates that streams would receive.
    #[derive(Default)]
    struct RecordingSink(Mutex<Vec<String>>);

    impl Sink for RecordingSink {
        fn deliver(&self, _: Delivery<'_>) {}

        fn deliver_ephemeral(&self, _: &SubjectName, message: &EphemeralMessage) {
            self.0.lock().unwrap().push(message.data.as_str().to_owned());
        }

        fn mark_stale(&self, _: &SubjectName) {}
    }

    fn id(text: &str) -> Id {
        Id::new(text).unwrap()
    }

    /// An announcer with one stream in the room `room`.
    struct Fixture {
        sink: Arc<RecordingSink>,
        announcer: Announcer,
    }

    impl Fixture {
        fn new() -> Self {
            let sink = Arc::new(RecordingSink::default());
            let local = Arc::new(LocalPresence::new(Duration::MAX));
            local.add_stream(&id("room"), Some(&id("somebody")));
            Self { sink: sink.clone(), announcer: Announcer::new(sink, local) }
        }

        /// A fixture whose streams have received every update up to a version.
        fn at(version: u64) -> Self {
            let fixture = Self::new();
            assert!(fixture.begin_refresh(), "the occupants are read for the first stream");
            fixture.finish_refresh(version);
            fixture.take_counts();
            fixture
        }

        /// The count of the snapshot that a new stream would get.
        fn snapshot(&self) -> Option<u64> {
            let mut count = None;
            self.announcer.snapshot(&id("room"), &mut |message| {
                let update =
                    message.map(|message| serde_json::from_str::<serde_json::Value>(message.data.as_str()));
                count = update.map(|update| update.unwrap()["count"].as_u64().unwrap());
            });
            count
        }

        /// Delivers a change after which the room has as many people as the version says.
        fn change(&self, version: u64, previous: Option<u64>) {
            let (count, joined) = (usize::try_from(version).unwrap(), Some(id("x")));
            let change = PresenceChange { version, previous, at: 0, joined, left: None, count, online: None };
            self.announcer.deliver(&id("room"), change);
        }

        fn finish_refresh(&self, version: u64) {
            let count = usize::try_from(version).unwrap();
            let occupants = Occupants { version, at: 0, count, online: Vec::new(), has_more: false };
            self.announcer.finish_refresh(&id("room"), occupants);
        }

        /// The counts of the updates since the last call; negative for an update without `joined`.
        fn take_counts(&self) -> Vec<i64> {
            let updates = std::mem::take(&mut *self.sink.0.lock().unwrap());
            let count = |text: &String| {
                let count: i64 = text.rsplit_once(':').unwrap().1.trim_end_matches('}').parse().unwrap();
                if text.contains(r#""joined":null"#) { -count } else { count }
            };
            updates.iter().map(count).collect()
        }

        fn begin_refresh(&self) -> bool {
            self.announcer.begin_refresh(&id("room"))
        }
    }

    #[test]
    fn consecutive_changes_are_passed_on_once() {
        let fixture = Fixture::at(4);
        fixture.change(5, Some(4));
        fixture.change(6, Some(5));
        fixture.change(6, Some(5));
        fixture.change(5, Some(4));
        fixture.change(9, None);
        assert_eq!(fixture.take_counts(), [5, 6, 9]);
        assert!(!fixture.begin_refresh());
        let change = PresenceChange {
            version: 1,
            previous: None,
            at: 0,
            joined: None,
            left: None,
            count: 0,
            online: None,
        };
        fixture.announcer.deliver(&id("another"), change);
        assert!(fixture.take_counts().is_empty(), "the room has no streams");
    }

    #[test]
    fn after_a_gap_the_occupants_are_passed_on_and_then_the_newer_changes() {
        let fixture = Fixture::at(4);
        fixture.change(5, Some(4));
        fixture.change(7, Some(6));
        fixture.change(8, Some(7));
        assert!(fixture.begin_refresh());
        fixture.change(9, Some(8));
        fixture.change(10, Some(9));
        assert_eq!(fixture.take_counts(), [5]);
        // The occupants were read before change 10.
        fixture.finish_refresh(9);
        fixture.change(11, Some(10));
        assert_eq!(fixture.take_counts(), [-9, 10, 11]);
        assert!(!fixture.begin_refresh());
    }

    #[test]
    fn a_room_that_becomes_stale_during_a_read_is_read_again() {
        let fixture = Fixture::new();
        fixture.announcer.mark_stale(&id("room"));
        assert!(fixture.begin_refresh());
        fixture.announcer.mark_stale(&id("room"));
        fixture.finish_refresh(3);
        assert!(fixture.take_counts().is_empty());
        assert!(fixture.begin_refresh());
        fixture.finish_refresh(4);
        assert_eq!(fixture.take_counts(), [-4]);
    }

    #[test]
    fn the_number_of_buffered_changes_is_bounded() {
        let fixture = Fixture::new();
        fixture.announcer.mark_stale(&id("room"));
        assert!(fixture.begin_refresh());
        for version in 1..=MAX_BUFFERED_CHANGES as u64 + 50 {
            fixture.change(version, Some(version - 1));
        }
        fixture.finish_refresh(0);
        assert!(fixture.take_counts().is_empty(), "the occupants that were read are too old");
        assert!(fixture.begin_refresh());
        fixture.finish_refresh(400);
        assert_eq!(fixture.take_counts(), [-400]);
    }

    #[test]
    fn a_store_that_lost_its_data_may_return_to_an_older_version() {
        let fixture = Fixture::at(99);
        fixture.change(100, Some(99));
        fixture.announcer.mark_stale(&id("room"));
        assert!(fixture.begin_refresh());
        fixture.finish_refresh(50);
        fixture.change(51, Some(50));
        assert_eq!(fixture.take_counts(), [100, -50, 51]);
    }

    #[test]
    fn a_snapshot_is_the_state_of_the_last_update() {
        let fixture = Fixture::new();
        fixture.change(5, Some(4));
        assert_eq!(
            (fixture.snapshot(), fixture.take_counts()),
            (None, vec![]),
            "the occupants were not read yet"
        );
        assert!(fixture.begin_refresh());
        fixture.finish_refresh(5);
        assert_eq!((fixture.snapshot(), fixture.take_counts()), (Some(5), vec![-5]));
        fixture.change(6, Some(5));
        assert_eq!((fixture.snapshot(), fixture.take_counts()), (Some(6), vec![6]));
        fixture.announcer.mark_stale(&id("room"));
        assert_eq!(fixture.snapshot(), None, "an update with the occupants follows");
    }

    #[tokio::test]
    async fn a_new_stream_waits_for_the_announcement_of_its_own_person() {
        let fixture = Fixture::at(5);
        let room = id("room");
        fixture.announcer.wait_for_version(&room, 5).await;
        let mut wait = std::pin::pin!(fixture.announcer.wait_for_version(&room, 7));
        for version in [6, 7] {
            assert!(futures_util::poll!(&mut wait).is_pending(), "{version} was not announced");
            fixture.change(version, Some(version - 1));
        }
        wait.await;
        let mut wait = std::pin::pin!(fixture.announcer.wait_for_version(&room, 9));
        assert!(futures_util::poll!(&mut wait).is_pending());
        fixture.announcer.mark_stale(&room);
        wait.await;
    }

    #[test]
    fn changes_of_a_large_room_count_before_they_are_announced() {
        let (fixture, room) = (Fixture::at(300), id("room"));
        let outcome = |version, count| ReportOutcome { next_report_within: None, version, count };
        fixture.announcer.apply_outcome(&room, outcome(Some(299), 310));
        assert_eq!(fixture.snapshot(), Some(300), "the outcome has another version than the last update");
        fixture.announcer.apply_outcome(&room, outcome(Some(300), 301));
        assert_eq!((fixture.snapshot(), fixture.take_counts()), (Some(301), vec![]));
    }

    #[test]
    fn online_users_are_sorted_and_keep_the_type_of_their_ids() {
        let fixture = Fixture::new();
        let occupant = |user: &str| Occupant { user: id(user), last_seen: 0 };
        fixture.announcer.mark_stale(&id("room"));
        assert!(fixture.begin_refresh());
        let online = vec![occupant("10"), occupant("b"), occupant("9"), occupant("007")];
        let occupants = Occupants { version: 1, at: 0, count: 4, online, has_more: false };
        fixture.announcer.finish_refresh(&id("room"), occupants);
        let update = fixture.sink.0.lock().unwrap().pop();
        let expected = r#"{"onlineUsers":[9,"b",10,"007"],"joined":null,"left":null,"count":4}"#;
        assert_eq!(update.as_deref(), Some(expected));
    }
}
