//! The cache in Redis: a string `unread_count:<id>` and a hash `notif:settings:<id>` for every person.
//!
//! Standings are written behind those who asked for them, a few at a time.

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Outage};
use bongsu_redis::redis::{Cmd, cmd};
use bongsu_redis::{Redis, Repeat, Script};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::Cache;
use crate::Standing;
use crate::marks::Boxed;
use crate::marks::redis::read;
use crate::settings::Settings;

static REMEMBER: Script = Script::new("unread_remember", include_str!("../../lua/remember.lua"));
static ONE_READ: Script = Script::new("unread_one_read", include_str!("../../lua/one_read.lua"));
static SETTINGS_KEEP: Script = Script::new("settings_keep", include_str!("../../lua/settings_keep.lua"));

/// A standing is remembered for a day, in ms; settings for an hour, in seconds.
const STANDING_FOR: &[u8] = b"86400000";
const SETTINGS_FOR: &[u8] = b"3600";

/// Standings that wait to be remembered; what comes beyond is left out.
const QUEUE: usize = 4_096;
const AT_ONCE: usize = 64;

/// See the module.
pub struct RedisCache {
    redis: Redis,
    queue: mpsc::Sender<(Id, Standing)>,
}

impl RedisCache {
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

impl Cache for RedisCache {
    fn remember(&self, person: &Id, standing: Standing) {
        let _ = self.queue.try_send((person.clone(), standing));
    }

    fn standing<'a>(&'a self, person: &'a Id) -> Boxed<'a, Option<Standing>> {
        Box::pin(async move {
            let known: Option<String> = self.ask("get", &standing_key(&self.redis, person)).await?;
            Ok(known.as_deref().and_then(standing))
        })
    }

    fn one_read<'a>(&'a self, person: &'a Id) -> Boxed<'a, ()> {
        Box::pin(async move {
            // Twice would count it twice.
            self.redis.run(&ONE_READ, Repeat::Never, &[&standing_key(&self.redis, person)], &[]).await?;
            Ok(())
        })
    }

    fn remember_settings<'a>(&'a self, person: &'a Id, settings: &'a Settings) -> Boxed<'a, ()> {
        Box::pin(async move {
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
        })
    }

    fn settings<'a>(&'a self, person: &'a Id) -> Boxed<'a, Option<Settings>> {
        Box::pin(async move {
            let fields: Vec<(String, String)> = self.ask("hgetall", &self.settings_key(person)).await?;
            let fields: Option<Map<String, Value>> = fields
                .into_iter()
                .map(|(name, value)| Some((name, serde_json::from_str(&value).ok()?)))
                .collect();
            // What another program may have written there is none of ours.
            let known = fields.filter(|fields| !fields.is_empty());
            Ok(known.and_then(|known| serde_json::from_value(Value::Object(known)).ok()))
        })
    }

    fn forget_settings<'a>(&'a self, person: &'a Id) -> Boxed<'a, ()> {
        Box::pin(async move { self.ask::<i64>("del", &self.settings_key(person)).await.map(|_| ()) })
    }
}
