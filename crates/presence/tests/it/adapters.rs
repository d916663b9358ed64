//! The contract on every adapter, and tests of the keys in Redis, which other programs may read.

use std::sync::Arc;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_presence::Options;
use bongsu_presence::store::embedded::EmbeddedStore;
use bongsu_presence::store::redis::RedisStore;
use bongsu_presence::store::{PresenceListener, PresenceStore};
use bongsu_redis::redis as client;
use bongsu_redis::{Redis, Repeat};
use bongsu_testkit::{Engine, wait};

use crate::store_contract::Adapter;
use crate::store_contract::fixture::{LONG_LEASES, ROOM, RecordingListener, SHORT_LEASES, report};
use crate::support::{RedisNamespace, TestFleet, WAIT_TIMEOUT, id, ids};

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
    async fn create() -> Option<Self> {
        Some(Self)
    }

    fn open(
        &self,
        options: Options,
        listener: Arc<dyn PresenceListener>,
        supervisor: &Supervisor,
    ) -> Arc<dyn PresenceStore> {
        EmbeddedStore::start(options, Clock::system(), listener, supervisor)
    }
}

impl RedisNamespace {
    /// A store of an instance that is not in the registry.
    fn store(
        &self,
        options: Options,
        listener: Arc<dyn PresenceListener>,
        supervisor: &Supervisor,
    ) -> Arc<dyn PresenceStore> {
        let fleet = TestFleet::default().fleet();
        Arc::new(RedisStore::new(options, self.redis(supervisor), fleet, listener))
    }
}

pub(crate) struct OnRedis(RedisNamespace);

impl Adapter for OnRedis {
    async fn create() -> Option<Self> {
        RedisNamespace::shared(Engine::Redis).await.map(Self)
    }

    fn open(
        &self,
        options: Options,
        listener: Arc<dyn PresenceListener>,
        supervisor: &Supervisor,
    ) -> Arc<dyn PresenceStore> {
        self.0.store(options, listener, supervisor)
    }
}

pub(crate) struct OnCluster(RedisNamespace);

impl Adapter for OnCluster {
    async fn create() -> Option<Self> {
        RedisNamespace::shared(Engine::Cluster).await.map(Self)
    }

    fn open(
        &self,
        options: Options,
        listener: Arc<dyn PresenceListener>,
        supervisor: &Supervisor,
    ) -> Arc<dyn PresenceStore> {
        self.0.store(options, listener, supervisor)
    }
}

#[tokio::test]
async fn other_programs_can_read_the_presence_hash_and_all_keys_expire() {
    let Some(namespace) = RedisNamespace::shared(Engine::Redis).await else { return };
    let supervisor = Supervisor::new();
    let redis = namespace.redis(&supervisor);
    let store = namespace.store(LONG_LEASES, Arc::new(RecordingListener::default()), &supervisor);
    let before = redis_time(&redis).await;
    report(&store, &["7"], &[]).await;
    store.heartbeat(&id(ROOM), &id("a:b")).await.unwrap();
    let key = redis.key(format_args!("presence:{ROOM}"));
    let mut people: Vec<(String, u64)> = query(&redis, &["HGETALL", &key]).await;
    people.sort();
    assert_eq!(people.iter().map(|(person, _)| person.as_str()).collect::<Vec<_>>(), ["7", "a:b"]);
    assert!(people.iter().all(|(_, seen)| (before..before + 60_000).contains(seen)), "{people:?}");
    let keys: Vec<String> = query(&redis, &["KEYS", &format!("*{}*", redis.key(""))]).await;
    assert_eq!(keys.len(), 4, "{keys:?}");
    for key in keys {
        let ttl: u64 = query(&redis, &["PTTL", &key]).await;
        assert!((60_001..=120_000).contains(&ttl), "{key} expires in {ttl} ms");
    }
}

#[tokio::test]
async fn the_keys_of_a_room_without_reports_expire() {
    let Some(namespace) = RedisNamespace::shared(Engine::Redis).await else { return };
    let (supervisor, options) =
        (Supervisor::new(), Options { hash_ttl: 2 * SHORT_LEASES.user_ttl, ..SHORT_LEASES });
    let redis = namespace.redis(&supervisor);
    let store = namespace.store(options, Arc::new(RecordingListener::default()), &supervisor);
    store.report(&id(ROOM), &ids(&["1", "2"]), &[]).await.unwrap();
    store.report(&id(ROOM), &[], &ids(&["1"])).await.unwrap();
    let keys = async || query::<Vec<String>>(&redis, &["KEYS", &format!("*{}*", redis.key(""))]).await;
    assert!(!keys().await.is_empty());
    wait::until(WAIT_TIMEOUT, async || keys().await.is_empty()).await;
}

async fn redis_time(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = query(redis, &["TIME"]).await;
    seconds * 1_000 + micros / 1_000
}

async fn query<T: client::FromRedisValue>(redis: &Redis, command: &[&str]) -> T {
    let [name, arguments @ ..] = command else { panic!("no command") };
    let mut command = client::cmd(name);
    command.arg(arguments);
    client::from_redis_value(redis.query("test", "", &command, Repeat::Safe).await.unwrap()).unwrap()
}
