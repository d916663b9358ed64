//! The settings of the outbox: its streams, the retention of its rows, and the relay of rows to rooms.
//!
//! `OUTBOX_RETENTION` is written with its unit (`45m`, `12h`, `7d`), as the contract requires.

use std::time::Duration;

use bongsu_kernel::settings::{Kind, Setting, SettingError, Values};
use bongsu_kernel::{EventType, Id};
use bongsu_live::StreamConfig;

use crate::names;

bongsu_kernel::settings! { "outbox":
    /// Turns the outbox on or off.
    OUTBOX = "on", kind(Kind::OneOf(&["on", "off"])):
        "off: the hub creates and changes no outbox table, and refuses streams of events with 503.";
    OUTBOX_PING_SECS = "30", integer(1, 3_600):
        "Seconds without a message after which the stream of an event sends a comment line that keeps it alive.";
    OUTBOX_RETENTION = "7d":
        "How long outbox rows are kept after they got their position (45m, 12h, 7d; less than 30 minutes counts as 30). Rows that OUTBOX_WAITS_FOR names are kept until they are DONE.";
    OUTBOX_WAITS_FOR = "":
        "Event types, separated by commas, whose rows are kept until a worker has marked them DONE. *: all types; none or empty: only the types of OUTBOX_RELAY, which are always included. Rows of other types are removed by age alone.";
    OUTBOX_RELAY = "":
        "Which rows are also published to rooms, separated by commas: proposal.approved.v1=room (the room whose id is the row's target_event_id), comment.created.v1=room:lobby (the room lobby), *=room (all other types).";
}
pub const SETTINGS: &[&Setting] = &[
    &OUTBOX,
    &names::OUTBOX_TABLE,
    &names::OUTBOX_MEMBERSHIP_TABLE,
    &names::OUTBOX_MEMBERSHIP_COLUMNS,
    &names::OUTBOX_MEMBERSHIP_QUERY,
    &OUTBOX_PING_SECS,
    &OUTBOX_RETENTION,
    &OUTBOX_WAITS_FOR,
    &OUTBOX_RELAY,
];

/// Whether `OUTBOX` is on.
pub fn is_on(values: &Values) -> bool {
    values.text(&OUTBOX) == "on"
}

/// The delay before a client reconnects, sent as the `retry` field.
const CLIENT_RETRY_MS: u64 = 5_000;

#[derive(Clone, Debug)]
pub struct Options {
    pub keepalive: Duration,
    pub retention: Duration,
    pub retain_until_done: RetainUntilDone,
    pub relay: Relay,
    /// `OUTBOX_MEMBERSHIP_QUERY` is used instead of a membership table.
    pub has_membership_query: bool,
    /// The configuration of room streams, which outbox streams change in a few fields.
    pub room_streams: StreamConfig,
}

/// The rooms that rows are published to, by event type. None: all types without an entry of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relay(Vec<(Option<EventType>, RelayTarget)>);

/// The room that a row is published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayTarget {
    /// The room whose id is the target of the row.
    OwnRoom,
    Room(Id),
}

impl Relay {
    /// The target for an event type: the type's own entry, or else the entry for all other types.
    pub fn target(&self, event_type: &str) -> Option<&RelayTarget> {
        let own = self.0.iter().find(|(key, _)| key.as_ref().is_some_and(|key| key.as_str() == event_type));
        own.or_else(|| self.0.iter().find(|(key, _)| key.is_none())).map(|(_, target)| target)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn parse(entries: &[String]) -> Option<Self> {
        let entry = |entry: &String| {
            let (key, target) = entry.split_once('=')?;
            let key = match key.trim() {
                "*" => None,
                key => Some(EventType::new(key).ok().filter(|key| !key.is_reserved())?),
            };
            let target = match target.trim() {
                "room" => RelayTarget::OwnRoom,
                target => RelayTarget::Room(Id::new(target.strip_prefix("room:")?).ok()?),
            };
            Some((key, target))
        };
        let entries: Vec<(Option<EventType>, RelayTarget)> =
            entries.iter().map(entry).collect::<Option<_>>()?;
        // Refused, because two entries for one type contradict each other.
        let has_duplicate = entries
            .iter()
            .enumerate()
            .any(|(at, (key, _))| entries[..at].iter().any(|(earlier, _)| earlier == key));
        (!has_duplicate).then_some(Self(entries))
    }
}

/// The rows that a worker processes: retention keeps them until they are DONE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetainUntilDone {
    /// Rows of all types.
    All,
    /// Rows of these types.
    Types(Vec<String>),
}

impl RetainUntilDone {
    /// None when an entry is invalid: ignoring the entry could remove rows that a worker still needs.
    fn parse(text: &str, entries: &[String]) -> Option<Self> {
        match text.trim() {
            "*" => Some(Self::All),
            "" | "none" => Some(Self::Types(Vec::new())),
            _ if entries.is_empty() || entries.iter().any(|entry| EventType::new(entry).is_err()) => None,
            _ => Some(Self::Types(entries.to_vec())),
        }
    }

