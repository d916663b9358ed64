//! Tests of buffered read marks: applied to every read, written to SQL later, and never lost or counted twice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bongsu_inbox::cache::Cache;
use bongsu_inbox::marks::redis::RedisMarkBuffer;
use bongsu_inbox::marks::{BufferFuture, MarkBuffer, Marks, PendingPerson};
use bongsu_inbox::{EntryId, EventId, ListFilter, PendingPushes, RedisDeps};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis, random};
use bongsu_redis::redis::{Cmd, cmd};
use bongsu_redis::{Options, Redis, RedisAddress, Repeat};
use bongsu_testkit::{Engine, Rng, tier};

use crate::contract::{NOW, Scene, id, notification, scene_with_redis};
use crate::database::Database;

/// A Redis with a key prefix of its own, and a database.
pub(crate) struct Fleet {
    url: String,
    prefix: String,
    database: Database,
}

impl Fleet {
    /// None when one of the two engines is not available to this run.
    pub(crate) async fn start(engine: Engine, database: Option<Database>) -> Option<Self> {
        if !tier::needs_engine("redis") {
            return None;
        }
        let url = engine.shared_url().await.expect("a shared engine");
        // Random, because tests in other processes use the same Redis.
        let prefix = format!("inbox{:016x}:", random::between(0, u64::MAX - 1));
        Some(Self { url, prefix, database: database? })
    }

    fn redis(&self) -> Redis {
        let options =
            Options { address: RedisAddress::parse(&self.url).unwrap(), prefix: self.prefix.clone() };
        Redis::start(options, &Supervisor::new())
    }

    async fn hub(&self) -> Scene {
        self.hub_with(Arc::new(RedisMarkBuffer::new(self.redis()))).await
    }

    async fn hub_with(&self, buffer: Arc<dyn MarkBuffer>) -> Scene {
        let cache = Cache::start(self.redis(), &Supervisor::new());
        scene_with_redis(
            &self.database,
            Some(RedisDeps { buffer, cache, pending_pushes: PendingPushes::default() }),
        )
        .await
    }

    /// Runs a command on the key of a person's marks.
    async fn run(&self, name: &'static str, person: &Id, arguments: &[&str]) -> bongsu_redis::redis::Value {
        let redis = self.redis();
        let key = redis.key(format_args!("read_status:{person}"));
        let mut command: Cmd = cmd(name);
        command.arg(&key).arg(arguments);
        redis.query("test", &key, &command, Repeat::Never).await.unwrap()
    }
}

/// Stores one more mark during a flush: after marks were written, and before they are removed.
struct LateMarkBuffer {
    inner: RedisMarkBuffer,
    late: (Id, u64),
    done: AtomicBool,
}

impl MarkBuffer for LateMarkBuffer {
    fn put<'a>(&'a self, person: &'a Id, seq: u64, at: Millis) -> BufferFuture<'a, Option<Millis>> {
        self.inner.put(person, seq, at)
    }

    fn marks<'a>(&'a self, person: &'a Id) -> BufferFuture<'a, Marks> {
        self.inner.marks(person)
    }

    fn recently_marked<'a>(&'a self, people: &'a [&'a Id]) -> BufferFuture<'a, HashSet<Id>> {
        self.inner.recently_marked(people)
    }

    fn persons_with_marks(&self) -> BufferFuture<'_, Vec<PendingPerson>> {
        self.inner.persons_with_marks()
    }

    fn remove_written<'a>(&'a self, person: &'a Id, marks: &'a Marks) -> BufferFuture<'a, ()> {
        Box::pin(async move {
            if !self.done.swap(true, Ordering::SeqCst) {
                assert!(!marks.contains_key(&self.late.1), "the late mark is not among the written ones");
                assert_eq!(self.inner.put(&self.late.0, self.late.1, NOW + 5).await?, None);
            }
            self.inner.remove_written(person, marks).await
        })
    }

    fn unindex(&self, pending: PendingPerson) -> BufferFuture<'_, ()> {
        self.inner.unindex(pending)
    }
}

pub(crate) async fn a_mark_buffered_during_a_flush_is_kept(fleet: Fleet) {
    let (person, late) = (id(7), 3);
    let inner = RedisMarkBuffer::new(fleet.redis());
    let buffer =
        Arc::new(LateMarkBuffer { inner, late: (person.clone(), late), done: AtomicBool::new(false) });
    let Scene { inbox, .. } = fleet.hub_with(buffer.clone()).await;
    for n in 1..=4 {
        inbox.notify(notification(&format!("e{n}")), std::slice::from_ref(&person)).await.unwrap();
    }
    for seq in [1, 2] {
        inbox.mark_read(&person, EntryId::Seq(seq)).await.unwrap().unwrap();
    }
    assert_eq!(inbox.unread_state(&person).await.unwrap().unread, 2);
    inbox.flush().await;
    assert!(buffer.done.load(Ordering::SeqCst), "the late mark was stored");
    assert_eq!(inbox.unread_state(&person).await.unwrap().unread, 1, "the late mark is applied, or written");
    inbox.flush().await;
    assert_eq!(buffer.marks(&person).await.unwrap(), Marks::new());
    assert_eq!(inbox.unread_state(&person).await.unwrap().unread, 1);
    let read = inbox.mark_read(&person, EntryId::Seq(late)).await.unwrap().unwrap();
    assert_eq!(read.read_at, NOW + 5, "the time of the buffered mark");
}

