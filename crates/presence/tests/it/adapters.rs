//! The adapters, each held against the contract, and what only Redis promises: keys that other programs may read.

use std::sync::Arc;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_presence::Options;
use bongsu_presence::store::embedded::EmbeddedStore;
use bongsu_presence::store::redis::RedisStore;
use bongsu_presence::store::{Ears, Store};
use bongsu_redis::redis as client;
use bongsu_redis::{Redis, Repeat};
use bongsu_testkit::{Engine, wait};

use crate::store_contract::Adapter;
use crate::store_contract::stage::{LONG, Memory, ROOM, SHORT, tell};
use crate::support::{Instances, PATIENCE, Place, id, ids};

mod embedded {
    crate::store_contract::contract!(super::Embedded);
}

mod redis {
    crate::store_contract::contract!(super::OnRedis);
    crate::store_contract::fleet_contract!(super::OnRedis);
}

mod cluster {
    crate::store_contract::contract!(super::OnCluster);
    crate::store_contract::fleet_contract!(super::OnCluster);
}

pub(crate) struct Embedded;

impl Adapter for Embedded {
    async fn empty() -> Option<Self> {
        Some(Self)
    }

    fn open(&self, options: Options, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Arc<dyn Store> {
        EmbeddedStore::start(options, Clock::system(), ears, supervisor)
    }
}

impl Place {
    /// A store for an instance of which nobody knows.
    fn store(&self, options: Options, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Arc<dyn Store> {
        let fleet = Instances::default().fleet();
        Arc::new(RedisStore::new(options, self.redis(supervisor), fleet, ears))
    }
}

pub(crate) struct OnRedis(Place);

impl Adapter for OnRedis {
    async fn empty() -> Option<Self> {
        Place::shared(Engine::Redis).await.map(Self)
    }

    fn open(&self, options: Options, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Arc<dyn Store> {
        self.0.store(options, ears, supervisor)
    }
}

pub(crate) struct OnCluster(Place);

impl Adapter for OnCluster {
    async fn empty() -> Option<Self> {
        Place::shared(Engine::Cluster).await.map(Self)
    }

    fn open(&self, options: Options, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Arc<dyn Store> {
        self.0.store(options, ears, supervisor)
    }
}

#[tokio::test]
async fn other_programs_read_who_was_last_seen_when_and_the_keys_go_by_themselves() {
    let Some(place) = Place::shared(Engine::Redis).await else { return };
    let supervisor = Supervisor::new();
    let redis = place.redis(&supervisor);
    let store = place.store(LONG, Arc::new(Memory::default()), &supervisor);
    let before = time(&redis).await;
    tell(&store, &["7"], &[]).await;
    store.beat(&id(ROOM), &id("a:b")).await.unwrap();
    let key = redis.key(format_args!("presence:{ROOM}"));
    let mut people: Vec<(String, u64)> = ask(&redis, &["HGETALL", &key]).await;
    people.sort();
    assert_eq!(people.iter().map(|(person, _)| person.as_str()).collect::<Vec<_>>(), ["7", "a:b"]);
    assert!(people.iter().all(|(_, seen)| (before..before + 60_000).contains(seen)), "{people:?}");
    let keys: Vec<String> = ask(&redis, &["KEYS", &format!("*{}*", redis.key(""))]).await;
    assert_eq!(keys.len(), 4, "{keys:?}");
    for key in keys {
        let left: u64 = ask(&redis, &["PTTL", &key]).await;
        assert!((60_001..=120_000).contains(&left), "{key} lives for {left} ms");
    }
}

#[tokio::test]
async fn a_room_that_nobody_looks_at_leaves_nothing_behind() {
    let Some(place) = Place::shared(Engine::Redis).await else { return };
    let (supervisor, options) = (Supervisor::new(), Options { hash_ttl: 2 * SHORT.user_ttl, ..SHORT });
    let redis = place.redis(&supervisor);
    let store = place.store(options, Arc::new(Memory::default()), &supervisor);
    store.tell(&id(ROOM), &ids(&["1", "2"]), &[]).await.unwrap();
    store.tell(&id(ROOM), &[], &ids(&["1"])).await.unwrap();
    let left = async || ask::<Vec<String>>(&redis, &["KEYS", &format!("*{}*", redis.key(""))]).await;
    assert!(!left().await.is_empty());
    wait::until(PATIENCE, async || left().await.is_empty()).await;
}

async fn time(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = ask(redis, &["TIME"]).await;
    seconds * 1_000 + micros / 1_000
}

async fn ask<T: client::FromRedisValue>(redis: &Redis, words: &[&str]) -> T {
    let mut command = client::cmd(words[0]);
    command.arg(&words[1..]);
    client::from_redis_value(redis.ask("test", "", &command, Repeat::Safe).await.unwrap()).unwrap()
}
