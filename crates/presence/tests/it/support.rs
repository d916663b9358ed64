//! What all tests speak in: ids, places on an engine, hubs that can end in every way, and what their streams are told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bongsu_coordination::registry::{About, Fleet, Instance, Records};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, random};
use bongsu_live::log::{Delivery, Passing, Sink};
use bongsu_live::{SubjectName, SubscriptionGuard};
use bongsu_presence::store::MAX_PAGE_SIZE;
use bongsu_presence::{Joined, Options, Presence};
use bongsu_redis::{Address, Redis};
use bongsu_testkit::{Engine, tier, wait};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};

/// For what comes on a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn ids(texts: &[&str]) -> Vec<Id> {
    texts.iter().map(|text| id(text)).collect()
}

/// A part of a Redis that no other test uses.
#[derive(Clone)]
pub(crate) struct Place {
    url: String,
    prefix: String,
}

impl Place {
    /// On the engine that all tests share. Nothing when it cannot be had, which has been said then.
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
        let address = Address::parse(&self.url).unwrap();
        Redis::start(bongsu_redis::Options { address, prefix: self.prefix.clone() }, supervisor)
    }

    /// The channel of a room's announcements.
    pub(crate) fn channel(&self, room: &str) -> String {
        format!("{0}{{{0}presence:{room}}}:bus", self.prefix)
    }
}

/// Which instances are alive, as a registry would say it. Until [`Instances::lose`] is called nothing is known of it.
#[derive(Clone, Default)]
pub(crate) struct Instances(Arc<watch::Sender<Fleet>>);

impl Instances {
    pub(crate) fn fleet(&self) -> watch::Receiver<Fleet> {
        self.0.subscribe()
    }

    pub(crate) fn join(&self, id: &str) {
        let about = About {
            records: Records::Off,
            version: String::new(),
            address: String::new(),
            started_at: 0,
            required_settings: BTreeMap::new(),
            setting_hashes: None,
        };
        self.0.send_modify(|fleet| fleet.alive.push(Instance { id: id.to_owned(), about, joined_at: 0 }));
    }

    /// The lease of the instance that joined as this one has ended, long after it said anything.
    pub(crate) fn lose(&self, at: usize) {
        self.0.send_modify(|fleet| {
            fleet.alive.remove(at);
            fleet.seen_at = Clock::system().now() + 60_000;
        });
    }
}

/// What a stream is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Update {
    pub(crate) online_users: Option<BTreeSet<Id>>,
    pub(crate) joined: Option<Id>,
    pub(crate) left: Option<Id>,
    pub(crate) count: usize,
}

/// Remembers what is passed on to the streams of a hub.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Vec<(String, String)>>);

impl Sink for Streams {
    fn deliver(&self, _: Delivery<'_>) {
        panic!("presence delivers nothing that a log holds");
    }

    fn pass(&self, subject: &SubjectName, passing: &Passing) {
        assert_eq!(passing.event_type.as_str(), "presence.update");
        self.0.lock().unwrap().push((subject.as_str().to_owned(), passing.data.as_str().to_owned()));
    }

    fn doubt(&self, _: &SubjectName) {
        panic!("presence doubts no log");
    }
}

impl Streams {
    /// As the streams get it.
    pub(crate) fn texts(&self, room: &str) -> Vec<String> {
        let subject = format!("room:{room}");
        let all = self.0.lock().unwrap();
        all.iter().filter(|(of, _)| *of == subject).map(|(_, data)| data.clone()).collect()
    }

    pub(crate) fn updates(&self, room: &str) -> Vec<Update> {
        self.texts(room).iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    /// Who is there by all that was told, which has to fit together: nothing missed, nothing twice.
    pub(crate) fn folded(&self, room: &str) -> BTreeSet<Id> {
        let mut online = BTreeSet::new();
        for (at, update) in self.updates(room).into_iter().enumerate() {
            let listed = update.online_users.clone().expect("a list");
            assert_eq!(listed.len(), update.count);
            let is_news = match (&update.joined, &update.left) {
                (Some(joined), None) => online.insert(joined.clone()),
                (None, Some(left)) => online.remove(left),
                // The room as it is, after a doubt.
                (None, None) => {
                    online = listed.clone();
                    true
                }
                both => panic!("{both:?} in one update"),
            };
            // The first one of a hub tells of those who were there before.
            assert!(at == 0 || (is_news && online == listed), "{at}: {update:?} after {online:?}");
            online = listed;
        }
        online
    }

    /// How often somebody came and left.
    pub(crate) fn comings_and_goings(&self, room: &str, person: &str) -> (usize, usize) {
        let (updates, person) = (self.updates(room), Some(id(person)));
        let count = |is: &dyn Fn(&Update) -> bool| updates.iter().filter(|update| is(update)).count();
        (count(&|update| update.joined == person), count(&|update| update.left == person))
    }
}

/// A hub in a thread of its own, so that it can vanish as a killed process does.
pub(crate) struct Hub {
    pub(crate) presence: Presence,
    pub(crate) streams: Arc<Streams>,
    end: Option<oneshot::Sender<End>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

enum End {
    InOrder,
    Vanishing,
}

impl Hub {
    pub(crate) fn on(place: &Place, options: Options) -> Self {
        Self::of_fleet(place, options, &Instances::default())
    }

