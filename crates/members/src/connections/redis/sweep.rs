//! Gives back the connections of lost instances, also of people who never come again.
//!
//! Every instance notes in Redis whose connections it counts: a person before the first one is counted, and everybody with
//! every look, so that what Redis forgot is noted again. When an instance is lost, the first of the fleet goes through its
//! note and says of each person what it holds itself; the script then drops what the lost instance held.

use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_redis::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use bongsu_redis::{Error, Redis, Repeat, Script};
use futures_util::TryStreamExt;

use super::{AT_ONCE, GATHERED, Inner, LOOK, unexpected};

static NOTE: Script = Script::new("member_note", include_str!("../../../lua/note.lua"));

/// A note lives at least so long without being renewed.
const MIN_NOTE_LIFE: Duration = Duration::from_secs(4 * LOOK.as_secs());

/// The notes of all instances.
pub(super) struct Notes {
    redis: Redis,
    life: String,
}

impl Notes {
    /// Notes outlast the keys that they lead to, which live for two lifetimes of a connection.
    pub(super) fn new(redis: Redis, lifetime: Duration) -> Self {
        let life = (2 * lifetime).max(MIN_NOTE_LIFE);
        Self { redis, life: life.as_millis().to_string() }
    }

    fn instances(&self) -> String {
        self.redis.key("sse:notification:instances")
    }

    fn people_of(&self, instance: &str) -> String {
        self.redis.key(format_args!("sse:notification:people:{instance}"))
    }

    /// This instance counts connections of these people, and of others whom it noted one by one.
    pub(super) async fn add_all(&self, people: &[Id]) -> Result<(), Error> {
        let own = self.redis.instance();
        self.note(&self.instances(), &[own]).await?;
        for some in people.chunks(GATHERED) {
            let some: Vec<&str> = some.iter().map(Id::as_str).collect();
            self.note(&self.people_of(own), &some).await?;
        }
        Ok(())
    }

    pub(super) async fn add(&self, person: &Id) -> Result<(), Error> {
        self.note(&self.people_of(self.redis.instance()), &[person.as_str()]).await
    }

    async fn note(&self, key: &str, members: &[&str]) -> Result<(), Error> {
        let words = [self.life.as_str()].into_iter().chain(members.iter().copied());
        let arguments: Vec<&[u8]> = words.map(str::as_bytes).collect();
        self.redis.run(&NOTE, Repeat::Safe, &[key], &arguments).await?;
        Ok(())
    }

    /// This instance counts no connection of that person any more.
    pub(super) async fn remove(&self, person: &Id) -> Result<(), Error> {
        self.forget(self.redis.instance(), std::slice::from_ref(person)).await
    }

    async fn forget(&self, instance: &str, people: &[Id]) -> Result<(), Error> {
        let key = self.people_of(instance);
        let mut command = cmd("SREM");
        people.iter().fold(command.arg(&key), |command, person| command.arg(person.as_str()));
        self.ask::<i64>("srem", &key, &command).await?;
        Ok(())
    }

    async fn forget_instance(&self, instance: &str) -> Result<(), Error> {
        let key = self.instances();
        let mut command = cmd("SREM");
        command.arg(&key).arg(instance);
        self.ask::<i64>("srem", &key, &command).await?;
        Ok(())
    }

    async fn noted_instances(&self) -> Result<Vec<String>, Error> {
        let key = self.instances();
        let mut command = cmd("SMEMBERS");
        command.arg(&key);
        self.ask("smembers", &key, &command).await
    }

    /// Some of those whom an instance noted.
    async fn some_of(&self, instance: &str) -> Result<Vec<Id>, Error> {
        let key = self.people_of(instance);
        let mut command = cmd("SRANDMEMBER");
        command.arg(&key).arg(GATHERED);
        let people: Vec<String> = self.ask("srandmember", &key, &command).await?;
        people.iter().map(|person| Id::new(person).map_err(|_| unexpected("no id in a note"))).collect()
    }

    async fn ask<T: FromRedisValue>(&self, name: &'static str, key: &str, command: &Cmd) -> Result<T, Error> {
        from_redis_value(self.redis.ask(name, key, command, Repeat::Safe).await?).map_err(unexpected)
    }
}

impl Inner {
    /// Looks for lost instances when the fleet changes, and now and then: what failed is tried again.
    pub(super) async fn sweep_for_ever(&self) {
        let mut fleet = self.fleet.clone();
        loop {
            if let Ok(Err(_)) = tokio::time::timeout(LOOK, fleet.changed()).await {
                return std::future::pending().await;
            }
            fleet.mark_unchanged();
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "failed to give back connections of lost instances; retrying");
            }
        }
    }

    async fn sweep(&self) -> Result<(), Error> {
        let (_, alive) = self.alive();
        let own = self.redis.instance();
        if alive.first().map(String::as_str) != Some(own) {
            return Ok(());
        }
        for instance in self.notes.noted_instances().await?.iter().filter(|noted| !alive.contains(noted)) {
            let mut given_back = 0;
            loop {
                let people = self.notes.some_of(instance).await?;
                if people.is_empty() {
                    break;
                }
                let looks = people.iter().map(|person| self.look(person)).map(Ok).collect::<Vec<_>>();
                futures_util::stream::iter(looks).try_buffer_unordered(AT_ONCE).try_collect::<()>().await?;
                self.notes.forget(instance, &people).await?;
                given_back += people.len();
            }
            self.notes.forget_instance(instance).await?;
            tracing::info!(instance, people = given_back, "gave back the connections of a lost instance");
        }
        Ok(())
    }
}
