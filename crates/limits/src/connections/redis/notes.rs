//! Gives back the connections of lost instances, also of people who never come again.
//!
//! Every instance notes in Redis whose connections it holds, a moment after the first one counts, and again with every
//! check, so that what Redis forgot is noted again. When an instance is lost, the first of the fleet goes through its note
//! and reports of each person what it holds itself; the script then drops what the lost instance held.

use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_redis::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use bongsu_redis::{Error, Repeat, Script};

use super::{BATCH_SIZE, Inner, unexpected};

static NOTE: Script = Script::new("connections_note", include_str!("../../../lua/note.lua"));

/// Time between two looks at who is in the fleet.
const FLEET_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Inner {
    /// The key of the instances that have a note.
    fn instances(&self) -> String {
        self.key("instances")
    }

    /// The key of the people whom an instance has noted.
    fn people_of(&self, instance: &str) -> String {
        self.key(&format!("people:{instance}"))
    }

    /// Notes that this instance has a note.
    pub(super) async fn note_instance(&self) -> Result<(), Error> {
        self.add(&self.instances(), &[self.redis.instance()]).await
    }

    /// Notes of some people whether this instance holds connections of theirs. Only [`Inner::tell_for_ever`] does this, so
    /// that no note is older than what it is about.
    pub(super) async fn note(&self, people: &[&Id]) -> Result<(), Error> {
        let noted: Vec<(&str, bool)> = {
            let held = self.held();
            people.iter().map(|person| (person.as_str(), held.counts(person))).collect()
        };
        let those = |are_held: bool| -> Vec<&str> {
            noted.iter().filter(|(_, is_held)| *is_held == are_held).map(|(person, _)| *person).collect()
        };
        let own = self.people_of(self.redis.instance());
        self.add(&own, &those(true)).await?;
        self.remove(&own, &those(false)).await
    }

    async fn add(&self, key: &str, members: &[&str]) -> Result<(), Error> {
        if !members.is_empty() {
            let words = std::iter::once(self.note_life.as_str()).chain(members.iter().copied());
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
        if alive.first().map(String::as_str) != Some(self.redis.instance()) {
            return Ok(());
        }
        let instances = self.instances();
        let noted: Vec<String> = self.ask("smembers", &instances, cmd("SMEMBERS").arg(&instances)).await?;
        for instance in noted.iter().filter(|noted| !alive.contains(noted)) {
            let (note, mut given_back) = (self.people_of(instance), 0);
            loop {
                let some = cmd("SRANDMEMBER").arg(&note).arg(BATCH_SIZE).take();
                let names: Vec<String> = self.ask("srandmember", &note, &some).await?;
                if names.is_empty() {
                    break;
                }
                let people: Result<Vec<Id>, _> = names.iter().map(|name| Id::new(name)).collect();
                self.report_all(&people.map_err(|_| unexpected("no id in a note"))?).await?;
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.remove(&note, &names).await?;
                given_back += names.len();
            }
            self.remove(&instances, &[instance]).await?;
            tracing::info!(instance, people = given_back, "gave back the connections of a lost instance");
        }
        Ok(())
    }
}
