//! Gives back the connections of lost instances, also of people who never come again.
//!
//! Every instance notes in Redis whose connections it holds, a moment after the first one counts, and again with every
//! check, so that what Redis forgot is noted again. When an instance is lost, the first of the fleet goes through its note
//! and reports of each person what it holds itself; the script then drops what the lost instance held.

use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_redis::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use bongsu_redis::{Error, Redis, Repeat, Script};

use super::{BATCH_SIZE, Inner, unexpected};

static NOTE: Script = Script::new("connections_note", include_str!("../../../lua/note.lua"));

/// Time between two looks at who is in the fleet.
const FLEET_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The notes of all instances.
pub(super) struct Notes {
    pub(super) redis: Redis,
    /// The name of the limit.
    pub(super) name: &'static str,
    /// How long a note lives after it was written to, in milliseconds.
    pub(super) life: String,
}

impl Notes {
    fn instances(&self) -> String {
        self.redis.key(format_args!("{}:instances", self.name))
    }

    fn people_of(&self, instance: &str) -> String {
        self.redis.key(format_args!("{}:people:{instance}", self.name))
    }

    /// This instance has a note.
    pub(super) async fn add_instance(&self) -> Result<(), Error> {
        self.add(&self.instances(), &[self.redis.instance()]).await
    }

    /// This instance holds connections of some people, and of others no longer.
    pub(super) async fn update(&self, held: &[&str], gone: &[&str]) -> Result<(), Error> {
        let own = self.people_of(self.redis.instance());
        self.add(&own, held).await?;
        self.remove(&own, gone).await
    }

    async fn add(&self, key: &str, members: &[&str]) -> Result<(), Error> {
        if !members.is_empty() {
            let words = std::iter::once(self.life.as_str()).chain(members.iter().copied());
            let arguments: Vec<&[u8]> = words.map(str::as_bytes).collect();
            self.redis.run(&NOTE, Repeat::Safe, &[key], &arguments).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: &str, members: &[&str]) -> Result<(), Error> {
        if !members.is_empty() {
            self.ask::<i64>("srem", key, cmd("SREM").arg(key).arg(members)).await?;
        }
        Ok(())
    }

    async fn ask<T: FromRedisValue>(&self, name: &'static str, key: &str, command: &Cmd) -> Result<T, Error> {
        from_redis_value(self.redis.ask(name, key, command, Repeat::Safe).await?).map_err(unexpected)
    }
}

impl Inner {
    /// Looks for lost instances when the fleet changes, and now and then: what failed is tried again.
    pub(super) async fn sweep_for_ever(&self) {
        let (mut swept, mut due) = (Vec::new(), Instant::now());
        loop {
            tokio::time::sleep(FLEET_POLL_INTERVAL).await;
            let alive = (self.fleet)().instances;
            if alive == swept && Instant::now() < due {
                continue;
            }
            if let Err(error) = self.sweep(&alive).await {
                tracing::warn!(%error, "failed to give back connections of lost instances; retrying");
            }
            (swept, due) = (alive, Instant::now() + self.check_interval);
        }
    }

    async fn sweep(&self, alive: &[String]) -> Result<(), Error> {
        let Notes { redis, .. } = &self.notes;
        if alive.first().map(String::as_str) != Some(redis.instance()) {
            return Ok(());
        }
        let instances = self.notes.instances();
        let noted: Vec<String> =
            self.notes.ask("smembers", &instances, cmd("SMEMBERS").arg(&instances)).await?;
        for instance in noted.iter().filter(|noted| !alive.contains(noted)) {
            let (note, mut given_back) = (self.notes.people_of(instance), 0);
            loop {
                let some = cmd("SRANDMEMBER").arg(&note).arg(BATCH_SIZE).take();
                let names: Vec<String> = self.notes.ask("srandmember", &note, &some).await?;
                if names.is_empty() {
                    break;
                }
                let people: Result<Vec<Id>, _> = names.iter().map(|name| Id::new(name)).collect();
                self.report_all(&people.map_err(|_| unexpected("no id in a note"))?).await?;
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.notes.remove(&note, &names).await?;
                given_back += names.len();
            }
            self.notes.remove(&instances, &[instance]).await?;
            tracing::info!(instance, people = given_back, "gave back the connections of a lost instance");
        }
        Ok(())
    }
}
