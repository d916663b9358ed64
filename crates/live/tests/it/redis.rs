//! The log in Redis: the contract on one server and on a Cluster, and what the bus adds to it.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::redis::{Options, RedisBus, RedisFollowUps, RedisLog};
use bongsu_live::log::{Bus, FollowUps, Sink};
use bongsu_live::{Log, SubjectName};
use bongsu_redis::{Address, Redis};
use bongsu_testkit::redis::{Cluster, Redis as Server};

use crate::log_contract::{Adapter, contract};

mod single {
    super::contract!(super::OnServer);
}

mod cluster {
    super::contract!(super::OnCluster);
}

pub(crate) struct Running {
    log: Arc<RedisLog>,
    bus: RedisBus,
    follow_ups: Arc<RedisFollowUps>,
    supervisor: Supervisor,
}

async fn open(url: &str, prefix: &str, clock: Clock, sink: Arc<dyn Sink>) -> Running {
    let supervisor = Supervisor::new();
    let address = Address::parse(url).unwrap();
    let redis = Redis::start(bongsu_redis::Options { address, prefix: prefix.to_owned() }, &supervisor);
    redis.look().await;
    let bus = RedisBus::start(redis.clone(), sink, clock.clone(), &supervisor);
    let follow_ups = Arc::new(RedisFollowUps::start(redis.clone(), &supervisor));
    let log = Arc::new(RedisLog::new(redis, Options { most_keys: 1_000_000 }, clock));
    Running { log, bus, follow_ups, supervisor }
}

async fn end(running: Running) {
    assert!(running.supervisor.shut_down(Duration::from_secs(60)).await, "a loop was left");
}

/// A server of its own, with a log that is synced before it answers.
pub(crate) struct OnServer(Server);

impl Adapter for OnServer {
    type Running = Running;

    async fn empty() -> Self {
        Self(Server::start().await)
    }

    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Running {
        open(&self.0.url(), "t:", clock, sink).await
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
        self.0.kill9().await;
        end(running).await;
        self.0.restart().await;
    }

    async fn follow_ups(&self) -> Vec<String> {
        follow_ups(std::slice::from_ref(&self.0)).await
    }
}

pub(crate) struct OnCluster(Cluster);

impl Adapter for OnCluster {
    type Running = Running;

    async fn empty() -> Self {
        Self(Cluster::start().await)
    }

    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Running {
        open(&self.0.url(), "t:", clock, sink).await
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
        for node in self.0.nodes() {
            node.kill9().await;
        }
        end(running).await;
        for node in self.0.nodes() {
            node.restart().await;
        }
        self.0.wait_ok().await;
    }

    async fn follow_ups(&self) -> Vec<String> {
        follow_ups(self.0.nodes()).await
    }
}

/// Found the way a worker finds them: by the index, which has to name every subject that has some.
async fn follow_ups(servers: &[Server]) -> Vec<String> {
    let ask = async |command: &[&str]| {
        for server in servers {
            let reply = server.command(command).await;
            if reply.error().is_none() {
                return reply;
            }
        }
        panic!("nobody answers {command:?}");
    };
    let mut records = Vec::new();
    for index in 0..16 {
        let key = format!("t:{{follow-ups:{index}}}");
        for subject in ask(&["ZRANGE", &key, "0", "-1"]).await.items() {
            let id = subject.text().split_once(':').unwrap().1.to_owned();
            let list = format!("t:{{t:room:events:{id}}}:follow-ups");
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
