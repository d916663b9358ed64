//! Parses the messages of the presence script from the bus.
//!
//! An announcement is one line: `1 version previous ms count change list`. The first field is the version of the
//! format. The change is `+id`, `-id`, or `=` for several changes; the list is `id,id`, or `*` in a large room. No id
//! contains a comma, a space, `+`, `=` or `*`. The other message is `1 soon ms`: an announcement is due after that
//! time.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_redis::{Channel, Redis};

use crate::store::{PresenceChange, PresenceListener};

/// The name of a room's channel beside its keys. Messages on it are in the order of the room's changes.
pub(super) const CHANNEL_NAME: &str = "bus";

pub(super) struct BusListener {
    pub(super) redis: Redis,
    pub(super) listener: Arc<dyn PresenceListener>,
}

impl BusListener {
    fn room(&self, channel: &Channel) -> Option<Id> {
        let people = self.redis.base_of_sibling(channel.name(), CHANNEL_NAME)?;
        Id::new(people.strip_prefix("presence:")?).ok()
    }
}

impl bongsu_redis::Listener for BusListener {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        let Some(room) = self.room(channel) else { return };
        match std::str::from_utf8(payload).ok().and_then(parse) {
            Some(Message::Change(change)) => self.listener.deliver(&room, change),
            Some(Message::ReportDue(within)) => self.listener.request_report(&room, within),
            None => {
                // The message may come from a later version. The occupants are read from the store instead.
                metrics::counter!("bus_malformed_total").increment(1);
                tracing::warn!(%room, "failed to parse a presence announcement; reading the occupants instead");
                self.listener.mark_stale(&room);
            }
        }
    }

    fn mark_stale(&self, channel: &Channel) {
        if let Some(room) = self.room(channel) {
            self.listener.mark_stale(&room);
        }
    }
}

enum Message {
    Change(PresenceChange),
    /// A report is due within this time.
    ReportDue(Duration),
}

fn parse(message: &str) -> Option<Message> {
    let mut fields = message.split(' ');
    fields.next().filter(|version| *version == "1")?;
    let version = match fields.next()? {
        "soon" => return Some(Message::ReportDue(Duration::from_millis(fields.next()?.parse().ok()?))),
        version => version.parse().ok()?,
    };
    let previous = fields.next()?.parse().ok();
    let at = fields.next()?.parse().ok()?;
    let count = fields.next()?.parse().ok()?;
    let (mut joined, mut left) = (None, None);
    match fields.next()?.split_at_checked(1)? {
        ("+", person) => joined = Some(Id::new(person).ok()?),
        ("-", person) => left = Some(Id::new(person).ok()?),
        ("=", "") => {}
        _ => return None,
    }
    let online = match fields.next()? {
        "*" => None,
        list => {
            let people = list.split(',').filter(|person| !person.is_empty());
            Some(people.map(|person| Id::new(person).ok()).collect::<Option<_>>()?)
        }
    };
    Some(Message::Change(PresenceChange { version, previous, at, joined, left, count, online }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        Id::new(text).unwrap()
    }

    fn parse_change(message: &str) -> PresenceChange {
        match parse(message) {
            Some(Message::Change(change)) => change,
            _ => panic!("{message:?} is not a change"),
        }
    }

    /// Instances of this version send these messages, so later versions have to parse them.
    #[test]
    fn messages_of_version_1_are_parsed() {
        let joined = parse_change("1 1708070400001 1708070400000 1708070400001 2 +- 7,-");
        assert_eq!((joined.version, joined.previous), (1_708_070_400_001, Some(1_708_070_400_000)));
        assert_eq!((joined.joined, joined.left, joined.count), (Some(id("-")), None, 2));
        assert_eq!(joined.online, Some(vec![id("7"), id("-")]));
        let left = parse_change("1 5  6 0 -a@b:c ");
        assert_eq!((left.previous, left.at, left.left), (None, 6, Some(id("a@b:c"))));
        assert_eq!((left.online, left.count), (Some(Vec::new()), 0));
        let several = parse_change("1 5 4 6 201 = *");
        assert_eq!((several.joined, several.left, several.online), (None, None, None));
        assert!(matches!(parse("1 soon 1000"), Some(Message::ReportDue(within)) if within.as_secs() == 1));
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for message in [
            "",
            "2 5 4 6 1 +a a",
            "1 5 4 6 1 a a",
            "1 5 4 6 1 + a",
            "1 5 4 6 1 +a",
            "1 soon",
            "1 x 4 6 1 +a a",
        ] {
            assert!(parse(message).is_none(), "{message:?}");
        }
    }
}
