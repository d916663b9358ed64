//! The log in Redis: the contract on one server and on a Cluster, and what the bus adds to it.

mod foreign;
mod index;
mod keys;
mod membership;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, random};
use bongsu_live::log::redis::{RedisBus, RedisFollowUps, RedisLog};
use bongsu_live::log::{Bus, FollowUps, Sink};
use bongsu_live::{Log, SubjectName};
use bongsu_redis::{Address, Redis};
use bongsu_testkit::redis::{Client, Cluster, Redis as Server, Reply};
use bongsu_testkit::{Engine, tier};

use crate::log_contract::{Adapter, contract};

mod single {
    super::contract!(super::OnRedis<super::Server>);
}

mod cluster {
    super::contract!(super::OnRedis<super::Cluster>);
}

pub(crate) struct Running {
    log: Arc<RedisLog>,
    bus: RedisBus,
    follow_ups: Arc<RedisFollowUps>,
    supervisor: Supervisor,
}

async fn open((url, prefix): (&str, &str), most_keys: u64, clock: Clock, sink: Arc<dyn Sink>) -> Running {
    let supervisor = Supervisor::new();
    let address = Address::parse(url).unwrap();
    let redis = Redis::start(bongsu_redis::Options { address, prefix: prefix.to_owned() }, &supervisor);
    redis.look().await;
    let bus = RedisBus::start(redis.clone(), sink, clock.clone(), &supervisor);
    let follow_ups = Arc::new(RedisFollowUps::new(redis.clone()));
    let log = Arc::new(RedisLog::start(redis, most_keys, clock, &supervisor));
    Running { log, bus, follow_ups, supervisor }
}

async fn end(running: Running) {
    assert!(running.supervisor.shut_down(Duration::from_secs(60)).await, "a loop was left");
}

/// Servers that a test can kill.
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

/// A log below a prefix of its own, on the servers that all tests share, or on the test's own, which it can kill.
pub(crate) struct OnRedis<S> {
    url: String,
    prefix: String,
    most_keys: u64,
    own: Option<S>,
}

impl OnRedis<Server> {
    /// Sends a command as another program would.
    async fn command(&self, words: &[impl AsRef<[u8]>]) -> Reply {
        let address = self.url.rsplit('/').next().unwrap().parse().unwrap();
        Client::connect(address).await.unwrap().call(words).await.unwrap()
    }
}

impl<S: Servers> Adapter for OnRedis<S> {
    type Running = Running;

    fn is_available() -> bool {
        tier::needs_engine("redis")
    }

    async fn empty() -> Self {
        let url = S::ENGINE.shared_url().await.expect("an engine that tests share");
        let prefix = format!("live{:016x}:", random::between(0, u64::MAX - 1));
        Self { url, prefix, most_keys: 1_000_000, own: None }
    }

    async fn mortal() -> Self {
        let own = S::start().await;
        Self { url: own.url(), prefix: "t:".to_owned(), most_keys: 1_000_000, own: Some(own) }
    }

    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Running {
        open((&self.url, &self.prefix), self.most_keys, clock, sink).await
    }

    fn log(running: &Running) -> Arc<dyn Log> {
        running.log.clone()
    }

    fn seen_to(running: &Running) -> Arc<dyn FollowUps> {
        running.follow_ups.clone()
    }

    async fn listen(running: &Running, subject: &SubjectName) {
        running.bus.listen(subject).await.unwrap();
    }

    async fn close(&self, running: Running) {
        end(running).await;
    }

    async fn kill(&mut self, running: Running) {
        let own = self.own.as_ref().expect("servers of the test's own: others use the shared ones meanwhile");
        own.kill().await;
        end(running).await;
        own.restart().await;
    }

    async fn follow_ups(&self) -> Vec<String> {
        follow_ups(&self.url, &self.prefix).await
    }
}

/// Found the way a worker finds them: by the index, which has to name every subject that has some.
async fn follow_ups(url: &str, prefix: &str) -> Vec<String> {
    let nodes: Vec<SocketAddr> = url.split(['/', ',']).filter_map(|part| part.parse().ok()).collect();
    let ask = async |command: &[&str]| {
        for node in &nodes {
            let reply = Client::connect(*node).await.unwrap().call(command).await.unwrap();
            if reply.error().is_none() {
                return reply;
            }
        }
        panic!("nobody answers {command:?}");
    };
    let mut records = Vec::new();
    for index in 0..16 {
        let key = format!("{prefix}{{follow-ups:{index}}}");
        for subject in ask(&["ZRANGE", &key, "0", "-1"]).await.items() {
            let id = subject.text().split_once(':').unwrap().1.to_owned();
            let list = format!("{prefix}{{{prefix}room:events:{id}}}:follow-ups");
            let found = ask(&["LRANGE", &list, "0", "-1"]).await;
            records.extend(found.items().iter().map(|record| record.text().to_owned()));
        }
    }
    // Over all subjects in the order of their events, as one log would have them.
    records.sort_by_key(|record| {
        let record: bongsu_live::log::FollowUp = serde_json::from_str(record).unwrap();
        let (ms, seq) = record.stream_id.split_once('-').unwrap();
        (ms.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap())
    });
    records
}
