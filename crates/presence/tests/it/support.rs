//! Helpers of all tests: ids, key prefixes in Redis, instances that can be shut down or killed, and recorded
//! updates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bongsu_coordination::registry::{Fleet, Instance, InstanceInfo, RecordsLocation};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, random};
use bongsu_live::log::{Delivery, EphemeralMessage, Sink};
use bongsu_live::{SubjectName, SubscriptionGuard};
use bongsu_presence::store::MAX_PAGE_SIZE;
use bongsu_presence::{Options, Presence, PresenceGuard};
use bongsu_redis::{Redis, RedisAddress};
use bongsu_testkit::{Engine, tier, wait};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};

/// How long a test waits for a condition; long, because the machine may be busy.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn ids(texts: &[&str]) -> Vec<Id> {
    texts.iter().map(|text| id(text)).collect()
}

/// A Redis and a key prefix that no other test uses.
#[derive(Clone)]
pub(crate) struct RedisNamespace {
    url: String,
    prefix: String,
}

impl RedisNamespace {
    /// A prefix on the engine that all tests share. None when the engine is not available, which has been logged then.
    pub(crate) async fn shared(engine: Engine) -> Option<Self> {
        if !tier::needs_engine("redis-server") {
            return None;
        }
        Some(Self::at(engine.shared_url().await?))
    }

    pub(crate) fn at(url: String) -> Self {
        Self { url, prefix: format!("{:016x}:", random::between(0, u64::MAX - 1)) }
    }

    pub(crate) fn redis(&self, supervisor: &Supervisor) -> Redis {
        let address = RedisAddress::parse(&self.url).unwrap();
        Redis::start(bongsu_redis::Options { address, prefix: self.prefix.clone() }, supervisor)
    }

    /// The channel of a room's announcements.
    pub(crate) fn channel(&self, room: &str) -> String {
        format!("{0}{{{0}presence:{room}}}:bus", self.prefix)
    }
}

/// The fleet as the instance registry would show it. `seen_at` is 0 until [`TestFleet::lose`] is called.
#[derive(Clone, Default)]
pub(crate) struct TestFleet(Arc<watch::Sender<Fleet>>);

impl TestFleet {
    pub(crate) fn fleet(&self) -> watch::Receiver<Fleet> {
        self.0.subscribe()
    }

    pub(crate) fn join(&self, id: &str) {
        let info = InstanceInfo {
            records: RecordsLocation::Off,
            version: String::new(),
            address: String::new(),
            started_at: 0,
            required_settings: BTreeMap::new(),
            setting_hashes: None,
        };
        self.0.send_modify(|fleet| fleet.alive.push(Instance { id: id.to_owned(), info, joined_at: 0 }));
    }

    /// Removes the instance that joined at this index, at a time long after its last report.
    pub(crate) fn lose(&self, index: usize) {
        self.0.send_modify(|fleet| {
            fleet.alive.remove(index);
            fleet.seen_at = Clock::system().now() + 60_000;
        });
    }
}

/// The data of a `presence.update`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Update {
    pub(crate) online_users: Option<BTreeSet<Id>>,
    pub(crate) joined: Option<Id>,
    pub(crate) left: Option<Id>,
    pub(crate) count: usize,
}

/// Records the messages to the streams of an instance.
#[derive(Default)]
pub(crate) struct RecordingSink(Mutex<Vec<(String, String)>>);

impl Sink for RecordingSink {
    fn deliver(&self, _: Delivery<'_>) {
        panic!("presence delivers only ephemeral messages");
    }

    fn deliver_ephemeral(&self, subject: &SubjectName, message: &EphemeralMessage) {
        assert_eq!(message.event_type.as_str(), "presence.update");
        self.0.lock().unwrap().push((subject.as_str().to_owned(), message.data.as_str().to_owned()));
    }

    fn mark_stale(&self, _: &SubjectName) {
        panic!("presence marks no log as stale");
    }
}

impl RecordingSink {
    /// The data of all updates of a room, as JSON text.
    pub(crate) fn texts(&self, room: &str) -> Vec<String> {
        let subject = format!("room:{room}");
        let all = self.0.lock().unwrap();
        all.iter().filter(|(recorded, _)| *recorded == subject).map(|(_, data)| data.clone()).collect()
    }

    pub(crate) fn updates(&self, room: &str) -> Vec<Update> {
        self.texts(room).iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    /// Applies all updates one after another, checks that none is missing or repeated, and returns who is online.
    pub(crate) fn replay(&self, room: &str) -> BTreeSet<Id> {
        let mut online = BTreeSet::new();
        for (index, update) in self.updates(room).into_iter().enumerate() {
            let listed = update.online_users.clone().expect("the room is small");
            assert_eq!(listed.len(), update.count);
            let is_change = match (&update.joined, &update.left) {
                (Some(joined), None) => online.insert(joined.clone()),
                (None, Some(left)) => online.remove(left),
                // A refresh.
                (None, None) => {
                    online = listed.clone();
                    true
                }
                both => panic!("{both:?} in one update"),
            };
            // The first update of an instance also lists the people who joined before.
            assert!(index == 0 || (is_change && online == listed), "{index}: {update:?} after {online:?}");
            online = listed;
        }
        online
    }

    /// How many updates announce that a person joined, and that they left.
    pub(crate) fn joins_and_leaves(&self, room: &str, person: &str) -> (usize, usize) {
        let (updates, person) = (self.updates(room), Some(id(person)));
        let count =
            |matches: &dyn Fn(&Update) -> bool| updates.iter().filter(|update| matches(update)).count();
        (count(&|update| update.joined == person), count(&|update| update.left == person))
    }
}

/// An instance in its own thread, which can be stopped like a killed process.
pub(crate) struct Hub {
    pub(crate) presence: Presence,
    pub(crate) sink: Arc<RecordingSink>,
    end: Option<oneshot::Sender<End>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

enum End {
    ShutDown,
    Killed,
}

impl Hub {
    pub(crate) fn start_on(namespace: &RedisNamespace, options: Options) -> Self {
        Self::start_in_fleet(namespace, options, &TestFleet::default())
    }

