//! The cache in Redis: a string `unread_count:<id>` and a hash `notif:settings:<id>` for every person.

use bongsu_kernel::Id;
use bongsu_redis::redis::{Cmd, cmd};
use bongsu_redis::{Redis, Repeat, Script};
use serde_json::{Map, Value};

use super::Cache;
use crate::Standing;
use crate::marks::redis::read;
use crate::marks::{Away, Boxed};
use crate::settings::Settings;

static REMEMBER: Script = Script::new("unread_remember", include_str!("../../lua/remember.lua"));
static ONE_READ: Script = Script::new("unread_one_read", include_str!("../../lua/one_read.lua"));
static SETTINGS_KEEP: Script = Script::new("settings_keep", include_str!("../../lua/settings_keep.lua"));

/// A standing is remembered for a day, in ms; settings for an hour, in seconds.
const STANDING_FOR: &[u8] = b"86400000";
const SETTINGS_FOR: &[u8] = b"3600";

/// See the module.
pub struct RedisCache(pub Redis);

impl RedisCache {
    fn standing_key(&self, person: &Id) -> String {
        self.0.key(format_args!("unread_count:{person}"))
    }

    fn settings_key(&self, person: &Id) -> String {
        self.0.key(format_args!("notif:settings:{person}"))
    }

    async fn ask<T: bongsu_redis::redis::FromRedisValue>(
        &self,
        name: &'static str,
        key: &str,
    ) -> Result<T, Away> {
        let mut command: Cmd = cmd(name);
        command.arg(key);
        read(self.0.ask(name, key, &command, Repeat::Safe).await?)
    }
}

/// As `remember.lua` writes it: count, version, last number.
fn standing(text: &str) -> Option<Standing> {
    let mut numbers = text.split(' ').map(|number| number.parse().ok());
    let (unread, version, last_seq) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(Standing { last_seq, unread, version })
}

impl Cache for RedisCache {
    fn remember<'a>(&'a self, person: &'a Id, standing: Standing) -> Boxed<'a, ()> {
        Box::pin(async move {
            let Standing { last_seq, unread, version } = standing;
            let numbers = [unread, version, last_seq].map(|number| number.to_string());
            let [unread, version, last] = numbers.each_ref().map(String::as_bytes);
            let arguments = [unread, version, last, STANDING_FOR];
            self.0.run(&REMEMBER, Repeat::Safe, &[&self.standing_key(person)], &arguments).await?;
            Ok(())
        })
    }

    fn standing<'a>(&'a self, person: &'a Id) -> Boxed<'a, Option<Standing>> {
        Box::pin(async move {
            let known: Option<String> = self.ask("get", &self.standing_key(person)).await?;
            Ok(known.as_deref().and_then(standing))
        })
    }

    fn one_read<'a>(&'a self, person: &'a Id) -> Boxed<'a, ()> {
        Box::pin(async move {
            // Twice would count it twice.
            self.0.run(&ONE_READ, Repeat::Never, &[&self.standing_key(person)], &[]).await?;
            Ok(())
        })
    }

    fn remember_settings<'a>(&'a self, person: &'a Id, settings: &'a Settings) -> Boxed<'a, ()> {
        Box::pin(async move {
            let unreadable = |_| Away("settings cannot be written".to_owned());
            let Value::Object(fields) = serde_json::to_value(settings).map_err(unreadable)? else {
                return Ok(());
            };
            let fields: Vec<[String; 2]> =
                fields.into_iter().map(|(name, value)| [name, value.to_string()]).collect();
            let mut arguments = vec![SETTINGS_FOR];
            arguments.extend(fields.iter().flatten().map(String::as_bytes));
            self.0.run(&SETTINGS_KEEP, Repeat::Safe, &[&self.settings_key(person)], &arguments).await?;
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
