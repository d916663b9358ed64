//! The bus of personal streams: an instance publishes saved changes to all instances with a stream of the person.
//!
//! A message is a head line and a body. The head is `1 <seq> <kind>`, where 1 is the version. Kind `+`: the body is
//! the time in milliseconds and the entry. `-`: the entry is muted. `?`: the entry is to be read from the records,
//! because it is too large for the bus or its unread count may lack buffered marks. `r` (with seq 0): the body is a
//! change. A stream notices a lost entry by the next one, or when heads are compared.

use std::sync::Arc;

use bongsu_kernel::json::Object;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis};
use bongsu_live::log::{Bus, LogFuture, Sink};
use bongsu_live::{Hub, SubjectName};
use bongsu_redis::redis::cmd;
use bongsu_redis::{Channel, Listener, Redis, Repeat, Subscriber};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::{change_data, push_change, push_entry, push_muted};
use crate::entry_message::{EntryMessage, LocalizedNotification};
use crate::marks::MarkBuffer;
use crate::{
    InboxChange, LiveDelivery, Notification, NotifyOutcome, PendingPushes, RedisDeps, SUBJECT_KIND,
    Templates, subject,
};

/// Bytes of an entry in a message; a larger entry is read from the records.
const MAX_ENTRY_SIZE: usize = 8 << 10;
/// Messages that wait to be sent. When the queue is full, messages are dropped; listeners read the entries from the
/// records.
const QUEUE_SIZE: usize = 65_536;
/// Messages taken from the queue at once.
const BATCH_SIZE: usize = 1_024;
/// Messages that are sent at the same time.
const MAX_CONCURRENT_SENDS: usize = 256;
/// The last part of the name of a person's channel.
const CHANNEL_NAME: &str = "bus";

/// Publishes changes to the bus, and subscribes to the channels of persons with open streams.
pub(crate) struct RedisDelivery {
    redis: Redis,
    bus: Subscriber,
    queue: mpsc::Sender<Message>,
    templates: Templates,
}

struct Message {
    person: Id,
    text: String,
    /// The sequence number, if the text holds an entry with the unread count of the person's row.
    entry_seq: Option<u64>,
}

impl RedisDelivery {
    pub(crate) fn start(
        redis: Redis,
        deps: &RedisDeps,
        hub: Hub,
        clock: Clock,
        templates: Templates,
        supervisor: &Supervisor,
    ) -> Self {
        let (marks, pending_pushes) = (deps.buffer.clone(), deps.pending_pushes.clone());
        let listener = DeliveryListener {
            redis: redis.clone(),
            hub,
            clock,
            templates: templates.clone(),
            pending_pushes,
        };
        let bus = redis.subscriber(Arc::new(listener));
        let sender = redis.clone();
        let send = move |batch| send_batch(sender.clone(), marks.clone(), batch);
        let queue = supervisor.queue("member-bus", (QUEUE_SIZE, BATCH_SIZE), send);
        Self { redis, bus, queue, templates }
    }

    fn enqueue(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            metrics::counter!("member_bus_dropped_total").increment(1);
        }
    }

    fn channel(&self, subject: &SubjectName) -> Channel {
        Channel::OfSlot(channel(&self.redis, subject.parts().1).into())
    }
}

fn channel(redis: &Redis, person: &str) -> String {
    redis.sibling_key(&redis.key(format_args!("{SUBJECT_KIND}:{person}")), CHANNEL_NAME)
}

/// The message that makes listeners read the entry and the unread count from the records.
fn read_from_records(seq: u64) -> String {
    format!("1 {seq} ?\n")
}

