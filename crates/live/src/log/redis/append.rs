//! Appending: one event, one script, one round trip.

use bongsu_kernel::Id;
use bongsu_redis::redis::Value;
use bongsu_redis::{Repeat, Script};

use super::{RedisLog, bus_channel, stream_key, take};
use crate::log::{Append, Appended, FollowUp, LogError};

static APPEND: Script = Script::new("append", include_str!("../../../lua/append.lua"));

/// How long an answer is kept under its key.
const KEY_LIFE: &[u8] = b"86400000";
/// A mark that was too old when the append came is made anew, so often.
const MARKS: u32 = 3;

pub(super) enum Failure {
    Conflict,
    Log(LogError),
}

impl<E: Into<LogError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Log(error.into())
    }
}

impl RedisLog {
    pub(super) async fn append_one(&self, event: &Append) -> Result<Appended, Failure> {
        for _ in 0..MARKS {
            let marked =
                if event.recipients.is_empty() { None } else { Some(self.mark(&event.subject).await?) };
            if let Some(appended) = self.try_append(event, marked.as_deref()).await? {
                return Ok(appended);
            }
            self.forget_mark(&event.subject);
        }
        Err(LogError::Failed("the index of follow-ups could not be marked in time".to_owned()).into())
    }

    /// Nothing when the mark had become too old.
    async fn try_append(&self, event: &Append, marked: Option<&str>) -> Result<Option<Appended>, Failure> {
        let stream = stream_key(&self.redis, &event.subject);
        let helper = |name: &str| format!("{{{stream}}}:{name}");
        let (answers, expiries, follow_ups) = (helper("answers"), helper("expiries"), helper("follow-ups"));
        let (gone, listening) = (helper("gone"), helper("audience"));
        let keys = [stream.as_str(), &answers, &expiries, &follow_ups, &gone, &listening];
        let (keep, most_keys) = (event.keep.to_string(), self.options.most_keys.to_string());
        let once = event.once.as_ref();
        let record = if marked.is_some() { follow_up(event)? } else { Default::default() };
        let (now, audience) = (self.clock.now().max(1).to_string(), event.audience.to_string());
        let arguments: [&[u8]; 16] = [
            event.event_type.as_str().as_bytes(),
            event.data.as_str().as_bytes(),
            event.publisher.as_ref().map_or("", Id::as_str).as_bytes(),
            keep.as_bytes(),
            once.map_or("", |once| once.key.as_str()).as_bytes(),
            once.map_or(&[], |once| &once.digest),
            most_keys.as_bytes(),
            KEY_LIFE,
            record[0].as_bytes(),
            record[1].as_bytes(),
            record[2].as_bytes(),
            marked.unwrap_or("0").as_bytes(),
            &bus_channel(&stream).into_bytes(),
            now.as_bytes(),
            self.redis.instance().as_bytes(),
            audience.as_bytes(),
        ];
        // Without a key, nobody could tell a repetition from a second event.
        let answer = self.redis.run(&APPEND, Repeat::Never, &keys, &arguments).await?;
        let answer: Vec<Value> = take(answer)?;
        let mut answer = answer.into_iter();
        let mut text = || answer.next().map_or_else(|| Ok(String::new()), take::<String>);
        let outcome = text()?;
        match outcome.as_str() {
            "stored" | "again" => {
                let unreadable = || LogError::Failed("the answer of an append is not readable".to_owned());
                Ok(Some(Appended {
                    id: text()?.parse().map_err(|_| unreadable())?,
                    at: text()?.parse().map_err(|_| unreadable())?,
                    audience: text()?.parse().map_err(|_| unreadable())?,
                    duplicate: outcome == "again",
                }))
            }
            "conflict" => Err(Failure::Conflict),
            _ => Ok(None),
        }
    }
}

/// The follow-up record around the two things that only the script knows: the event's id and its time.
fn follow_up(event: &Append) -> Result<[String; 3], LogError> {
    const ID: &str = "\u{1}id\u{1}";
    let unwritable = |error: serde_json::Error| LogError::Failed(error.to_string());
    let record = FollowUp {
        v: 1,
        subject: event.subject.as_str().to_owned(),
        stream_id: ID.to_owned(),
        event_type: event.event_type.as_str().to_owned(),
        data: serde_json::value::RawValue::from_string(event.data.as_str().to_owned()).map_err(unwritable)?,
        publisher_id: event.publisher.clone(),
        timestamp: u64::MAX,
        recipients: event.recipients.clone(),
    };
    let record = serde_json::to_string(&record).map_err(unwritable)?;
    let time = u64::MAX.to_string();
    let id = serde_json::to_string(ID).map_err(unwritable)?;
    let id = id.trim_matches('"');
    // The first of the one and the last of the other: what the publisher wrote stands between them.
    let parts = record.split_once(id).and_then(|(before, rest)| {
        rest.rsplit_once(&time)
            .map(|(between, after)| [before.to_owned(), between.to_owned(), after.to_owned()])
    });
    parts.ok_or_else(|| LogError::Failed("the follow-up record cannot be written".to_owned()))
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::EventType;
    use bongsu_kernel::json::Object;

    use super::*;
    use crate::SubjectName;

    #[test]
    fn a_follow_up_is_cut_where_its_id_and_time_belong_whatever_the_data_says() {
        let data = format!("{{\"a\":\"\\u0001id\\u0001\",\"b\":{}}}", u64::MAX);
        let event = Append {
            subject: SubjectName::known("room:42"),
            event_type: EventType::new("a.b").unwrap(),
            data: Object::stored(&data).unwrap(),
            publisher: None,
            once: None,
            recipients: vec![Id::new("7").unwrap()],
            audience: 0,
            keep: 1,
        };
        let [before, between, after] = follow_up(&event).unwrap();
        let record = format!("{before}5-6{between}1700000000000{after}");
        let record: FollowUp = serde_json::from_str(&record).unwrap();
        assert_eq!((record.stream_id.as_str(), record.timestamp), ("5-6", 1_700_000_000_000));
        assert_eq!(record.data.get(), data);
        assert_eq!(record.recipients, event.recipients);
    }
}