    /// An instance that knows which others are alive.
    pub(crate) fn start_in_fleet(
        namespace: &RedisNamespace,
        options: Options,
        instances: &TestFleet,
    ) -> Self {
        let (namespace, fleet) = (namespace.clone(), instances.fleet());
        let (joined, joins) = mpsc::channel();
        let hub = Self::start(move |sink, supervisor| {
            let redis = namespace.redis(supervisor);
            joined.send(redis.instance().to_owned()).unwrap();
            Presence::on_redis(options, redis, fleet, sink, supervisor)
        });
        instances.join(&joins.recv().unwrap());
        hub
    }

    pub(crate) fn embedded(options: Options) -> Self {
        Self::start(move |sink, supervisor| Presence::embedded(options, Clock::system(), sink, supervisor))
    }

    fn start(open: impl FnOnce(Arc<RecordingSink>, &Supervisor) -> Presence + Send + 'static) -> Self {
        let recorded = Arc::new(RecordingSink::default());
        let ((end, ended), (opened, handle)) = (oneshot::channel(), mpsc::channel());
        let sink = recorded.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let supervisor = Supervisor::new();
                opened.send(open(sink, &supervisor)).unwrap();
                if let Ok(End::ShutDown) = ended.await {
                    assert!(supervisor.shut_down(WAIT_TIMEOUT).await, "a loop is still running");
                }
            });
            // Dropping the runtime stops everything that still runs, as killing the process would.
        });
        Self { presence: handle.recv().unwrap(), sink: recorded, end: Some(end), thread: Some(thread) }
    }

    /// Stops without a report.
    pub(crate) fn kill(mut self) -> Arc<RecordingSink> {
        self.stop(End::Killed);
        self.sink.clone()
    }

    /// Shuts down in order.
    pub(crate) fn shut_down(mut self) -> Arc<RecordingSink> {
        self.stop(End::ShutDown);
        self.sink.clone()
    }

    fn stop(&mut self, end: End) {
        if let (Some(sender), Some(thread)) = (self.end.take(), self.thread.take()) {
            let _ = sender.send(end);
            thread.join().unwrap();
        }
    }

    /// Waits until the snapshot of a new stream lists these people.
    #[track_caller]
    pub(crate) fn wait_for_snapshot(
        &self,
        guard: &PresenceGuard,
        people: &[&str],
    ) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let people: BTreeSet<Id> = ids(people).into_iter().collect();
            let snapshot = || {
                let mut update = None;
                guard.snapshot(&mut |message| {
                    update = message.map(|message| serde_json::from_str(message.data.as_str()).unwrap());
                });
                update
            };
            let same = wait::holds_within(WAIT_TIMEOUT, async || {
                snapshot().is_some_and(|Update { online_users, joined, left, count }| {
                    assert_eq!((joined, left, count), (None, None, online_users.as_ref().unwrap().len()));
                    online_users.as_ref() == Some(&people)
                })
            });
            assert!(same.await, "{:?} at {caller}", snapshot());
        }
    }

    pub(crate) async fn occupants(&self, room: &str) -> Vec<String> {
        let occupants = self.presence.occupants(&id(room), None, MAX_PAGE_SIZE).await.unwrap();
        occupants.online.iter().map(|online| online.user.to_string()).collect()
    }

    /// Waits until the store lists exactly these people, in this order.
    #[track_caller]
    pub(crate) fn wait_for_occupants(&self, room: &str, people: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let same = wait::holds_within(WAIT_TIMEOUT, async || {
                self.presence.occupants(&id(room), None, MAX_PAGE_SIZE).await.is_ok_and(|occupants| {
                    occupants.count == people.len()
                        && occupants
                            .online
                            .iter()
                            .map(|online| online.user.as_str())
                            .eq(people.iter().copied())
                })
            });
            assert!(same.await, "{:?} at {caller}", self.presence.occupants(&id(room), None, 10).await);
        }
    }

    /// Waits until the last update lists these people.
    #[track_caller]
    pub(crate) fn wait_for_update(&self, room: &str, people: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let people: BTreeSet<Id> = ids(people).into_iter().collect();
            let last = || self.sink.updates(room).last().and_then(|last| last.online_users.clone());
            let same = wait::holds_within(WAIT_TIMEOUT, async || last().as_ref() == Some(&people)).await;
            assert!(same, "{:?} at {caller}", self.sink.texts(room));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop(End::Killed);
    }
}