async fn send_batch(redis: Redis, marks: Arc<dyn MarkBuffer>, mut batch: Vec<Message>) {
    let counted = batch.iter().filter(|message| message.entry_seq.is_some()).map(|message| &message.person);
    let marked = marks.recently_marked(&counted.collect::<Vec<_>>()).await;
    for message in &mut batch {
        let may_lack_marks = marked.as_ref().map_or(true, |marked| marked.contains(&message.person));
        if let Some(seq) = message.entry_seq.filter(|_| may_lack_marks) {
            message.text = read_from_records(seq);
        }
    }
    let redis = &redis;
    let sending = batch.into_iter().map(|Message { person, text, .. }| async move {
        let channel = channel(redis, person.as_str());
        let publish = cmd("SPUBLISH").arg(&channel).arg(text).take();
        // Repeated after a failure, because a lost change is not sent again. A lost entry is read from the
        // records.
        let _ = redis.query("spublish", &channel, &publish, Repeat::Safe).await;
    });
    futures_util::stream::iter(sending).buffered(MAX_CONCURRENT_SENDS).collect::<()>().await;
}

impl LiveDelivery for RedisDelivery {
    fn deliver_entries(&self, notification: &Notification, at: Millis, outcomes: &[NotifyOutcome]) {
        let localized = LocalizedNotification::new(notification, at, &self.templates);
        for outcome in outcomes {
            let seq = outcome.seq;
            let wire = if outcome.is_muted { None } else { outcome.entry_message(&localized).to_wire() };
            let (text, entry_seq) = match wire {
                None => (format!("1 {seq} -\n"), None),
                Some(wire) if wire.len() > MAX_ENTRY_SIZE => (read_from_records(seq), None),
                Some(wire) => (format!("1 {seq} +\n{at} {wire}"), Some(seq)),
            };
            self.enqueue(Message { person: outcome.person.clone(), text, entry_seq });
        }
    }

    fn deliver_change(&self, person: &Id, change: &InboxChange) {
        let text = format!("1 0 r\n{}", change_data(change));
        self.enqueue(Message { person: person.clone(), text, entry_seq: None });
    }
}

impl Bus for RedisDelivery {
    fn subscribe(&self, subject: &SubjectName) -> LogFuture<'_, ()> {
        let channel = self.channel(subject);
        Box::pin(async move { Ok(self.bus.subscribe(channel).await?) })
    }

    fn unsubscribe(&self, subject: &SubjectName) {
        self.bus.unsubscribe(self.channel(subject));
    }
}

struct DeliveryListener {
    redis: Redis,
    hub: Hub,
    clock: Clock,
    templates: Templates,
    pending_pushes: PendingPushes,
}

impl DeliveryListener {
    /// The person of a channel. None when the channel is not that of a personal stream.
    fn person(&self, channel: &Channel) -> Option<Id> {
        let key = self.redis.base_of_sibling(channel.name(), CHANNEL_NAME)?;
        Id::new(key.strip_prefix(SUBJECT_KIND)?.strip_prefix(':')?).ok()
    }

    /// Pushes a message to the streams of this process. None when the message is invalid, or of another version.
    fn apply(&self, person: &Id, message: &str) -> Option<()> {
        let (head, rest) = message.split_once('\n')?;
        let mut head = head.split(' ');
        head.next().filter(|version| *version == "1")?;
        let seq: u64 = head.next()?.parse().ok()?;
        match head.next()? {
            "+" => {
                let (at, wire) = rest.split_once(' ')?;
                let (at, notification) = (at.parse().ok()?, EntryMessage::from_wire(wire, &self.templates)?);
                push_entry(&self.hub, person, notification, self.clock.instant_of(at));
            }
            "-" => push_muted(&self.hub, person, seq),
            "?" => self.hub.mark_stale(&subject(person)),
            "r" => push_change(&self.hub, person, Object::from_stored(rest)?.as_str().to_owned()),
            _ => return None,
        }
        Some(())
    }
}

impl Listener for DeliveryListener {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        let Some(person) = self.person(channel) else { return };
        if std::str::from_utf8(payload).ok().and_then(|text| self.apply(&person, text)).is_none() {
            metrics::counter!("bus_malformed_total").increment(1);
            tracing::warn!(%person, "failed to parse a bus message of a personal stream; reading the entries from the records");
            self.hub.mark_stale(&subject(&person));
        }
    }

    fn mark_stale(&self, channel: &Channel) {
        if let Some(person) = self.person(channel) {
            self.hub.mark_stale(&subject(&person));
            // No log holds changes, so the devices get the current count instead of those that were lost.
            self.pending_pushes.put(&person, &[]);
        }
    }
}
