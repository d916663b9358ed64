//! Announcing: what the store says of a room, passed on to this hub's streams as `presence.update`.
//!
//! Every change is passed on once and in order. When some may have been missed, changes wait until the room was asked
//! for as it is ([`Announcer::settle`]): that is passed on as one update, and then what came after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, Millis, shrink};
use bongsu_live::SubjectName;
use bongsu_live::log::{Passing, Sink};
use serde::Serialize;

use crate::here::Here;
use crate::in_order;
use crate::store::{Change, Ears, Who};

/// So many changes wait for a room that is being asked for. Past it, it is asked for once more.
const MOST_HELD: usize = 256;

type Views = HashMap<Id, View, foldhash::fast::RandomState>;

pub(crate) struct Announcer {
    sink: Arc<dyn Sink>,
    here: Arc<Here>,
    update: EventType,
    /// Held while something is passed on, so that two never overtake each other.
    views: Mutex<Views>,
}

/// What this hub's streams have been told of a room. Nothing yet: then the next change is the first.
enum View {
    /// Everything up to this version.
    Told(u64),
    /// It has to be asked for; what was heard since that began is held.
    Doubted { held: Vec<Change>, asking: bool },
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
        Self { sink, here, update, views: Mutex::default() }
    }

    fn views(&self) -> MutexGuard<'_, Views> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have been missed: the room is asked for with the next look at it. What was held is part of it then.
    pub(crate) fn doubt_it(&self, room: &Id) {
        self.views().insert(room.clone(), View::doubted());
    }

    /// Whether the room has to be asked for now, to be settled with the answer.
    pub(crate) fn begin_asking(&self, room: &Id) -> bool {
        match self.views().get_mut(room) {
            Some(View::Doubted { asking, .. }) => {
                *asking = true;
                true
            }
            _ => false,
        }
    }

    /// The room as it was when it was asked for.
    pub(crate) fn settle(&self, room: &Id, who: Who) {
        let mut views = self.views();
        let held = match views.remove(room) {
            Some(View::Doubted { held, asking: true }) => held,
            // Something was missed again since it was asked for.
            Some(view @ View::Doubted { .. }) => {
                views.insert(room.clone(), view);
                drop(views);
                return self.here.look_within(room, Duration::ZERO);
            }
            // Nobody is here any more.
            _ => return,
        };
        views.insert(room.clone(), View::Told(who.version));
        let online = who.online.map(|online| online.into_iter().map(|online| online.user).collect());
        self.pass(room, who.at, &Update::new(None, None, who.count, online));
        let mut missing = false;
        for change in held {
            missing |= !self.take(&mut views, room, change);
        }
        if missing {
            drop(views);
            self.here.look_within(room, Duration::ZERO);
        }
    }

    pub(crate) fn forget(&self, room: &Id) {
        let mut views = self.views();
        views.remove(room);
        shrink(&mut views);
    }

    /// Passes a change on when it follows what was told. False when something between is missing.
    fn take(&self, views: &mut Views, room: &Id, change: Change) -> bool {
        match views.get_mut(room) {
            None => {}
            Some(View::Told(version)) => {
                if change.version <= *version {
                    // It was part of the room when that was asked for.
                    return true;
                }
                if change.previous.is_some_and(|previous| previous != *version) {
                    views.insert(room.clone(), View::doubted());
                    return false;
                }
            }
            // It is part of the room by the time that is asked for.
            Some(View::Doubted { asking: false, .. }) => return true,
            Some(View::Doubted { held, .. }) if held.len() < MOST_HELD => {
                held.push(change);
                return true;
            }
            Some(too_many) => {
                *too_many = View::doubted();
                return false;
            }
        }
        views.insert(room.clone(), View::Told(change.version));
        let Change { at, joined, left, count, online, .. } = change;
        self.pass(room, at, &Update::new(joined, left, count, online));
        true
    }

    fn pass(&self, room: &Id, at: Millis, update: &Update) {
        let data = serde_json::to_string(update).ok().and_then(|text| Object::stored(&text));
        if let Some(data) = data {
            let passing = Passing { event_type: self.update.clone(), data, at };
            self.sink.pass(&SubjectName::new("room", room), &passing);
        }
    }
}

impl Ears for Announcer {
    fn change(&self, room: &Id, change: Change) {
        // Asked for before the views are locked: a stream that ends while it is being told locks who is here.
        if self.here.has(room) && !self.take(&mut self.views(), room, change) {
            self.here.look_within(room, Duration::ZERO);
        }
    }

    fn soon(&self, room: &Id, within: Duration) {
        self.here.look_within(room, within);
    }

    fn doubt(&self, room: &Id) {
        if self.here.has(room) {
            self.doubt_it(room);
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
    fn new(joined: Option<Id>, left: Option<Id>, count: usize, mut online: Option<Vec<Id>>) -> Self {
        if let Some(online) = &mut online {
            online.sort_by(in_order);
        }
        Self { online_users: online, joined, left, count }
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
            here.enter(&id("room"), &id("somebody"));
            Self { told: told.clone(), announcer: Announcer::new(told, here) }
        }

        /// A change that leaves as many people as its version says.
        fn change(&self, version: u64, previous: Option<u64>) {
            let (count, joined) = (usize::try_from(version).unwrap(), Some(id("x")));
            let change = Change { version, previous, at: 0, joined, left: None, count, online: None };
            self.announcer.change(&id("room"), change);
        }

        fn settle(&self, version: u64) {
            let count = usize::try_from(version).unwrap();
            self.announcer.settle(&id("room"), Who { version, at: 0, count, online: None });
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
        let stage = Stage::new();
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
        let stage = Stage::new();
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
        let stage = Stage::new();
        stage.change(100, Some(99));
        stage.announcer.doubt(&id("room"));
        assert!(stage.asks());
        stage.settle(50);
        stage.change(51, Some(50));
        assert_eq!(stage.told(), [100, -50, 51]);
    }

    #[test]
    fn lists_are_in_order_and_ids_in_their_form() {
        let stage = Stage::new();
        let online = |user: &str| Online { user: id(user), last_seen: 0 };
        stage.announcer.doubt(&id("room"));
        assert!(stage.asks());
        let people = vec![online("10"), online("b"), online("9"), online("007")];
        stage.announcer.settle(&id("room"), Who { version: 1, at: 0, count: 4, online: Some(people) });
        let told = stage.told.0.lock().unwrap().pop();
        let expected = r#"{"onlineUsers":[9,"b",10,"007"],"joined":null,"left":null,"count":4}"#;
        assert_eq!(told.as_deref(), Some(expected));
    }
}
