//! What the script announces, read from the bus.
//!
//! A message is one line: `1 version previous ms count what list`. What changed is `+id`, `-id` or `=` for several
//! changes at once; the list is `id,id`, or `*` in a large room. No id has any of these signs in it. The other kind is
//! `1 soon ms`: an announcement is due then.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_redis::{Channel, Redis};

use crate::store::{Change, Ears};

/// The channel beside a room's people. What is published on it follows the order of the room's changes.
pub(super) const BUS: &str = "bus";

pub(super) struct Listener {
    pub(super) redis: Redis,
    pub(super) ears: Arc<dyn Ears>,
}

impl Listener {
    fn room(&self, channel: &Channel) -> Option<Id> {
        let people = self.redis.beside_what(channel.name(), BUS)?;
        Id::new(people.strip_prefix("presence:")?).ok()
    }
}

impl bongsu_redis::Listener for Listener {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        let Some(room) = self.room(channel) else { return };
        match std::str::from_utf8(payload).ok().and_then(read) {
            Some(Message::Change(change)) => self.ears.change(&room, change),
            Some(Message::Soon(within)) => self.ears.soon(&room, within),
            None => {
                // Perhaps a later version's: what it is about can be asked for.
                metrics::counter!("bus_malformed_total").increment(1);
                tracing::warn!(%room, "a message about presence was not readable");
                self.ears.doubt(&room);
            }
        }
    }

    fn mark_stale(&self, channel: &Channel) {
        if let Some(room) = self.room(channel) {
            self.ears.doubt(&room);
        }
    }
}

enum Message {
    Change(Change),
    Soon(Duration),
}

fn read(message: &str) -> Option<Message> {
    let mut words = message.split(' ');
    words.next().filter(|version| *version == "1")?;
    let version = match words.next()? {
        "soon" => return Some(Message::Soon(Duration::from_millis(words.next()?.parse().ok()?))),
        version => version.parse().ok()?,
    };
    let previous = words.next()?.parse().ok();
    let at = words.next()?.parse().ok()?;
    let count = words.next()?.parse().ok()?;
    let (mut joined, mut left) = (None, None);
    match words.next()?.split_at_checked(1)? {
        ("+", person) => joined = Some(Id::new(person).ok()?),
        ("-", person) => left = Some(Id::new(person).ok()?),
        ("=", "") => {}
        _ => return None,
    }
    let online = match words.next()? {
        "*" => None,
        list => {
            let people = list.split(',').filter(|person| !person.is_empty());
            Some(people.map(|person| Id::new(person).ok()).collect::<Option<_>>()?)
        }
    };
    Some(Message::Change(Change { version, previous, at, joined, left, count, online }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        Id::new(text).unwrap()
    }

    fn change(message: &str) -> Change {
        match read(message) {
            Some(Message::Change(change)) => change,
            _ => panic!("{message:?} is no change"),
        }
    }

    /// What hubs of this version send: a later one has to read it.
    #[test]
    fn messages_of_version_1_are_read() {
        let joined = change("1 1708070400001 1708070400000 1708070400001 2 +- 7,-");
        assert_eq!((joined.version, joined.previous), (1_708_070_400_001, Some(1_708_070_400_000)));
        assert_eq!((joined.joined, joined.left, joined.count), (Some(id("-")), None, 2));
        assert_eq!(joined.online, Some(vec![id("7"), id("-")]));
        let left = change("1 5  6 0 -a@b:c ");
        assert_eq!((left.previous, left.at, left.left), (None, 6, Some(id("a@b:c"))));
        assert_eq!((left.online, left.count), (Some(Vec::new()), 0));
        let several = change("1 5 4 6 201 = *");
        assert_eq!((several.joined, several.left, several.online), (None, None, None));
        assert!(matches!(read("1 soon 1000"), Some(Message::Soon(within)) if within.as_secs() == 1));
    }

    #[test]
    fn what_is_no_message_is_not_taken() {
        for message in [
            "",
            "2 5 4 6 1 +a a",
            "1 5 4 6 1 a a",
            "1 5 4 6 1 + a",
            "1 5 4 6 1 +a",
            "1 soon",
            "1 x 4 6 1 +a a",
        ] {
            assert!(read(message).is_none(), "{message:?}");
        }
    }
}