pub(crate) async fn foreign_fields_in_the_mark_buffer_are_ignored(fleet: Fleet) {
    let Scene { inbox, .. } = fleet.hub().await;
    let people = [id(1), id(2), id(3)];
    inbox.notify(notification("e1"), &people).await.unwrap();
    for person in &people {
        inbox.mark_read(person, EntryId::Seq(1)).await.unwrap().unwrap();
        for field in ["18446744073709551615", "9223372036854775808", "01", "notif-abc", "-1", ""] {
            fleet.run("HSET", person, &[field, "1708070500"]).await;
        }
        fleet.run("HSET", person, &["2", "soon"]).await;
    }
    inbox.flush().await;
    for person in &people {
        assert_eq!(inbox.unread_state(person).await.unwrap().unread, 0, "{person}");
        let written = fleet.run("HEXISTS", person, &["1"]).await;
        assert_eq!(written, bongsu_redis::redis::Value::Int(0), "the mark of {person} is written");
        assert_eq!(inbox.mark_all_read(person).await.unwrap(), 0);
    }
    let entry_id = |text| EntryId::from_request(EventId::new(text).unwrap());
    assert_eq!(entry_id("9223372036854775807"), EntryId::Seq(i64::MAX as u64));
    assert!(matches!(entry_id("9223372036854775808"), EntryId::Event(_)), "it exceeds BIGINT");
}

/// Under concurrent changes and retention, every version has one unread count, the newest count that was sent
/// is that of the records, and the list of unread entries has that length.
pub(crate) async fn versions_only_grow_and_have_one_count_each(fleet: Fleet) {
    let hubs = [fleet.hub().await, fleet.hub().await];
    let (person, steps) = (id(7), tier::size(40, 1_000));
    let targets = std::slice::from_ref(&person);
    for n in 0..50 {
        hubs[0].clock.set(NOW + n);
        hubs[0].inbox.notify(notification(&format!("first{n}")), targets).await.unwrap();
    }
    hubs.iter().for_each(|hub| hub.clock.set(NOW + 1_000));
    let workers = (0..6_u64).map(async |worker| {
        let mut rng = Rng::new(worker);
        for step in 0..steps {
            let inbox = &hubs[step % 2].inbox;
            match rng.below(13) {
                0..2 => drop(inbox.notify(notification(&format!("{worker}-{step}")), targets).await.unwrap()),
                2 => drop(inbox.mark_all_read(&person).await.unwrap()),
                3 => inbox.flush().await,
                12 => drop(inbox.remove_before(NOW + rng.below(60)).await.unwrap()),
                4 => drop(inbox.delete(&person, EntryId::Seq(rng.below(90) + 1)).await.unwrap()),
                _ => drop(inbox.mark_read(&person, EntryId::Seq(rng.below(90) + 1)).await.unwrap()),
            }
        }
    });
    futures_util::future::join_all(workers).await;
    let last = hubs[0].inbox.notify(notification("last"), targets).await.unwrap()[0].seq;
    hubs[1].inbox.mark_read(&person, EntryId::Seq(last)).await.unwrap().unwrap();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for hub in &hubs {
        for (_, change) in hub.delivered.changes.lock().unwrap().iter() {
            let first = *counts.entry(change.version).or_insert(change.unread);
            assert_eq!(first, change.unread, "two counts of version {}", change.version);
        }
    }
    let state = hubs[0].inbox.unread_state(&person).await.unwrap();
    let newest = counts.last_key_value().map(|(version, unread)| (*version, *unread));
    assert_eq!(newest, Some((state.version, state.unread)), "the newest count that was sent");
    let filter = ListFilter { person: person.clone(), before: None, limit: 1_000, is_unread_only: true };
    let page = hubs[1].inbox.list(filter).await.unwrap();
    assert_eq!(
        (page.entries.len() as u64, page.state),
        (state.unread, state),
        "the list agrees with the count"
    );
    hubs[0].inbox.flush().await;
    assert_eq!(hubs[1].inbox.unread_state(&person).await.unwrap(), state, "a flush changes no count");
}
