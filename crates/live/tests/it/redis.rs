//! The log in Redis: the contract of the port on one server and on a Cluster, and the guarantees of this
//! adapter alone.

mod foreign_entries;
mod index;
mod key_limit;
mod membership;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, random};
use bongsu_live::log::redis::{RedisBus, RedisFollowUps, RedisLog};
use bongsu_live::log::{Bus, FollowUps, Sink};
use bongsu_live::{Log, SubjectName};
use bongsu_redis::{Redis, RedisAddress};
use bongsu_testkit::redis::{Client, Cluster, Redis as Server, Reply};
use bongsu_testkit::{Engine, tier};

use crate::log_contract::{Adapter, contract};

mod single {
    super::contract!(super::RedisAdapter<super::Server>);
}

mod cluster {
    super::contract!(super::RedisAdapter<super::Cluster>);
}

pub(crate) struct Running {
    log: Arc<RedisLog>,
    bus: RedisBus,
    follow_ups: Arc<RedisFollowUps>,
    supervisor: Supervisor,
}

async fn open((url, prefix): (&str, &str), max_keys: u64, clock: Clock, sink: Arc<dyn Sink>) -> Running {
    let supervisor = Supervisor::new();
    let address = RedisAddress::parse(url).unwrap();
    let redis = Redis::start(bongsu_redis::Options { address, prefix: prefix.to_owned() }, &supervisor);
    redis.check_servers().await;
    let bus = RedisBus::start(redis.clone(), sink, clock.clone(), &supervisor);
    let follow_ups = Arc::new(RedisFollowUps::new(redis.clone()));
    let log = Arc::new(RedisLog::start(redis, max_keys, clock, &supervisor));
    Running { log, bus, follow_ups, supervisor }
}

async fn shut_down(running: Running) {
    assert!(running.supervisor.shut_down(Duration::from_secs(60)).await, "a loop is still running");
}

/// One server or a Cluster, which a test can kill.
pub(crate) trait Servers: Sized {
    const ENGINE: Engine;
    async fn start() -> Self;
    fn url(&self) -> String;
    async fn kill(&self);
    async fn restart(&self);
}

impl Servers for Server {
    const ENGINE: Engine = Engine::Redis;

    async fn start() -> Self {
        Self::start().await
    }

    fn url(&self) -> String {
        self.url()
    }

    async fn kill(&self) {
        self.kill9().await;
    }

    async fn restart(&self) {
        self.restart().await;
    }
}

impl Servers for Cluster {
    const ENGINE: Engine = Engine::Cluster;

    async fn start() -> Self {
        Self::start().await
    }

    fn url(&self) -> String {
        self.url()
    }

    async fn kill(&self) {
        for node in self.nodes() {
            node.kill9().await;
        }
    }

    async fn restart(&self) {
        for node in self.nodes() {
            node.restart().await;
        }
        self.wait_ok().await;
    }
}

/// The storage of a log under a prefix of its own: on the servers that all tests share, or on servers of the test that
/// can be killed.
pub(crate) struct RedisAdapter<S> {
    url: String,
    prefix: String,
    max_keys: u64,
    own: Option<S>,
}

impl RedisAdapter<Server> {
    /// Sends a command as another program would.
    async fn command(&self, words: &[impl AsRef<[u8]>]) -> Reply {
        let address = self.url.rsplit('/').next().unwrap().parse().unwrap();
        Client::connect(address).await.unwrap().call(words).await.unwrap()
    }
}

impl<S: Servers> Adapter for RedisAdapter<S> {
    type Running = Running;

    fn is_available() -> bool {
        tier::needs_engine("redis")
    }

    async fn empty() -> Self {
        let url = S::ENGINE.shared_url().await.expect("a shared engine");
        let prefix = format!("live{:016x}:", random::between(0, u64::MAX - 1));
        Self { url, prefix, max_keys: 1_000_000, own: None }
    }

    async fn killable() -> Self {
        let own = S::start().await;
        Self { url: own.url(), prefix: "t:".to_owned(), max_keys: 1_000_000, own: Some(own) }
    }

    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Running {
        open((&self.url, &self.prefix), self.max_keys, clock, sink).await
    }

    fn log(running: &Running) -> Arc<dyn Log> {
        running.log.clone()
    }

    fn follow_ups(running: &Running) -> Arc<dyn FollowUps> {
        running.follow_ups.clone()
    }

    async fn subscribe(running: &Running, subject: &SubjectName) {
        running.bus.subscribe(subject).await.unwrap();
    }

    async fn close(&self, running: Running) {
        shut_down(running).await;
    }

    async fn kill(&mut self, running: Running) {
        let own = self.own.as_ref().expect("only servers of the test itself can be killed");
        own.kill().await;
        shut_down(running).await;
        own.restart().await;
    }

    async fn stored_follow_ups(&self) -> Vec<String> {
        stored_follow_ups(&self.url, &self.prefix).await
    }
}

/// Reads the follow-up records of all subjects that the index names, which must be all subjects with records.
async fn stored_follow_ups(url: &str, prefix: &str) -> Vec<String> {
    let nodes: Vec<SocketAddr> = url.split(['/', ',']).filter_map(|part| part.parse().ok()).collect();
    let call = async |command: &[&str]| {
        for node in &nodes {
            let reply = Client::connect(*node).await.unwrap().call(command).await.unwrap();
            if reply.error().is_none() {
                return reply;
            }
        }
        panic!("no server answers {command:?}");
    };
    let mut records = Vec::new();
    for index in 0..16 {
        let key = format!("{prefix}{{follow-ups:{index}}}");
        for subject in call(&["ZRANGE", &key, "0", "-1"]).await.items() {
            let id = subject.text().split_once(':').unwrap().1.to_owned();
            let list = format!("{prefix}{{{prefix}room:events:{id}}}:follow-ups");
            let found = call(&["LRANGE", &list, "0", "-1"]).await;
            records.extend(found.items().iter().map(|record| record.text().to_owned()));
        }
    }
    // Sorted by event id over all subjects, like the records of the embedded log.
    records.sort_by_key(|record| {
        let record: bongsu_live::log::FollowUp = serde_json::from_str(record).unwrap();
        let (ms, seq) = record.stream_id.split_once('-').unwrap();
        (ms.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap())
    });
    records
}
