//! The settings of the outbox: how its streams behave, how long rows are kept and for whom, and where they go on to.
//!
//! Durations are written with their unit here, as the contract has them.

use std::time::Duration;

use bongsu_kernel::settings::{Bad, Kind, Setting, Values};
use bongsu_kernel::{EventType, Id};
use bongsu_live::Manner;

use crate::names;

bongsu_kernel::settings! { "outbox":
    /// Whether there is an outbox.
    OUTBOX = "on", kind(Kind::OneOf(&["on", "off"])):
        "off: no table of the outbox is made or touched, and streams of events answer 503.";
    OUTBOX_PING_SECS = "30", whole(1, 3_600):
        "After so much silence a stream of an event's changes says that it is alive.";
    OUTBOX_RETENTION = "7d":
        "Rows of the outbox are kept so long after streams had them (45m, 12h, 7d; never less than 30 minutes), and longer while work on them is not done.";
    OUTBOX_WAITS_FOR = "":
        "Event types, separated by commas, whose rows are kept until a worker has marked them DONE. *: all; none: no worker does anything about any row. Empty: the types of OUTBOX_RELAY; a row of another type counts as processed once it has its position.";
    OUTBOX_RELAY = "":
        "Which rows are published to rooms as well, separated by commas: proposal.approved.v1=room (the room named like the row's event), comment.created.v1=room:lobby, *=room for all other types.";
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

/// Whether there is to be an outbox.
pub fn is_on(values: &Values) -> bool {
    values.text(&OUTBOX) == "on"
}

/// Clients come back after so long.
const RETRY_MS: u64 = 5_000;

#[derive(Clone, Debug)]
pub struct Options {
    pub ping: Duration,
    pub keeps: Duration,
    pub waited: Waited,
    pub relay: Relay,
    /// A query of the settings says who may follow, and not a table.
    pub has_membership_query: bool,
    /// How streams of rooms behave: these differ in a few words only.
    pub usual: Manner,
}

/// Which rows go on to where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relay(Vec<(Option<EventType>, To)>);

/// Where a row goes on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// The room that is named like the row's event.
    OwnRoom,
    Room(Id),
}

impl Relay {
    /// What was said of this type, or of all that nothing was said of.
    pub fn of(&self, event_type: &str) -> Option<&To> {
        let said = self.0.iter().find(|(of, _)| of.as_ref().is_some_and(|of| of.as_str() == event_type));
        said.or_else(|| self.0.iter().find(|(of, _)| of.is_none())).map(|(_, to)| to)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn parse(entries: &[String]) -> Option<Self> {
        let entry = |entry: &String| {
            let (of, to) = entry.split_once('=')?;
            let of = match of.trim() {
                "*" => None,
                of => Some(EventType::new(of).ok().filter(|of| !of.is_reserved())?),
            };
            let to = match to.trim() {
                "room" => To::OwnRoom,
                to => To::Room(Id::new(to.strip_prefix("room:")?).ok()?),
            };
            Some((of, to))
        };
        let entries: Vec<(Option<EventType>, To)> = entries.iter().map(entry).collect::<Option<_>>()?;
        // Of two words about one type nobody knows which is meant.
        let said_twice = entries
            .iter()
            .enumerate()
            .any(|(at, (of, _))| entries[..at].iter().any(|(known, _)| known == of));
        (!said_twice).then_some(Self(entries))
    }
}

/// Which rows somebody does something about, so that they stay until it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    Every,
    /// Those of these types.
    Of(Vec<String>),
}

impl Waited {
    /// What is not understood would let rows go that somebody waits for.
    fn parse(text: &str, entries: &[String]) -> Option<Self> {
        match text.trim() {
            "*" => Some(Self::Every),
            "" | "none" => Some(Self::Of(Vec::new())),
            _ if entries.is_empty() || entries.iter().any(|entry| EventType::new(entry).is_err()) => None,
            _ => Some(Self::Of(entries.to_vec())),
        }
    }

    /// And those that the hub itself does something about.
    fn and(self, relay: &Relay) -> Self {
        let Self::Of(mut types) = self else { return self };
        for (of, _) in &relay.0 {
            let Some(of) = of else { return Self::Every };
            types.push(of.as_str().to_owned());
        }
        Self::Of(types)
    }
}

