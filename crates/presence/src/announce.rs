//! Announcing: what the store says of a room, passed on to this hub's streams as `presence.update`.
//!
//! Every change is passed on once and in order. When some may have been missed, changes wait until the room was asked
//! for as it is ([`Announcer::settle`]): that is passed on as one update, and then what came after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::json::Object;
use bongsu_kernel::{Clock, EventType, Id, Millis, shrink};
use bongsu_live::SubjectName;
use bongsu_live::log::{Passing, Sink};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::here::Here;
use crate::in_order;
use crate::store::{Change, Ears, MOST_LISTED, Told, Who};

/// So many changes wait for a room that is being asked for. Past it, it is asked for once more.
const MOST_HELD: usize = 256;

type Views = HashMap<Id, View, foldhash::fast::RandomState>;

pub(crate) struct Announcer {
    sink: Arc<dyn Sink>,
    here: Arc<Here>,
    clock: Clock,
    update: EventType,
    /// Held while something is passed on, so that two never overtake each other.
    views: Mutex<Views>,
}

/// What this hub's streams have been told of a room. No entry: nothing yet, and the room is asked for when the store is
/// told of the first stream.
enum View {
    Told {
        state: State,
        /// New streams that wait for a version, so that their snapshot includes themselves.
        waiting: Vec<(u64, oneshot::Sender<()>)>,
    },
    /// It has to be asked for; what was heard since that began is held.
    Doubted { held: Vec<Change>, asking: bool },
}

/// A room as the last update left it.
struct State {
    version: u64,
    count: usize,
    /// None in a large room.
    online: Option<Vec<Id>>,
}

impl View {
    fn doubted() -> Self {
        Self::Doubted { held: Vec::new(), asking: false }
    }
}

impl Announcer {
    pub(crate) fn new(sink: Arc<dyn Sink>, here: Arc<Here>) -> Self {
        #[expect(clippy::expect_used, reason = "at start-up, of a constant")]
        let update = EventType::new("presence.update").expect("an event type");
        Self { sink, here, clock: Clock::system(), update, views: Mutex::default() }
    }

    fn views(&self) -> MutexGuard<'_, Views> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have been missed: the room is asked for, at once. What was held is part of it then.
    pub(crate) fn ask_again(&self, room: &Id) {
        self.doubt_in(&mut self.views(), room);
    }

    fn doubt_in(&self, views: &mut Views, room: &Id) {
        views.insert(room.clone(), View::doubted());
        self.here.look_within(room, Duration::ZERO);
    }

    /// Whether the room has to be asked for now, to be settled with the answer.
    pub(crate) fn begin_asking(&self, room: &Id) -> bool {
        match self.views().entry(room.clone()).or_insert_with(View::doubted) {
            View::Doubted { asking, .. } => {
                *asking = true;
                true
            }
            View::Told { .. } => false,
        }
    }

    /// The room as it was when it was asked for.
    pub(crate) fn settle(&self, room: &Id, who: Who) {
        let mut views = self.views();
        let held = match views.remove(room) {
            Some(View::Doubted { held, asking: true }) => held,
            // Something was missed again since it was asked for.
            Some(View::Doubted { .. }) => return self.doubt_in(&mut views, room),
            // Nobody is here any more.
            _ => return,
        };
        let Who { version, at, count, online, .. } = who;
        let listed = online.into_iter().map(|online| online.user);
        let online = (count <= MOST_LISTED).then(|| listed.collect());
        self.pass(&mut views, room, at, (None, None), State { version, count, online });
        for change in held {
            self.take(&mut views, room, change);
        }
    }

    /// The store was told of this hub's people. Changes of a large room are announced later, but count already.
    pub(crate) fn told(&self, room: &Id, told: Told) {
        if let Some(View::Told { state, .. }) = self.views().get_mut(room)
            && told.version.is_none_or(|version| version == state.version)
            && told.count > MOST_LISTED
        {
            state.count = told.count;
            state.online = None;
        }
    }

