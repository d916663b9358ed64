//! Appending: the events of one subject, with one script in one round trip per batch.
//!
//! A call without an answer is never sent again here. The caller may retry with its idempotency key, and then gets the
//! first answer.

use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Id, Millis};
use bongsu_redis::redis::{Value, from_redis_value};
use bongsu_redis::{Repeat, Script};

use super::key_limit::KEY_LIFETIME;
use super::{FOLLOW_UPS, IDEMPOTENCY_KEYS, MEMBERSHIP, RedisLog, bus_channel, follow_up_channel, stream_key};
use crate::log::{Append, AppendError, AppendOutcome, FollowUp, LogError};

static APPEND: Script = Script::new("append", include_str!("../../../lua/append.lua"));

/// Attempts per append. An attempt fails when the mark in the index of follow-ups has become too old.
const MAX_MARK_ATTEMPTS: u32 = 3;
/// Events per call of the script, so that a large batch does not block Redis for long.
const BATCH_SIZE: usize = 64;

type Outcome = Result<AppendOutcome, AppendError>;

impl RedisLog {
    /// Appends events of one subject in order. The result has one outcome per event, also if a call of the
    /// script fails.
    pub(super) async fn append_to_subject(&self, events: &[&Append]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(events.len());
        for batch in events.chunks(BATCH_SIZE) {
            let answers = self.append_batch(batch).await;
            outcomes.extend(answers.unwrap_or_else(|error| vec![Err(AppendError::Failed(error))]));
            // A failed or stale event ends the append, so that the order is kept when that event is retried.
            let stops_batch = |outcome: &&Outcome| {
                matches!(outcome, Err(AppendError::Failed(_) | AppendError::StaleMembership))
            };
            if let Some(error) = outcomes.iter().find(stops_batch).cloned() {
                outcomes.resize(events.len(), error);
                break;
            }
        }
        outcomes
    }

    async fn append_batch(&self, events: &[&Append]) -> Result<Vec<Outcome>, LogError> {
        let Some(first) = events.first() else { return Ok(Vec::new()) };
        let has_follow_ups = events.iter().any(|event| !event.recipients.is_empty());
        for _ in 0..MAX_MARK_ATTEMPTS {
            let mark =
                if has_follow_ups { self.index.mark(first.subject.as_str()).await? } else { String::new() };
            if let Some(answers) = self.try_append(first, events, &mark).await? {
                return Ok(answers);
            }
            self.index.forget_mark(first.subject.as_str());
        }
        Err(LogError::Failed("the mark in the index of follow-ups was too old three times".to_owned()))
    }

    /// Runs the script once. None if the mark had become too old.
    async fn try_append(
        &self,
        first: &Append,
        events: &[&Append],
        mark: &str,
    ) -> Result<Option<Vec<Outcome>>, LogError> {
        let stream = stream_key(&self.redis, &first.subject);
        let sibling = |name: &str| self.redis.sibling_key(&stream, name);
        let [answers, expiries] = IDEMPOTENCY_KEYS;
        let siblings = [answers, expiries, FOLLOW_UPS, "gone", "audience", MEMBERSHIP].map(sibling);
        let mut keys = vec![stream.as_str()];
        keys.extend(siblings.iter().map(String::as_str));
        // A clock that is set before 1970 reads 0. At least 1 ms, because no event may have the id 0-0.
        let at = self.clock.now().max(1);
        let now = at.to_string();
        let (audience, channel) = (first.audience.to_string(), bus_channel(&self.redis, &stream));
        let (keep, key_lifetime) = (first.keep.to_string(), KEY_LIFETIME.to_string());
        let (announcements, subject) = (follow_up_channel(&self.redis), first.subject.as_str());
        let instance = self.redis.instance();
        let head = [&now, instance, &audience, &channel, &keep, &key_lifetime, mark, &announcements, subject];
        let mut arguments: Vec<&[u8]> = head.map(str::as_bytes).to_vec();
        let records = events.iter().map(|event| follow_up_parts(event)).collect::<Result<Vec<_>, _>>()?;
        // Empty for an event without a membership version.
        let version = |event: &&Append| event.membership_version.map(|version| version.to_string());
        let versions: Vec<String> = events.iter().map(|event| version(event).unwrap_or_default()).collect();
        for ((event, record), version) in events.iter().zip(&records).zip(&versions) {
            let idempotency = event.idempotency.as_ref();
            arguments.push(event.event_type.as_str().as_bytes());
            arguments.push(event.data.as_str().as_bytes());
            arguments.push(event.publisher.as_ref().map_or("", Id::as_str).as_bytes());
            arguments.push(idempotency.map_or("", |idempotency| idempotency.key.as_str()).as_bytes());
            arguments.push(idempotency.map_or(&[], |idempotency| &idempotency.digest));
            let earlier_digest = idempotency.and_then(|idempotency| idempotency.earlier_digest.as_ref());
            arguments.push(earlier_digest.map_or(&[], |digest| digest));
            arguments.push(event.trace.as_ref().map_or("", TraceParent::as_str).as_bytes());
            arguments.extend(record.iter().map(String::as_bytes));
            arguments.push(version.as_bytes());
        }
        // Never repeated: without an idempotency key a repeated call would be a second event.
        let Value::Array(answers) = self.redis.run(&APPEND, Repeat::Never, &keys, &arguments).await? else {
            return Ok(None);
        };
        let outcomes = read_answers(answers, at).filter(|read| read.len() == events.len());
        let outcomes = outcomes.ok_or_else(unexpected_answer)?;
        for (event, outcome) in events.iter().zip(&outcomes) {
            if let (Some(idempotency), Ok(AppendOutcome { duplicate: false, .. })) =
                (&event.idempotency, outcome)
            {
                self.keys.note(&event.subject, &idempotency.key, at);
            }
        }
        Ok(Some(outcomes))
    }
}