impl Options {
    pub fn from_settings(values: &Values, usual: Manner) -> Result<Self, Bad> {
        let keeps = values.text(&OUTBOX_RETENTION);
        let keeps = duration(keeps)
            .ok_or_else(|| Bad::value(&OUTBOX_RETENTION, keeps, "a number with m, h or d, such as 7d"))?;
        let waited = Waited::parse(values.text(&OUTBOX_WAITS_FOR), &values.list(&OUTBOX_WAITS_FOR))
            .ok_or_else(|| {
                let given = values.text(&OUTBOX_WAITS_FOR);
                Bad::value(&OUTBOX_WAITS_FOR, given, "*, none, event types separated by commas, or nothing")
            })?;
        let relay = Relay::parse(&values.list(&OUTBOX_RELAY)).ok_or_else(|| {
            let allowed = "entries such as comment.created.v1=room, a.b=room:lobby or *=room";
            Bad::value(&OUTBOX_RELAY, values.text(&OUTBOX_RELAY), allowed)
        })?;
        let waited = waited.and(&relay);
        let (ping, has_membership_query) =
            (values.seconds(&OUTBOX_PING_SECS), names::has_membership_query(values));
        Ok(Self { ping, keeps, waited, relay, has_membership_query, usual })
    }

    pub(crate) fn manner(&self) -> Manner {
        Manner {
            keepalive: self.ping,
            alive: b": ping\n\n",
            retry_ms: (RETRY_MS, RETRY_MS),
            is_placed: true,
            ..self.usual.clone()
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
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
        assert_eq!(relay.of("a.b"), Some(&To::OwnRoom));
        assert_eq!(relay.of("a.c"), Some(&To::Room(Id::new("all").unwrap())));
        assert_eq!(parse(&["a.b=room"]).unwrap().of("a.c"), None);
        assert_eq!(parse(&["a.b=room", "a.b=room:x"]), None);
        for bad in ["a.b", "a.b=", "A=room", "a.b=room:", "a.b=room:a b", "a.b=queue:x", "system.x=room"] {
            assert_eq!(parse(&[bad]), None, "{bad}");
        }
    }

    #[test]
    fn what_is_waited_for_is_understood_or_refused() {
        let parse = |text: &str| {
            let entries: Vec<String> = text.split(',').map(|entry| entry.trim().to_owned()).collect();
            Waited::parse(text, &entries)
        };
        assert_eq!(parse("*"), Some(Waited::Every));
        assert_eq!(parse("none"), Some(Waited::Of(Vec::new())));
        assert_eq!(parse(""), Some(Waited::Of(Vec::new())));
        assert_eq!(parse("a.b, c.d.v1"), Some(Waited::Of(vec!["a.b".to_owned(), "c.d.v1".to_owned()])));
        for bad in [",", "a.b c.d", "a.b;c.d", "A B", "none,a.b", "*,a.b"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_the_hub_passes_on_is_waited_for_whatever_else_is() {
        let waited = |waits_for: &str, relay: &str| {
            let given = [("OUTBOX_WAITS_FOR", waits_for), ("OUTBOX_RELAY", relay)];
            let environment = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let settings = [SETTINGS, bongsu_live::SETTINGS].concat();
            let values = load(&settings, &Input { environment, ..Input::default() }).unwrap();
            let usual = bongsu_live::Options::from_settings(&values).manner();
            Options::from_settings(&values, usual).unwrap().waited
        };
        assert_eq!(waited("c.d", "a.b=room"), Waited::Of(vec!["c.d".to_owned(), "a.b".to_owned()]));
        for unsaid in ["", "none"] {
            assert_eq!(waited(unsaid, "a.b=room"), Waited::Of(vec!["a.b".to_owned()]));
            assert_eq!(waited(unsaid, "*=room"), Waited::Every);
            assert_eq!(waited(unsaid, ""), Waited::Of(Vec::new()));
        }
        assert_eq!(waited("c.d", "*=room"), Waited::Every);
    }

    #[test]
    fn times_are_read_with_their_unit_only() {
        for (text, seconds) in [("45m", Some(2_700)), ("12h", Some(43_200)), ("7d", Some(604_800))] {
            assert_eq!(duration(text), seconds.map(Duration::from_secs));
        }
        for text in ["", "7", "d", "-1d", "1.5h", "7 d", "99999999999999999999d"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }
}
