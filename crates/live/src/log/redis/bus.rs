//! The bus of the log in Redis: delivers the events that any instance has appended to every instance with subscribers.
//!
//! A message of the hub carries the id of the previous entry, so that a loss is detected. A message that another
//! program publishes to `room:42` is delivered to the current subscribers. If that message has a stream id, the
//! instance compares the ring buffer with the log instead; the id itself is never used.

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
use crate::log::{self, BoxFuture, Delivery, EphemeralMessage, LogEntry, LogFuture, LogPosition, Sink};

/// Maximum size of a message of another program, in bytes.
const MAX_FOREIGN_SIZE: usize = 64 << 10;

/// The bus of a fleet.
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
    fn subscribe(&self, subject: &SubjectName) -> LogFuture<'_, ()> {
        let (own, foreign) = self.channels(subject);
        Box::pin(async move {
            tokio::try_join!(self.bus.subscribe(own), self.bus.subscribe(foreign))?;
            Ok(())
        })
    }

    fn unsubscribe(&self, subject: &SubjectName) {
        let (own, foreign) = self.channels(subject);
        self.bus.unsubscribe(own);
        self.bus.unsubscribe(foreign);
        self.audience.remove(subject);
    }

    fn report_audience(&self, subject: &SubjectName, streams: usize) {
        self.audience.set(subject, streams);
    }

    fn announce_audience(&self, subject: &SubjectName, streams: usize) -> BoxFuture<'_, ()> {
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
                let (kind, id) = self.redis.base_of_sibling(name, BUS)?.split_once(":events:")?;
                Some(SubjectName::from_stored(&format!("{kind}:{id}")))
            }
            Channel::Everywhere(name) => name.strip_prefix(&self.prefix).map(SubjectName::from_stored),
        }
    }

    /// Delivers a message of the hub (`append.lua`). None if the message is malformed or of a later version.
    fn deliver(&self, subject: &SubjectName, message: &str) -> Option<()> {
        let (head, payload) = message.split_once('\n')?;
        let mut head = head.split(' ');
        // During an upgrade an instance may publish in a later version. The caller then marks the subject
        // stale.
        head.next().filter(|version| *version == "1")?;
        let id = head.next()?.parse().ok()?;
        let previous = head.next()?.parse().ok()?;
        let number = head.next()?.parse().ok();
        let at = head.next()?.parse().ok()?;
        let event_type = EventType::new(head.next()?).ok()?;
        let publisher =
            head.next().filter(|publisher| !publisher.is_empty()).map(Id::new).transpose().ok()?;
        let trace = head.next().and_then(TraceParent::parse);
        let data = Object::from_stored(payload)?;
        let entry = LogEntry { position: LogPosition { id, number }, event_type, data, publisher, at, trace };
        let accepted = self.clock.instant_of(at);
        self.sink.deliver(Delivery { subject, previous, entry: &entry, accepted });
        Some(())
    }

    /// Delivers a message of another program. The error says why it was refused.
    fn deliver_foreign(&self, subject: &SubjectName, message: &str) -> Result<(), &'static str> {
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
        if message.len() > MAX_FOREIGN_SIZE {
            return Err("longer than 64 KiB");
        }
        let foreign: Foreign<'_> =
            serde_json::from_str(message).map_err(|_| "not JSON with eventType and data")?;
        let event_type = EventType::new(foreign.event_type).map_err(|_| "invalid eventType")?;
        if event_type.is_reserved() {
            return Err("reserved eventType");
        }
        if foreign.room_id.is_some_and(|room| room.as_str() != subject.parts().1) {
            return Err("roomId is not the room of the channel");
        }
        let data = Object::parse(foreign.data, "timestamp").map_err(|_| "data is not an object")?;
        if foreign.stream_id.is_some() {
            // The message claims to be in the log, so the hub reads the entry from the log, with its real id.
            self.sink.mark_stale(subject);
        } else {
            self.sink
                .deliver_ephemeral(subject, &EphemeralMessage { event_type, data, at: self.clock.now() });
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
                    self.sink.mark_stale(&subject);
                    Err("not in the format of this version")
                }
            },
            (Channel::Everywhere(_), Ok(message)) => self.deliver_foreign(&subject, message),
        };
        if let Err(reason) = outcome {
            metrics::counter!("bus_malformed_total").increment(1);
            tracing::warn!(?subject, reason, "failed to parse a bus message; dropping it");
        }
    }

    fn mark_stale(&self, channel: &Channel) {
        if let (Channel::OfSlot(_), Some(subject)) = (channel, self.subject(channel)) {
            self.sink.mark_stale(&subject);
        }
    }
}
