//! The bus of the log in Redis: what any hub appends is heard by all that have listeners.
//!
//! A message of ours names the id before it, so that a loss shows. What another program publishes to `room:42` is
//! passed on to those who listen now; a stream id in it only makes this hub look into the log, and is never believed.

use std::sync::Arc;

use bongsu_kernel::json::Object;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Clock, EventType, Id};
use bongsu_redis::{Channel, Listener, Redis, Subscriber};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::audience::Audience;
use super::{BUS, bus_channel, stream_key};
use crate::SubjectName;
use crate::log::{self, Boxed, Delivery, Entry, LogError, Passing, Place, Sink};

/// Another program's message may have so many bytes.
const FOREIGN_BYTES: usize = 64 << 10;

/// See the module.
pub struct RedisBus {
    redis: Redis,
    bus: Subscriber,
    audience: Audience,
}

impl RedisBus {
    pub fn start(redis: Redis, sink: Arc<dyn Sink>, clock: Clock, supervisor: &Supervisor) -> Self {
        let audience = Audience::start(redis.clone(), clock.clone(), supervisor);
        let listener = LogListener { sink, clock, redis: redis.clone(), prefix: redis.key("") };
        let bus = redis.subscriber(Arc::new(listener));
        Self { redis, bus, audience }
    }

    fn channels(&self, subject: &SubjectName) -> (Channel, Channel) {
        let own = bus_channel(&self.redis, &stream_key(&self.redis, subject));
        let foreign = self.redis.key(subject.as_str());
        (Channel::OfSlot(own.into()), Channel::Everywhere(foreign.into()))
    }
}

impl log::Bus for RedisBus {
    fn listen(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>> {
        let (own, foreign) = self.channels(subject);
        Box::pin(async move {
            tokio::try_join!(self.bus.subscribe(own), self.bus.subscribe(foreign))?;
            Ok(())
        })
    }

    fn forget(&self, subject: &SubjectName) {
        let (own, foreign) = self.channels(subject);
        self.bus.unsubscribe(own);
        self.bus.unsubscribe(foreign);
        self.audience.forget(subject);
    }

    fn audience(&self, subject: &SubjectName, streams: usize) {
        self.audience.set(subject, streams);
    }

    fn announce(&self, subject: &SubjectName, streams: usize) -> Boxed<'_, ()> {
        let subject = subject.clone();
        Box::pin(async move { self.audience.announce(subject, streams).await })
    }
}

struct LogListener {
    sink: Arc<dyn Sink>,
    clock: Clock,
    redis: Redis,
    prefix: String,
}

impl LogListener {
    fn subject(&self, channel: &Channel) -> Option<SubjectName> {
        match channel {
            Channel::OfSlot(name) => {
                let (family, id) = self.redis.beside_what(name, BUS)?.split_once(":events:")?;
                Some(SubjectName::known(&format!("{family}:{id}")))
            }
            Channel::Everywhere(name) => name.strip_prefix(&self.prefix).map(SubjectName::known),
        }
    }

    fn deliver(&self, subject: &SubjectName, message: &str) -> Option<()> {
        let (head, payload) = message.split_once('\n')?;
        let mut head = head.split(' ');
        // A later version means hubs of two versions: the log is read, which both understand.
        head.next().filter(|version| *version == "1")?;
        let id = head.next()?.parse().ok()?;
        let previous = head.next()?.parse().ok()?;
        let number = head.next()?.parse().ok();
        let at = head.next()?.parse().ok()?;
        let event_type = EventType::new(head.next()?).ok()?;
        let publisher =
            head.next().filter(|publisher| !publisher.is_empty()).map(Id::new).transpose().ok()?;
        let trace = head.next().and_then(TraceParent::parse);
        let data = Object::stored(payload)?;
        let entry = Entry { place: Place { id, number }, event_type, data, publisher, at, trace };
        let accepted = self.clock.moment(at);
        self.sink.deliver(Delivery { subject, previous, entry: &entry, accepted });
        Some(())
    }

    fn pass(&self, subject: &SubjectName, message: &str) -> Result<(), &'static str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Foreign<'a> {
            event_type: &'a str,
            #[serde(default)]
            room_id: Option<Id>,
            #[serde(borrow)]
            data: &'a RawValue,
            #[serde(default)]
            stream_id: Option<serde::de::IgnoredAny>,
        }
        if message.len() > FOREIGN_BYTES {
            return Err("too long");
        }
        let foreign: Foreign<'_> = serde_json::from_str(message).map_err(|_| "not readable")?;
        let event_type = EventType::new(foreign.event_type).map_err(|_| "no event type")?;
        if event_type.is_reserved() {
            return Err("a reserved event type");
        }
        if foreign.room_id.is_some_and(|room| room.as_str() != subject.parts().1) {
            return Err("for another room than its channel's");
        }
        let data = Object::parse(foreign.data, "timestamp").map_err(|_| "its data is no object")?;
        if foreign.stream_id.is_some() {
            // It says that it is in the log: then it is found there, with the id that it really has.
            self.sink.doubt(subject);
        } else {
            self.sink.pass(subject, &Passing { event_type, data, at: self.clock.now() });
        }
        Ok(())
    }
}

impl Listener for LogListener {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        let Some(subject) = self.subject(channel) else { return };
        let outcome = match (channel, std::str::from_utf8(payload)) {
            (_, Err(_)) => Err("not UTF-8"),
            (Channel::OfSlot(_), Ok(message)) => match self.deliver(&subject, message) {
                Some(()) => Ok(()),
                None => {
                    self.sink.doubt(&subject);
                    Err("not one of ours")
                }
            },
            (Channel::Everywhere(_), Ok(message)) => self.pass(&subject, message),
        };
        if let Err(why) = outcome {
            metrics::counter!("bus_malformed_total").increment(1);
            tracing::warn!(?subject, why, "a message on the bus was not taken");
        }
    }

    fn mark_stale(&self, channel: &Channel) {
        if let (Channel::OfSlot(_), Some(subject)) = (channel, self.subject(channel)) {
            self.sink.doubt(&subject);
        }
    }
}