    /// Resolves when the streams were told of this version, or it is in doubt what they were told.
    pub(crate) async fn reaches(&self, room: &Id, version: u64) {
        let (reached, waits) = oneshot::channel();
        match self.views().get_mut(room) {
            Some(View::Told { state, waiting }) if state.version < version => {
                waiting.retain(|(_, reached)| !reached.is_closed());
                waiting.push((version, reached));
            }
            _ => return,
        }
        let _ = waits.await;
    }

    /// Calls `deliver` with what the streams of a room have been told, as one update. None while that is in doubt: then
    /// they are told the room as it is next. Nothing is passed on meanwhile.
    pub(crate) fn snapshot(&self, room: &Id, deliver: &mut dyn FnMut(Option<&Passing>)) {
        let views = self.views();
        let snapshot = match views.get(room) {
            Some(View::Told { state, .. }) => {
                self.passing(self.clock.now(), &Update::new((None, None), state))
            }
            _ => None,
        };
        deliver(snapshot.as_ref());
    }

    pub(crate) fn forget(&self, room: &Id) {
        let mut views = self.views();
        views.remove(room);
        shrink(&mut views);
    }

    /// Passes a change on when it follows what was told. When something between is missing, the room is asked for.
    fn take(&self, views: &mut Views, room: &Id, change: Change) {
        match views.get_mut(room) {
            // It was part of the room when that was asked for.
            Some(View::Told { state, .. }) if change.version <= state.version => return,
            Some(View::Told { state, .. }) => {
                if change.previous.is_some_and(|previous| previous != state.version) {
                    return self.doubt_in(views, room);
                }
            }
            // It is part of the room by the time that is asked for.
            None | Some(View::Doubted { asking: false, .. }) => return,
            Some(View::Doubted { held, .. }) if held.len() < MOST_HELD => return held.push(change),
            Some(View::Doubted { .. }) => return self.doubt_in(views, room),
        }
        let Change { version, at, joined, left, count, online, .. } = change;
        self.pass(views, room, at, (joined, left), State { version, count, online });
    }

    /// Passes an update on, and remembers what it said.
    fn pass(&self, views: &mut Views, room: &Id, at: Millis, who: (Option<Id>, Option<Id>), state: State) {
        if let Some(passing) = self.passing(at, &Update::new(who, &state)) {
            self.sink.pass(&SubjectName::new("room", room), &passing);
        }
        let mut waiting = match views.remove(room) {
            Some(View::Told { waiting, .. }) => waiting,
            _ => Vec::new(),
        };
        // A receiver resolves when its sender is dropped.
        waiting.retain(|(version, _)| *version > state.version);
        views.insert(room.clone(), View::Told { state, waiting });
    }

    fn passing(&self, at: Millis, update: &Update) -> Option<Passing> {
        let data = serde_json::to_string(update).ok().and_then(|text| Object::stored(&text))?;
        Some(Passing { event_type: self.update.clone(), data, at })
    }
}

impl Ears for Announcer {
    fn change(&self, room: &Id, change: Change) {
        // Asked for before the views are locked: a stream that ends while it is being told locks who is here.
        if self.here.has(room) {
            self.take(&mut self.views(), room, change);
        }
    }

    fn soon(&self, room: &Id, within: Duration) {
        self.here.look_within(room, within);
    }

    fn doubt(&self, room: &Id) {
        let mut views = self.views();
        // Asked while nobody can be forgotten: a view of a room without people would stay.
        if self.here.has(room) {
            views.insert(room.clone(), View::doubted());
            // The store may have lost what it knew.
            self.here.renew_now(room);
        }
    }
}

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
    fn new((joined, left): (Option<Id>, Option<Id>), state: &State) -> Self {
        let mut online_users = state.online.clone();
        if let Some(online) = &mut online_users {
            online.sort_by(in_order);
        }
        Self { online_users, joined, left, count: state.count }
    }
}

