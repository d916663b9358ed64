//! Appending: the events of one subject, one script, one round trip.
//!
//! Nothing is sent a second time from here: a caller with a key may repeat, and finds the first answer.

use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Id, Millis};
use bongsu_redis::redis::{Value, from_redis_value};
use bongsu_redis::{Repeat, Script};

use super::keys::KEY_LIFE;
use super::{FOLLOW_UPS, KEY_STORES, MEMBERSHIP, RedisLog, bus_channel, news_channel, stream_key};
use crate::log::{Append, AppendError, Appended, FollowUp, LogError};

static APPEND: Script = Script::new("append", include_str!("../../../lua/append.lua"));

/// A mark that was too old when the append came is made anew, so often.
const MARKS: u32 = 3;
/// So many events go into one call, so that others have their turn in between.
const AT_ONCE: usize = 64;

type Outcome = Result<Appended, AppendError>;

impl RedisLog {
    /// Appends events of one subject in order. Each has an outcome, also when a later call fails.
    pub(super) async fn append_to_subject(&self, events: &[&Append]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(events.len());
        for some in events.chunks(AT_ONCE) {
            let answers = self.append_some(some).await;
            outcomes.extend(answers.unwrap_or_else(|error| vec![Err(AppendError::Failed(error))]));
            // What comes after it must not overtake it.
            let in_the_way = |outcome: &&Outcome| {
                matches!(outcome, Err(AppendError::Failed(_) | AppendError::StaleMembership))
            };
            if let Some(error) = outcomes.iter().find(in_the_way).cloned() {
                outcomes.resize(events.len(), error);
                break;
            }
        }
        outcomes
    }

    async fn append_some(&self, events: &[&Append]) -> Result<Vec<Outcome>, LogError> {
        let Some(first) = events.first() else { return Ok(Vec::new()) };
        let follows = events.iter().any(|event| !event.recipients.is_empty());
        for _ in 0..MARKS {
            let marked = if follows { self.index.mark(first.subject.as_str()).await? } else { String::new() };
            if let Some(answers) = self.try_append(first, events, &marked).await? {
                return Ok(answers);
            }
            self.index.forget_mark(first.subject.as_str());
        }
        Err(LogError::Failed("the index of follow-ups could not be marked in time".to_owned()))
    }

    /// Nothing when the mark had become too old.
    async fn try_append(
        &self,
        first: &Append,
        events: &[&Append],
        marked: &str,
    ) -> Result<Option<Vec<Outcome>>, LogError> {
        let stream = stream_key(&self.redis, &first.subject);
        let helper = |name: &str| self.redis.beside(&stream, name);
        let [answers, expiries] = KEY_STORES;
        let helpers = [answers, expiries, FOLLOW_UPS, "gone", "audience", MEMBERSHIP].map(helper);
        let mut keys = vec![stream.as_str()];
        keys.extend(helpers.iter().map(String::as_str));
        // Before 1970 no clock is right, and 0-0 is no event.
        let at = self.clock.now().max(1);
        let now = at.to_string();
        let (audience, channel) = (first.audience.to_string(), bus_channel(&self.redis, &stream));
        let (keep, key_life) = (first.keep.to_string(), KEY_LIFE.to_string());
        let (news, subject) = (news_channel(&self.redis), first.subject.as_str());
        let head =
            [&now, self.redis.instance(), &audience, &channel, &keep, &key_life, marked, &news, subject];
        let mut arguments: Vec<&[u8]> = head.map(str::as_bytes).to_vec();
        let records = events.iter().map(|event| follow_up(event)).collect::<Result<Vec<_>, _>>()?;
        // Empty where there is none to compare.
        let version = |event: &&Append| event.membership_version.map(|version| version.to_string());
        let versions: Vec<String> = events.iter().map(|event| version(event).unwrap_or_default()).collect();
        for ((event, record), version) in events.iter().zip(&records).zip(&versions) {
            let once = event.once.as_ref();
            arguments.push(event.event_type.as_str().as_bytes());
            arguments.push(event.data.as_str().as_bytes());
            arguments.push(event.publisher.as_ref().map_or("", Id::as_str).as_bytes());
            arguments.push(once.map_or("", |once| once.key.as_str()).as_bytes());
            arguments.push(once.map_or(&[], |once| &once.digest));
            arguments.push(once.and_then(|once| once.earlier_digest.as_ref()).map_or(&[], |digest| digest));
            arguments.push(event.trace.as_ref().map_or("", TraceParent::as_str).as_bytes());
            arguments.extend(record.iter().map(String::as_bytes));
            arguments.push(version.as_bytes());
        }
        // Without a key, nobody could tell a repetition from a second event.
        let Value::Array(answers) = self.redis.run(&APPEND, Repeat::Never, &keys, &arguments).await? else {
            return Ok(None);
        };
        let outcomes = read_answers(answers, at).filter(|read| read.len() == events.len());
        let outcomes = outcomes.ok_or_else(unreadable)?;
        for (event, outcome) in events.iter().zip(&outcomes) {
            if let (Some(once), Ok(Appended { duplicate: false, .. })) = (&event.once, outcome) {
                self.keys.note(&event.subject, &once.key, at);
            }
        }
        Ok(Some(outcomes))
    }
}