    /// Adds the types that the relay publishes, because the hub's own worker processes those.
    fn with_relay(self, relay: &Relay) -> Self {
        let Self::Types(mut types) = self else { return self };
        for (key, _) in &relay.0 {
            let Some(key) = key else { return Self::All };
            types.push(key.as_str().to_owned());
        }
        Self::Types(types)
    }
}

impl Options {
    pub fn from_settings(values: &Values, room_streams: StreamConfig) -> Result<Self, SettingError> {
        let allowed = "a whole number with m, h or d, such as 7d";
        let retention = parse_duration(values.text(&OUTBOX_RETENTION));
        let retention = retention.ok_or_else(|| values.not_allowed(&OUTBOX_RETENTION, allowed))?;
        let allowed = "*, none, event types separated by commas, or empty";
        let retain_until_done =
            RetainUntilDone::parse(values.text(&OUTBOX_WAITS_FOR), &values.list(&OUTBOX_WAITS_FOR))
                .ok_or_else(|| values.not_allowed(&OUTBOX_WAITS_FOR, allowed))?;
        let allowed = "entries such as comment.created.v1=room, a.b=room:lobby or *=room";
        let relay = Relay::parse(&values.list(&OUTBOX_RELAY))
            .ok_or_else(|| values.not_allowed(&OUTBOX_RELAY, allowed))?;
        let retain_until_done = retain_until_done.with_relay(&relay);
        let (keepalive, has_membership_query) =
            (values.seconds(&OUTBOX_PING_SECS), names::has_membership_query(values));
        Ok(Self { keepalive, retention, retain_until_done, relay, has_membership_query, room_streams })
    }

    pub(crate) fn stream_config(&self) -> StreamConfig {
        StreamConfig {
            keepalive: self.keepalive,
            keepalive_frame: b": ping\n\n",
            retry_ms: (CLIENT_RETRY_MS, CLIENT_RETRY_MS),
            has_initial_position: true,
            ..self.room_streams.clone()
        }
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let minutes = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        _ => return None,
    };
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(minutes * 60).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;

    #[test]
    fn a_type_of_its_own_wins_over_all_others() {
        let parse = |entries: &[&str]| {
            Relay::parse(&entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
        };
        let relay = parse(&["*=room:all", "a.b = room"]).unwrap();
        assert_eq!(relay.target("a.b"), Some(&RelayTarget::OwnRoom));
        assert_eq!(relay.target("a.c"), Some(&RelayTarget::Room(Id::new("all").unwrap())));
        assert_eq!(parse(&["a.b=room"]).unwrap().target("a.c"), None);
        assert_eq!(parse(&["a.b=room", "a.b=room:x"]), None);
        for bad in ["a.b", "a.b=", "A=room", "a.b=room:", "a.b=room:a b", "a.b=queue:x", "system.x=room"] {
            assert_eq!(parse(&[bad]), None, "{bad}");
        }
    }

    #[test]
    fn what_is_waited_for_is_understood_or_refused() {
        let parse = |text: &str| {
            let entries: Vec<String> = text.split(',').map(|entry| entry.trim().to_owned()).collect();
            RetainUntilDone::parse(text, &entries)
        };
        assert_eq!(parse("*"), Some(RetainUntilDone::All));
        assert_eq!(parse("none"), Some(RetainUntilDone::Types(Vec::new())));
        assert_eq!(parse(""), Some(RetainUntilDone::Types(Vec::new())));
        assert_eq!(
            parse("a.b, c.d.v1"),
            Some(RetainUntilDone::Types(vec!["a.b".to_owned(), "c.d.v1".to_owned()]))
        );
        for bad in [",", "a.b c.d", "a.b;c.d", "A B", "none,a.b", "*,a.b"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_the_hub_passes_on_is_waited_for_whatever_else_is() {
        let retained = |waits_for: &str, relay: &str| {
            let given = [("OUTBOX_WAITS_FOR", waits_for), ("OUTBOX_RELAY", relay)];
            let environment = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let settings = [SETTINGS, bongsu_live::SETTINGS].concat();
            let values = load(&settings, &Input { environment, ..Input::default() }).unwrap();
            let room_streams = bongsu_live::Options::from_settings(&values).stream_config();
            Options::from_settings(&values, room_streams).unwrap().retain_until_done
        };
        assert_eq!(
            retained("c.d", "a.b=room"),
            RetainUntilDone::Types(vec!["c.d".to_owned(), "a.b".to_owned()])
        );
        for empty in ["", "none"] {
            assert_eq!(retained(empty, "a.b=room"), RetainUntilDone::Types(vec!["a.b".to_owned()]));
            assert_eq!(retained(empty, "*=room"), RetainUntilDone::All);
            assert_eq!(retained(empty, ""), RetainUntilDone::Types(Vec::new()));
        }
        assert_eq!(retained("c.d", "*=room"), RetainUntilDone::All);
    }

    #[test]
    fn times_are_read_with_their_unit_only() {
        for (text, seconds) in [("45m", Some(2_700)), ("12h", Some(43_200)), ("7d", Some(604_800))] {
            assert_eq!(parse_duration(text), seconds.map(Duration::from_secs));
        }
        for text in ["", "7", "d", "-1d", "1.5h", "7 d", "99999999999999999999d"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }
}