#[cfg(test)]
mod tests {
    use bongsu_live::log::Delivery;

    use super::*;
    use crate::store::Online;

    /// Remembers who was told to be there, and who came.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Sink for Told {
        fn deliver(&self, _: Delivery<'_>) {}

        fn pass(&self, _: &SubjectName, passing: &Passing) {
            self.0.lock().unwrap().push(passing.data.as_str().to_owned());
        }

        fn doubt(&self, _: &SubjectName) {}
    }

    fn id(text: &str) -> Id {
        Id::new(text).unwrap()
    }

    struct Stage {
        told: Arc<Told>,
        announcer: Announcer,
    }

    impl Stage {
        fn new() -> Self {
            let (told, here) = (Arc::new(Told::default()), Arc::new(Here::new(Duration::MAX)));
            here.enter(&id("room"), Some(&id("somebody")));
            Self { told: told.clone(), announcer: Announcer::new(told, here) }
        }

        /// One whose streams have been told everything up to a version.
        fn at(version: u64) -> Self {
            let stage = Self::new();
            assert!(stage.asks(), "the first stream has the room asked for");
            stage.settle(version);
            stage.told();
            stage
        }

        /// The count of the snapshot that a new stream would get.
        fn snapshot(&self) -> Option<u64> {
            let mut count = None;
            self.announcer.snapshot(&id("room"), &mut |passing| {
                let update =
                    passing.map(|passing| serde_json::from_str::<serde_json::Value>(passing.data.as_str()));
                count = update.map(|update| update.unwrap()["count"].as_u64().unwrap());
            });
            count
        }

        /// A change that leaves as many people as its version says.
        fn change(&self, version: u64, previous: Option<u64>) {
            let (count, joined) = (usize::try_from(version).unwrap(), Some(id("x")));
            let change = Change { version, previous, at: 0, joined, left: None, count, online: None };
            self.announcer.change(&id("room"), change);
        }

        fn settle(&self, version: u64) {
            let count = usize::try_from(version).unwrap();
            let who = Who { version, at: 0, count, online: Vec::new(), has_more: false };
            self.announcer.settle(&id("room"), who);
        }

        /// Counts that streams were told since this was asked last; negative when nobody was named.
        fn told(&self) -> Vec<i64> {
            let told = std::mem::take(&mut *self.told.0.lock().unwrap());
            let count = |text: &String| {
                let count: i64 = text.rsplit_once(':').unwrap().1.trim_end_matches('}').parse().unwrap();
                if text.contains(r#""joined":null"#) { -count } else { count }
            };
            told.iter().map(count).collect()
        }

        fn asks(&self) -> bool {
            self.announcer.begin_asking(&id("room"))
        }
    }

    #[test]
    fn changes_that_follow_on_are_passed_on_once() {
        let stage = Stage::at(4);
        stage.change(5, Some(4));
        stage.change(6, Some(5));
        stage.change(6, Some(5));
        stage.change(5, Some(4));
        stage.change(9, None);
        assert_eq!(stage.told(), [5, 6, 9]);
        assert!(!stage.asks());
        let change =
            Change { version: 1, previous: None, at: 0, joined: None, left: None, count: 0, online: None };
        stage.announcer.change(&id("another"), change);
        assert!(stage.told().is_empty(), "nobody is there");
    }

    #[test]
    fn after_a_gap_the_room_is_told_as_it_is_and_then_what_came_after_it() {
        let stage = Stage::at(4);
        stage.change(5, Some(4));
        stage.change(7, Some(6));
        stage.change(8, Some(7));
        assert!(stage.asks());
        stage.change(9, Some(8));
        stage.change(10, Some(9));
        assert_eq!(stage.told(), [5]);
        // It was asked before the last one.
        stage.settle(9);
        stage.change(11, Some(10));
        assert_eq!(stage.told(), [-9, 10, 11]);
        assert!(!stage.asks());
    }

