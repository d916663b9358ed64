//! The bus of personal streams: what any hub saves is heard by all that hold the person.
//!
//! A message is `1 <seq> <what>`, a line break, and the entry: `+` with the entry, `-` for one of which nobody is told, `?`
//! for one that is read from the records, because it is too large for the bus or its count may lack marks; or `1 0 r` with
//! what was read. What is lost shows with the next one, because numbers have no holes, and otherwise when ends are compared.

use std::sync::Arc;

use bongsu_kernel::json::Object;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis};
use bongsu_live::log::{Boxed, Bus, LogError, Sink};
use bongsu_live::{Hub, SubjectName};
use bongsu_redis::redis::cmd;
use bongsu_redis::{Channel, Listener, Redis, Repeat, Subscriber};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::{deliver, pass_over, pass_read, read_data};
use crate::marks::Buffer;
use crate::notification::{Notification, WordedNotice};
use crate::{Changed, FAMILY, Live, Notice, Templates, Told, subject};

/// A message may have so many bytes; a larger entry is read from the records.
const LARGEST: usize = 8 << 10;
/// Messages that wait to be sent. What comes beyond is left out: whoever listens finds it in the records.
const QUEUE: usize = 65_536;
/// So many are under way at the same time.
const AT_ONCE: usize = 256;
const GATHERED: usize = 1_024;
const BUS: &str = "bus";

/// The bus, both ways.
pub(crate) struct RedisPersonal {
    redis: Redis,
    bus: Subscriber,
    queue: mpsc::Sender<Message>,
    templates: Templates,
}

struct Message {
    person: Id,
    text: String,
    /// The number of the entry, where the text holds one with the count of the person's row.
    entry: Option<u64>,
}

impl RedisPersonal {
    pub(crate) fn start(
        redis: Redis,
        marks: Arc<dyn Buffer>,
        hub: Hub,
        clock: Clock,
        templates: Templates,
        supervisor: &Supervisor,
    ) -> Self {
        let listener = PersonalListener { redis: redis.clone(), hub, clock, templates: templates.clone() };
        let bus = redis.subscriber(Arc::new(listener));
        let sender = redis.clone();
        let send = move |some| send(sender.clone(), marks.clone(), some);
        let queue = supervisor.queue("member-bus", (QUEUE, GATHERED), send);
        Self { redis, bus, queue, templates }
    }

    fn put(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            metrics::counter!("member_bus_dropped_total").increment(1);
        }
    }

    fn channel(&self, subject: &SubjectName) -> Channel {
        Channel::OfSlot(channel(&self.redis, subject.parts().1).into())
    }
}

fn channel(redis: &Redis, person: &str) -> String {
    redis.beside(&redis.key(format_args!("{FAMILY}:{person}")), BUS)
}

/// Has the hubs that hold the person read the entry, and the count, from the records.
fn by_records(seq: u64) -> String {
    format!("1 {seq} ?\n")
}

async fn send(redis: Redis, marks: Arc<dyn Buffer>, mut some: Vec<Message>) {
    let counted = some.iter().filter(|message| message.entry.is_some()).map(|message| &message.person);
    let marked = marks.recently_marked(&counted.collect::<Vec<_>>()).await;
    for message in &mut some {
        let may_lack_marks = marked.as_ref().map_or(true, |marked| marked.contains(&message.person));
        if let Some(seq) = message.entry.filter(|_| may_lack_marks) {
            message.text = by_records(seq);
        }
    }
    let redis = &redis;
    let sending = some.into_iter().map(|Message { person, text, .. }| async move {
        let channel = channel(redis, person.as_str());
        let mut publish = cmd("SPUBLISH");
        publish.arg(&channel).arg(text);
        // What does not arrive is found in the records.
        let _ = redis.ask("spublish", &channel, &publish, Repeat::Never).await;
    });
    futures_util::stream::iter(sending).buffered(AT_ONCE).collect::<()>().await;
}

impl Live for RedisPersonal {
    fn saved(&self, notice: &Notice, at: Millis, saved: &[Told]) {
        let worded = WordedNotice::new(notice, at, &self.templates);
        for one in saved {
            let seq = one.seq;
            let wire = if one.silent { None } else { one.notification(&worded).to_wire() };
            let (text, entry) = match wire {
                None => (format!("1 {seq} -\n"), None),
                Some(wire) if wire.len() > LARGEST => (by_records(seq), None),
                Some(wire) => (format!("1 {seq} +\n{at} {wire}"), Some(seq)),
            };
            self.put(Message { person: one.person.clone(), text, entry });
        }
    }

    fn changed(&self, person: &Id, changed: &Changed) {
        let text = format!("1 0 r\n{}", read_data(changed));
        self.put(Message { person: person.clone(), text, entry: None });
    }
}

impl Bus for RedisPersonal {
    fn listen(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>> {
        let channel = self.channel(subject);
        Box::pin(async move { Ok(self.bus.subscribe(channel).await?) })
    }

    fn forget(&self, subject: &SubjectName) {
        self.bus.unsubscribe(self.channel(subject));
    }
}

struct PersonalListener {
    redis: Redis,
    hub: Hub,
    clock: Clock,
    templates: Templates,
}

impl PersonalListener {
    fn person(&self, channel: &Channel) -> Option<Id> {
        let key = self.redis.beside_what(channel.name(), BUS)?;
        Id::new(key.strip_prefix(FAMILY)?.strip_prefix(':')?).ok()
    }

    /// None when the message is none of ours, or of a later version.
    fn apply(&self, person: &Id, message: &str) -> Option<()> {
        let (head, rest) = message.split_once('\n')?;
        let mut head = head.split(' ');
        head.next().filter(|version| *version == "1")?;
        let seq: u64 = head.next()?.parse().ok()?;
        match head.next()? {
            "+" => {
                let (at, wire) = rest.split_once(' ')?;
                let (at, notification) = (at.parse().ok()?, Notification::from_wire(wire, &self.templates)?);
                deliver(&self.hub, person, notification, self.clock.moment(at));
            }
            "-" => pass_over(&self.hub, person, seq),
            "?" => self.hub.doubt(&subject(person)),
            "r" => pass_read(&self.hub, person, Object::stored(rest)?.as_str().to_owned()),
            _ => return None,
        }
        Some(())
    }
}

impl Listener for PersonalListener {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        let Some(person) = self.person(channel) else { return };
        if std::str::from_utf8(payload).ok().and_then(|text| self.apply(&person, text)).is_none() {
            metrics::counter!("bus_malformed_total").increment(1);
            tracing::warn!("a message about a person was not readable");
            self.hub.doubt(&subject(&person));
        }
    }

    fn mark_stale(&self, channel: &Channel) {
        if let Some(person) = self.person(channel) {
            self.hub.doubt(&subject(&person));
        }
    }
}
