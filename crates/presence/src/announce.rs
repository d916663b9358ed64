//! Announcing: what the store says of a room, passed on to this hub's streams as `presence.update`.
//!
//! Every change is passed on once and in order. When some may have been missed, changes wait until the room was asked
//! for as it is ([`Announcer::settle`]): that is passed on as one update, and then what came after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, Millis};
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
                return self.here.look_at(room);
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
            self.here.look_at(room);
        }
    }

    pub(crate) fn forget(&self, room: &Id) {
        self.views().remove(room);
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
            self.here.look_at(room);
        }
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
