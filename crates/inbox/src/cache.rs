//! What is known of the records without asking them: where inboxes stood, and settings. It is in Redis: a string
//! `unread_count:<id>` and a hash `notif:settings:<id>` for every person.
//!
//! The records are always asked first, so nothing here has to be right for long: it is what people see while the records are
//! away. Standings are written behind those who asked for them, a few at a time.

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Outage};
use bongsu_redis::redis::{Cmd, cmd};
use bongsu_redis::{Redis, Repeat, Script};
use bongsu_sql::Error;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::marks::redis::read;
use crate::settings::Settings;
use crate::{Inbox, Standing};

static REMEMBER: Script = Script::new("unread_remember", include_str!("../lua/remember.lua"));
static ONE_READ: Script = Script::new("unread_one_read", include_str!("../lua/one_read.lua"));
static SETTINGS_KEEP: Script = Script::new("settings_keep", include_str!("../lua/settings_keep.lua"));

/// A standing is remembered for a day, in ms; settings for an hour, in seconds.
const STANDING_FOR: &[u8] = b"86400000";
const SETTINGS_FOR: &[u8] = b"3600";

/// Standings that wait to be remembered; what comes beyond is left out.
const QUEUE: usize = 4_096;
const AT_ONCE: usize = 64;

/// Losing any of it costs nothing but an answer while the records are away.
pub struct Cache {
    redis: Redis,
    queue: mpsc::Sender<(Id, Standing)>,
}

impl Cache {
    pub fn start(redis: Redis, supervisor: &Supervisor) -> Self {
        let writer = redis.clone();
        let queue =
            supervisor.queue("inbox-cache", (QUEUE, AT_ONCE), move |some| remember(writer.clone(), some));
        Self { redis, queue }
    }

    fn settings_key(&self, person: &Id) -> String {
        self.redis.key(format_args!("notif:settings:{person}"))
    }

    async fn ask<T: bongsu_redis::redis::FromRedisValue>(
        &self,
        name: &'static str,
        key: &str,
    ) -> Result<T, Outage> {
        let mut command: Cmd = cmd(name);
        command.arg(key);
        read(self.redis.ask(name, key, &command, Repeat::Safe).await?)
    }

    /// Remembers where an inbox stood, unless a newer standing is known. Soon, and not for certain: nobody waits for it.
    pub(crate) fn remember(&self, person: &Id, standing: Standing) {
        let _ = self.queue.try_send((person.clone(), standing));
    }

    async fn standing(&self, person: &Id) -> Result<Option<Standing>, Outage> {
        let known: Option<String> = self.ask("get", &standing_key(&self.redis, person)).await?;
        Ok(known.as_deref().and_then(standing))
    }

    /// One more entry was read that the standing counts.
    pub(crate) async fn one_read(&self, person: &Id) -> Result<(), Outage> {
        // Twice would count it twice.
        self.redis.run(&ONE_READ, Repeat::Never, &[&standing_key(&self.redis, person)], &[]).await?;
        Ok(())
    }

    pub(crate) async fn remember_settings(&self, person: &Id, settings: &Settings) -> Result<(), Outage> {
        let unreadable = |_| Outage("settings cannot be written".to_owned());
        let Value::Object(fields) = serde_json::to_value(settings).map_err(unreadable)? else {
            return Ok(());
        };
        let fields: Vec<[String; 2]> =
            fields.into_iter().map(|(name, value)| [name, value.to_string()]).collect();
        let mut arguments = vec![SETTINGS_FOR];
        arguments.extend(fields.iter().flatten().map(String::as_bytes));
        self.redis.run(&SETTINGS_KEEP, Repeat::Safe, &[&self.settings_key(person)], &arguments).await?;
        Ok(())
    }

    pub(crate) async fn settings(&self, person: &Id) -> Result<Option<Settings>, Outage> {
        let fields: Vec<(String, String)> = self.ask("hgetall", &self.settings_key(person)).await?;
        let fields: Option<Map<String, Value>> = fields
            .into_iter()
            .map(|(name, value)| Some((name, serde_json::from_str(&value).ok()?)))
            .collect();
        // What another program may have written there is none of ours.
        let known = fields.filter(|fields| !fields.is_empty());
        Ok(known.and_then(|known| serde_json::from_value(Value::Object(known)).ok()))
    }

    /// They were changed.
    pub(crate) async fn forget_settings(&self, person: &Id) -> Result<(), Outage> {
        self.ask::<i64>("del", &self.settings_key(person)).await.map(drop)
    }
}

fn standing_key(redis: &Redis, person: &Id) -> String {
    redis.key(format_args!("unread_count:{person}"))
}

async fn remember(redis: Redis, some: Vec<(Id, Standing)>) {
    let redis = &redis;
    let writing = some.into_iter().map(|(person, standing)| async move {
        let Standing { last_seq, unread, version } = standing;
        let numbers = [unread, version, last_seq].map(|number| number.to_string());
        let [unread, version, last] = numbers.each_ref().map(String::as_bytes);
        let (key, arguments) = (standing_key(redis, &person), [unread, version, last, STANDING_FOR]);
        // What is not remembered is missed only while the records are away.
        let _ = redis.run(&REMEMBER, Repeat::Safe, &[&key], &arguments).await;
    });
    futures_util::future::join_all(writing).await;
}

/// As `remember.lua` writes it: count, version, last number.
fn standing(text: &str) -> Option<Standing> {
    let mut numbers = text.split(' ').map(|number| number.parse().ok());
    let (unread, version, last_seq) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(Standing { last_seq, unread, version })
}

/// Where an inbox stands, and how that is known.
pub(crate) enum Known {
    /// By the records, and by what waits to be written there.
    Now(Standing),
    /// The records are away: as it was when somebody looked last.
    Then(Standing),
}

impl Inbox {
    pub(crate) async fn known(&self, person: &Id) -> Result<Known, Error> {
        let found = self.recorded(person).await;
        let Some(cache) = self.cache() else { return found.map(Known::Now) };
        match found {
            Ok(standing) => {
                cache.remember(person, standing);
                Ok(Known::Now(standing))
            }
            Err(error) if error.may_pass() => self.remembered(person).await.map(Known::Then).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Where an inbox stood when somebody looked last.
    pub(crate) async fn remembered(&self, person: &Id) -> Option<Standing> {
        self.cache()?.standing(person).await.ok().flatten()
    }
}