    #[test]
    fn a_second_doubt_while_it_is_asked_makes_it_ask_again() {
        let stage = Stage::new();
        stage.announcer.doubt(&id("room"));
        assert!(stage.asks());
        stage.announcer.doubt(&id("room"));
        stage.settle(3);
        assert!(stage.told().is_empty());
        assert!(stage.asks());
        stage.settle(4);
        assert_eq!(stage.told(), [-4]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let stage = Stage::new();
        stage.announcer.doubt(&id("room"));
        assert!(stage.asks());
        for version in 1..=MOST_HELD as u64 + 50 {
            stage.change(version, Some(version - 1));
        }
        stage.settle(0);
        assert!(stage.told().is_empty(), "what was asked for is too old by now");
        assert!(stage.asks());
        stage.settle(400);
        assert_eq!(stage.told(), [-400]);
    }

    #[test]
    fn an_engine_that_lost_its_past_is_believed() {
        let stage = Stage::at(99);
        stage.change(100, Some(99));
        stage.announcer.doubt(&id("room"));
        assert!(stage.asks());
        stage.settle(50);
        stage.change(51, Some(50));
        assert_eq!(stage.told(), [100, -50, 51]);
    }

    #[test]
    fn a_new_stream_gets_the_room_as_the_others_have_been_told_it() {
        let stage = Stage::new();
        stage.change(5, Some(4));
        assert_eq!((stage.snapshot(), stage.told()), (None, vec![]), "nobody was told anything yet");
        assert!(stage.asks());
        stage.settle(5);
        assert_eq!((stage.snapshot(), stage.told()), (Some(5), vec![-5]));
        stage.change(6, Some(5));
        assert_eq!((stage.snapshot(), stage.told()), (Some(6), vec![6]));
        stage.announcer.doubt(&id("room"));
        assert_eq!(stage.snapshot(), None, "the room as it is comes next");
    }

    #[tokio::test]
    async fn a_new_stream_waits_until_its_own_coming_was_heard() {
        let stage = Stage::at(5);
        let room = id("room");
        stage.announcer.reaches(&room, 5).await;
        let mut waits = std::pin::pin!(stage.announcer.reaches(&room, 7));
        for version in [6, 7] {
            assert!(futures_util::poll!(&mut waits).is_pending(), "{version} was not heard");
            stage.change(version, Some(version - 1));
        }
        waits.await;
        let mut waits = std::pin::pin!(stage.announcer.reaches(&room, 9));
        assert!(futures_util::poll!(&mut waits).is_pending());
        stage.announcer.doubt(&room);
        waits.await;
    }

    #[test]
    fn changes_of_a_large_room_count_before_they_are_announced() {
        let (stage, room) = (Stage::at(300), id("room"));
        let told = |version, count| crate::store::Told { look_within: None, version, count };
        stage.announcer.told(&room, told(Some(299), 310));
        assert_eq!(stage.snapshot(), Some(300), "there are announcements on their way");
        stage.announcer.told(&room, told(Some(300), 301));
        assert_eq!((stage.snapshot(), stage.told()), (Some(301), vec![]));
    }

    #[test]
    fn lists_are_in_order_and_ids_in_their_form() {
        let stage = Stage::new();
        let online = |user: &str| Online { user: id(user), last_seen: 0 };
        stage.announcer.doubt(&id("room"));
        assert!(stage.asks());
        let people = vec![online("10"), online("b"), online("9"), online("007")];
        let who = Who { version: 1, at: 0, count: 4, online: people, has_more: false };
        stage.announcer.settle(&id("room"), who);
        let told = stage.told.0.lock().unwrap().pop();
        let expected = r#"{"onlineUsers":[9,"b",10,"007"],"joined":null,"left":null,"count":4}"#;
        assert_eq!(told.as_deref(), Some(expected));
    }
}
