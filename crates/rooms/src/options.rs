//! The settings of rooms.

use std::collections::{HashMap, HashSet};

use bongsu_kernel::settings::{Kind, Scope, SettingError, Values};
use bongsu_kernel::{EventType, Id};

bongsu_kernel::settings! { pub SETTINGS of "rooms":
    ROOMS_MODE = "open", scope(Scope::WholeFleet), kind(Kind::OneOf(&["open", "registered"])):
        "open: any signed-in person may read any room. registered: only registered members of a registered room may read it.";
    STREAM_MAXLEN = "10000", integer(1, 10_000_000):
        "Number of events that a room's log keeps; it may hold a few more for a while.";
    STREAM_MAXLEN_PER_ROOM = "", kind(Kind::List):
        "Rooms that keep another number of events: lobby=500,42=100000.";
    EVENT_TYPES = "", kind(Kind::List):
        "The event types that may be published. Unset: all valid types.";
}

/// Who may read a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Open,
    Registered,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    keep: u32,
    keep_per_room: HashMap<Id, u32>,
    /// None allows every event type.
    event_types: Option<HashSet<EventType>>,
}

impl Options {
    pub fn from_settings(values: &Values) -> Result<Self, SettingError> {
        let room = |pair: &String| {
            let (room, keep) = pair.split_once('=')?;
            Some((Id::new(room).ok()?, keep.parse().ok().filter(|keep| (1..=10_000_000).contains(keep))?))
        };
        let allowed = "room=number pairs with numbers from 1 to 10000000";
        let keep_per_room = values.list(&STREAM_MAXLEN_PER_ROOM);
        let keep_per_room = keep_per_room
            .iter()
            .map(|pair| {
                room(pair).ok_or_else(|| SettingError::invalid_value(&STREAM_MAXLEN_PER_ROOM, pair, allowed))
            })
            .collect::<Result<_, _>>()?;
        let allowed =
            "event types such as comment.created, without the reserved prefixes system. and presence.";
        let event_types = values.list(&EVENT_TYPES);
        let event_types = event_types
            .iter()
            .map(|name| EventType::new(name).ok().filter(|kind| !kind.is_reserved()).ok_or(name))
            .collect::<Result<HashSet<_>, _>>()
            .map_err(|name| SettingError::invalid_value(&EVENT_TYPES, name, allowed))?;
        Ok(Self {
            mode: if values.text(&ROOMS_MODE) == "registered" { Mode::Registered } else { Mode::Open },
            keep: u32::try_from(values.integer(&STREAM_MAXLEN)).unwrap_or(u32::MAX),
            keep_per_room,
            event_types: Some(event_types).filter(|types| !types.is_empty()),
        })
    }

    /// Number of events that the log of a room keeps.
    pub(crate) fn keep(&self, room: &Id) -> u32 {
        self.keep_per_room.get(room).copied().unwrap_or(self.keep)
    }

    pub(crate) fn allows(&self, event_type: &EventType) -> bool {
        !event_type.is_reserved() && self.event_types.as_ref().is_none_or(|types| types.contains(event_type))
    }
}