fn unexpected_answer() -> LogError {
    LogError::Failed("the append script returned an unexpected answer".to_owned())
}

/// Reads the answers of the script: the audience, then two values per event.
fn read_answers(answers: Vec<Value>, now: Millis) -> Option<Vec<Outcome>> {
    let mut answers = answers.into_iter();
    let audience: u32 = from_redis_value(answers.next()?).ok()?;
    let mut outcomes = Vec::with_capacity(answers.len() / 2);
    while let Some(outcome) = answers.next() {
        let answer: String = from_redis_value(answers.next()?).ok()?;
        outcomes.push(match outcome {
            Value::BulkString(outcome) if outcome == b"stored" => {
                Ok(AppendOutcome { id: answer.parse().ok()?, at: now, audience, duplicate: false })
            }
            Value::BulkString(outcome) if outcome == b"again" => {
                let mut fields = answer.split(' ');
                Ok(AppendOutcome {
                    id: fields.next()?.parse().ok()?,
                    at: fields.next()?.parse().ok()?,
                    audience: fields.next()?.parse().ok()?,
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

/// The follow-up record, split where the script inserts the id and the time of the event. Empty if the event has no
/// recipients.
fn follow_up_parts(event: &Append) -> Result<[String; 3], LogError> {
    const ID: &str = "\u{1}id\u{1}";
    let encode_error = |error: serde_json::Error| LogError::Failed(error.to_string());
    let Some(record) = FollowUp::encode(event, ID.to_owned(), u64::MAX).map_err(encode_error)? else {
        return Ok(Default::default());
    };
    let time = format!("\"timestamp\":{}", u64::MAX);
    let id = serde_json::to_string(ID).map_err(encode_error)?;
    let id = id.trim_matches('"');
    // Splits at the first occurrence of the id and the last one of the time, because the publisher's data are between
    // them. After the time come only the recipients, whose ids contain no quotes.
    let parts = record.split_once(id).and_then(|(before, rest)| {
        rest.rsplit_once(&time)
            .map(|(between, after)| [before.to_owned(), format!("{between}\"timestamp\":"), after.to_owned()])
    });
    parts
        .ok_or_else(|| LogError::Failed("the follow-up record cannot be split at its id and time".to_owned()))
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::EventType;
    use bongsu_kernel::json::Object;

    use super::*;
    use crate::SubjectName;
    use crate::log::Recipients;

    #[test]
    fn a_follow_up_record_is_split_at_its_id_and_time_whatever_its_data_contains() {
        let data = format!("{{\"a\":\"\\u0001id\\u0001\",\"b\":{}}}", u64::MAX);
        let mut event = Append {
            subject: SubjectName::from_stored("room:42"),
            event_type: EventType::new("a.b").unwrap(),
            data: Object::from_stored(&data).unwrap(),
            publisher: None,
            idempotency: None,
            recipients: Recipients::Members,
            membership_version: None,
            audience: 0,
            keep: 1,
            trace: TraceParent::parse("00-18446744073709551615000000000000-00f067aa0ba902b7-01"),
        };
        // A recipient whose id equals the placeholder of the time.
        let people = vec![Id::new("7").unwrap(), Id::from(u64::MAX)];
        for (recipients, named) in
            [(Recipients::Members, None), (Recipients::Named(people.clone()), Some(people))]
        {
            event.recipients = recipients;
            let [before, between, after] = follow_up_parts(&event).unwrap();
            let record = format!("{before}5-6{between}1700000000000{after}");
            let record: FollowUp = serde_json::from_str(&record).unwrap();
            assert_eq!((record.stream_id.as_str(), record.timestamp), ("5-6", 1_700_000_000_000));
            assert_eq!(record.data.get(), data);
            assert_eq!((record.recipients, record.traceparent), (named, event.trace));
        }
    }
}