fn unreadable() -> LogError {
    LogError::Failed("the answer of an append is not readable".to_owned())
}

/// As the script gives them: the audience, then two for each event.
fn read_answers(answers: Vec<Value>, now: Millis) -> Option<Vec<Outcome>> {
    let mut answers = answers.into_iter();
    let audience: u32 = from_redis_value(answers.next()?).ok()?;
    let mut outcomes = Vec::with_capacity(answers.len() / 2);
    while let Some(outcome) = answers.next() {
        let answer: String = from_redis_value(answers.next()?).ok()?;
        outcomes.push(match outcome {
            Value::BulkString(outcome) if outcome == b"stored" => {
                Ok(Appended { id: answer.parse().ok()?, at: now, audience, duplicate: false })
            }
            Value::BulkString(outcome) if outcome == b"again" => {
                let mut kept = answer.split(' ');
                Ok(Appended {
                    id: kept.next()?.parse().ok()?,
                    at: kept.next()?.parse().ok()?,
                    audience: kept.next()?.parse().ok()?,
                    duplicate: true,
                })
            }
            Value::BulkString(outcome) if outcome == b"conflict" => Err(AppendError::Conflict),
            Value::BulkString(outcome) if outcome == b"stale" => Err(AppendError::StaleMembership),
            _ => return None,
        });
    }
    Some(outcomes)
}

/// The follow-up record around the two things that only the script knows: the event's id and its time. Empty when
/// nobody is to be told.
fn follow_up(event: &Append) -> Result<[String; 3], LogError> {
    const ID: &str = "\u{1}id\u{1}";
    let unwritable = |error: serde_json::Error| LogError::Failed(error.to_string());
    let Some(record) = FollowUp::written(event, ID.to_owned(), u64::MAX).map_err(unwritable)? else {
        return Ok(Default::default());
    };
    let time = format!("\"timestamp\":{}", u64::MAX);
    let id = serde_json::to_string(ID).map_err(unwritable)?;
    let id = id.trim_matches('"');
    // The first of the one and the last of the other: what the publisher wrote stands between them. Only ids follow, and
    // they have no quotes.
    let parts = record.split_once(id).and_then(|(before, rest)| {
        rest.rsplit_once(&time)
            .map(|(between, after)| [before.to_owned(), format!("{between}\"timestamp\":"), after.to_owned()])
    });
    parts.ok_or_else(|| LogError::Failed("the follow-up record cannot be written".to_owned()))
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::EventType;
    use bongsu_kernel::json::Object;

    use super::*;
    use crate::SubjectName;
    use crate::log::Recipients;

    #[test]
    fn a_follow_up_is_cut_where_its_id_and_time_belong_whatever_the_data_says() {
        let data = format!("{{\"a\":\"\\u0001id\\u0001\",\"b\":{}}}", u64::MAX);
        let mut event = Append {
            subject: SubjectName::known("room:42"),
            event_type: EventType::new("a.b").unwrap(),
            data: Object::stored(&data).unwrap(),
            publisher: None,
            once: None,
            recipients: Recipients::Members,
            membership_version: None,
            audience: 0,
            keep: 1,
            trace: TraceParent::parse("00-18446744073709551615000000000000-00f067aa0ba902b7-01"),
        };
        // Ids that look like what is filled in.
        let people = vec![Id::new("7").unwrap(), Id::from(u64::MAX)];
        for (recipients, named) in
            [(Recipients::Members, None), (Recipients::Named(people.clone()), Some(people))]
        {
            event.recipients = recipients;
            let [before, between, after] = follow_up(&event).unwrap();
            let record = format!("{before}5-6{between}1700000000000{after}");
            let record: FollowUp = serde_json::from_str(&record).unwrap();
            assert_eq!((record.stream_id.as_str(), record.timestamp), ("5-6", 1_700_000_000_000));
            assert_eq!(record.data.get(), data);
            assert_eq!((record.recipients, record.traceparent), (named, event.trace));
        }
    }
}