    /// One that knows which others are alive.
    pub(crate) fn of_fleet(place: &Place, options: Options, instances: &Instances) -> Self {
        let (place, fleet) = (place.clone(), instances.fleet());
        let (joined, joins) = mpsc::channel();
        let hub = Self::start(move |streams, supervisor| {
            let redis = place.redis(supervisor);
            joined.send(redis.instance().to_owned()).unwrap();
            Presence::on_redis(options, redis, fleet, streams, supervisor)
        });
        instances.join(&joins.recv().unwrap());
        hub
    }

    pub(crate) fn embedded(options: Options) -> Self {
        Self::start(move |streams, supervisor| {
            Presence::embedded(options, Clock::system(), streams, supervisor)
        })
    }

    fn start(open: impl FnOnce(Arc<Streams>, &Supervisor) -> Presence + Send + 'static) -> Self {
        let streams = Arc::new(Streams::default());
        let ((end, ended), (opened, handle)) = (oneshot::channel(), mpsc::channel());
        let sink = streams.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let supervisor = Supervisor::new();
                opened.send(open(sink, &supervisor)).unwrap();
                if let Ok(End::InOrder) = ended.await {
                    assert!(supervisor.shut_down(PATIENCE).await, "a loop was left");
                }
            });
            // Dropping the runtime ends all that is left without a word.
        });
        Self { presence: handle.recv().unwrap(), streams, end: Some(end), thread: Some(thread) }
    }

    /// Ends without a word.
    pub(crate) fn vanish(mut self) -> Arc<Streams> {
        self.finish(End::Vanishing);
        self.streams.clone()
    }

    /// Ends as it does when it is asked to.
    pub(crate) fn end(mut self) -> Arc<Streams> {
        self.finish(End::InOrder);
        self.streams.clone()
    }

    fn finish(&mut self, how: End) {
        if let (Some(end), Some(thread)) = (self.end.take(), self.thread.take()) {
            let _ = end.send(how);
            thread.join().unwrap();
        }
    }

    /// Waits until a stream that begins now is told that these are there.
    #[track_caller]
    pub(crate) fn begins_with(&self, joined: &Joined, people: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let people: BTreeSet<Id> = ids(people).into_iter().collect();
            let snapshot = || {
                let mut update = None;
                joined.snapshot(&mut |passing| {
                    update = passing.map(|passing| serde_json::from_str(passing.data.as_str()).unwrap());
                });
                update
            };
            let same = wait::holds_within(PATIENCE, async || {
                snapshot().is_some_and(|Update { online_users, joined, left, count }| {
                    assert_eq!((joined, left, count), (None, None, online_users.as_ref().unwrap().len()));
                    online_users.as_ref() == Some(&people)
                })
            });
            assert!(same.await, "{:?} at {caller}", snapshot());
        }
    }

    pub(crate) async fn who(&self, room: &str) -> Vec<String> {
        let who = self.presence.who(&id(room), None, MAX_PAGE_SIZE).await.unwrap();
        who.online.iter().map(|online| online.user.to_string()).collect()
    }

    #[track_caller]
    pub(crate) fn sees(&self, room: &str, people: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let same = wait::holds_within(PATIENCE, async || {
                self.presence.who(&id(room), None, MAX_PAGE_SIZE).await.is_ok_and(|who| {
                    who.count == people.len()
                        && who.online.iter().map(|online| online.user.as_str()).eq(people.iter().copied())
                })
            });
            assert!(same.await, "{:?} at {caller}", self.presence.who(&id(room), None, 10).await);
        }
    }

    /// Waits until this hub's streams know who is there.
    #[track_caller]
    pub(crate) fn tells(&self, room: &str, people: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let people: BTreeSet<Id> = ids(people).into_iter().collect();
            let last = || self.streams.updates(room).last().and_then(|last| last.online_users.clone());
            let same = wait::holds_within(PATIENCE, async || last().as_ref() == Some(&people)).await;
            assert!(same, "{:?} at {caller}", self.streams.texts(room));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.finish(End::Vanishing);
    }
}
