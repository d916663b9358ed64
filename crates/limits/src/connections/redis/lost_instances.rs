//! Removes the connections of lost instances, even of persons who do not connect again.
//!
//! Every instance keeps an index in Redis: the set of persons with counted connections on it. The index is updated
//! after every change, and by every check, which restores what Redis has lost. When an instance is lost, the first
//! instance of the fleet reports its own connections of each person in that index; the script then drops the
//! connections of the lost instance.

use std::time::{Duration, Instant};

use bongsu_kernel::{Id, lock};
use bongsu_redis::redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use bongsu_redis::{Error, Repeat, Script};

use super::{BATCH_SIZE, Inner, unexpected};

type Result<T, E = Error> = std::result::Result<T, E>;

static ADD_TO_SET: Script = Script::new("connections_note", include_str!("../../../lua/add_to_set.lua"));

/// Time between two reads of the list of live instances.
const FLEET_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Inner {
    /// The key of the set of instances that have an index.
    fn instances_key(&self) -> String {
        self.key("instances")
    }

    /// The key of the index of an instance.
    fn index_key(&self, instance: &str) -> String {
        self.key(&format!("people:{instance}"))
    }

    /// Adds this instance to the set of instances that have an index.
    pub(super) async fn index_instance(&self) -> Result<()> {
        self.add(&self.instances_key(), &[self.redis.instance()]).await
    }

    /// Adds persons with counted connections to the index of this instance, and removes the others from it. Only
    /// [`Inner::send_changes`] calls this, so that an update never overwrites a newer one.
    pub(super) async fn update_index(&self, people: &[&Id]) -> Result<()> {
        let (counted, others): (Vec<&Id>, Vec<&Id>) = {
            let held = lock(&self.held);
            people.iter().partition(|person| held.has_counted(person))
        };
        let [counted, others] =
            [counted, others].map(|people| -> Vec<&str> { people.into_iter().map(Id::as_str).collect() });
        let index = self.index_key(self.redis.instance());
        self.add(&index, &counted).await?;
        self.remove(&index, &others).await
    }

    async fn add(&self, key: &str, members: &[&str]) -> Result<()> {
        if !members.is_empty() {
            let texts = std::iter::once(self.index_ttl.as_str()).chain(members.iter().copied());
            let arguments: Vec<&[u8]> = texts.map(str::as_bytes).collect();
            self.redis.run(&ADD_TO_SET, Repeat::Safe, &[key], &arguments).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: &str, members: &[&str]) -> Result<()> {
        if !members.is_empty() {
            self.query::<i64>("srem", key, cmd("SREM").arg(key).arg(members)).await?;
        }
        Ok(())
    }

    async fn query<T: FromRedisValue>(&self, name: &'static str, key: &str, command: &Cmd) -> Result<T> {
        from_redis_value(self.redis.query(name, key, command, Repeat::Safe).await?).map_err(unexpected)
    }

    /// Removes the connections of lost instances when the fleet changes, and again after every check interval, in case
    /// a sweep failed.
    pub(super) async fn run_sweeps(&self) {
        let (mut swept, mut due) = (Vec::new(), Instant::now());
        loop {
            tokio::time::sleep(FLEET_POLL_INTERVAL).await;
            let alive = (self.fleet)().instances;
            if alive == swept && Instant::now() < due {
                continue;
            }
            if let Err(error) = self.sweep(&alive).await {
                tracing::warn!(%error, "failed to remove the connections of lost instances; retrying at the next sweep");
            }
            (swept, due) = (alive, Instant::now() + self.check_interval);
        }
    }

    async fn sweep(&self, alive: &[String]) -> Result<()> {
        if alive.first().map(String::as_str) != Some(self.redis.instance()) {
            return Ok(());
        }
        let instances = self.instances_key();
        let indexed: Vec<String> =
            self.query("smembers", &instances, cmd("SMEMBERS").arg(&instances)).await?;
        for instance in indexed.iter().filter(|instance| !alive.contains(instance)) {
            let (index, mut removed) = (self.index_key(instance), 0);
            loop {
                let command = cmd("SRANDMEMBER").arg(&index).arg(BATCH_SIZE).take();
                let names: Vec<String> = self.query("srandmember", &index, &command).await?;
                if names.is_empty() {
                    break;
                }
                let people: Result<Vec<Id>, _> = names.iter().map(|name| Id::new(name)).collect();
                let people =
                    people.map_err(|_| unexpected("an index of connections has an invalid person id"));
                self.report_all(&people?).await?;
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                self.remove(&index, &names).await?;
                removed += names.len();
            }
            self.remove(&instances, &[instance]).await?;
            tracing::info!(instance, people = removed, "removed the connections of a lost instance");
        }
        Ok(())
    }
}
