//! Marks that wait in Redis: laid over what the records say, written later, and never lost or counted twice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bongsu_inbox::cache::Cache;
use bongsu_inbox::marks::redis::RedisBuffer;
use bongsu_inbox::marks::{Boxed, Buffer, Marks, Waiting};
use bongsu_inbox::{Beside, EntryId, EventId, Wanted};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis, random};
use bongsu_redis::redis::{Cmd, cmd};
use bongsu_redis::{Address, Options, Redis, Repeat};
use bongsu_testkit::{Engine, Rng, tier};

use crate::contract::{NOW, Scene, id, notice, scene_beside};
use crate::database::Database;

/// Redis under a prefix of its own, and a database.
pub(crate) struct Fleet {
    url: String,
    prefix: String,
    database: Database,
}

impl Fleet {
    /// None where one of the two cannot be had.
    pub(crate) async fn start(engine: Engine, database: Option<Database>) -> Option<Self> {
        if !tier::needs_engine("redis") {
            return None;
        }
        let url = engine.shared_url().await.expect("an engine that hubs share");
        // No other test has it, in whichever process it runs.
        let prefix = format!("inbox{:016x}:", random::between(0, u64::MAX - 1));
        Some(Self { url, prefix, database: database? })
    }

    fn redis(&self) -> Redis {
        let options = Options { address: Address::parse(&self.url).unwrap(), prefix: self.prefix.clone() };
        Redis::start(options, &Supervisor::new())
    }

    async fn hub(&self) -> Scene {
        self.hub_with(Arc::new(RedisBuffer::new(self.redis()))).await
    }

    async fn hub_with(&self, buffer: Arc<dyn Buffer>) -> Scene {
        let cache = Cache::start(self.redis(), &Supervisor::new());
        scene_beside(&self.database, Some(Beside { buffer, cache })).await
    }

    /// Asks Redis something about a person's marks.
    async fn ask(&self, command: &'static str, person: &Id, rest: &[&str]) -> bongsu_redis::redis::Value {
        let redis = self.redis();
        let key = redis.key(format_args!("read_status:{person}"));
        let mut asked: Cmd = cmd(command);
        asked.arg(&key).arg(rest);
        redis.ask("test", &key, &asked, Repeat::Never).await.unwrap()
    }
}

/// Takes one more mark down just when others were written and are about to be removed.
struct Meanwhile {
    inner: RedisBuffer,
    late: (Id, u64),
    done: AtomicBool,
}

impl Buffer for Meanwhile {
    fn put<'a>(&'a self, person: &'a Id, seq: u64, at: Millis) -> Boxed<'a, Option<Millis>> {
        self.inner.put(person, seq, at)
    }

    fn of<'a>(&'a self, person: &'a Id) -> Boxed<'a, Marks> {
        self.inner.of(person)
    }

    fn recently_marked<'a>(&'a self, people: &'a [&'a Id]) -> Boxed<'a, HashSet<Id>> {
        self.inner.recently_marked(people)
    }

    fn people(&self) -> Boxed<'_, Vec<Waiting>> {
        self.inner.people()
    }

    fn written<'a>(&'a self, person: &'a Id, marks: &'a Marks) -> Boxed<'a, ()> {
        Box::pin(async move {
            if !self.done.swap(true, Ordering::SeqCst) {
                assert!(!marks.contains_key(&self.late.1), "it comes too late to be written");
                assert_eq!(self.inner.put(&self.late.0, self.late.1, NOW + 5).await?, None);
            }
            self.inner.written(person, marks).await
        })
    }

    fn none_left(&self, waiting: Waiting) -> Boxed<'_, ()> {
        self.inner.none_left(waiting)
    }
}

pub(crate) async fn a_mark_that_comes_while_others_are_written_stays(fleet: Fleet) {
    let (person, late) = (id(7), 3);
    let inner = RedisBuffer::new(fleet.redis());
    let buffer = Arc::new(Meanwhile { inner, late: (person.clone(), late), done: AtomicBool::new(false) });
    let Scene { inbox, .. } = fleet.hub_with(buffer.clone()).await;
    for n in 1..=4 {
        inbox.notify(notice(&format!("e{n}")), std::slice::from_ref(&person)).await.unwrap();
    }
    for seq in [1, 2] {
        inbox.mark_read(&person, EntryId::Seq(seq)).await.unwrap().unwrap();
    }
    assert_eq!(inbox.standing(&person).await.unwrap().unread, 2);
    inbox.flush().await;
    assert!(buffer.done.load(Ordering::SeqCst), "nothing came meanwhile");
    assert_eq!(inbox.standing(&person).await.unwrap().unread, 1, "it is laid over, or written");
    inbox.flush().await;
    assert_eq!(buffer.of(&person).await.unwrap(), Marks::new());
    assert_eq!(inbox.standing(&person).await.unwrap().unread, 1);
    let read = inbox.mark_read(&person, EntryId::Seq(late)).await.unwrap().unwrap();
    assert_eq!(read.read_at, NOW + 5, "as it was taken down");
}

pub(crate) async fn what_others_wrote_among_the_marks_harms_nobody(fleet: Fleet) {
    let Scene { inbox, .. } = fleet.hub().await;
    let people = [id(1), id(2), id(3)];
    inbox.notify(notice("e1"), &people).await.unwrap();
    for person in &people {
        inbox.mark_read(person, EntryId::Seq(1)).await.unwrap().unwrap();
        for field in ["18446744073709551615", "9223372036854775808", "01", "notif-abc", "-1", ""] {
            fleet.ask("HSET", person, &[field, "1708070500"]).await;
        }
        fleet.ask("HSET", person, &["2", "soon"]).await;
    }
    inbox.flush().await;
    for person in &people {
        assert_eq!(inbox.standing(person).await.unwrap().unread, 0, "of {person}");
        let written = fleet.ask("HEXISTS", person, &["1"]).await;
        assert_eq!(written, bongsu_redis::redis::Value::Int(0), "the mark of {person} is written");
        assert_eq!(inbox.mark_all_read(person).await.unwrap(), 0);
    }
    let named = |text| EntryId::of(EventId::new(text).unwrap());
    assert_eq!(named("9223372036854775807"), EntryId::Seq(i64::MAX as u64));
    assert!(matches!(named("9223372036854775808"), EntryId::Event(_)), "no number of ours");
}

/// Whatever happens at once, also that entries grow too old: every version has one count, the newest that was told is the
/// truth, and so is the list.
pub(crate) async fn versions_only_grow_and_have_one_count_each(fleet: Fleet) {
    let hubs = [fleet.hub().await, fleet.hub().await];
    let (person, steps) = (id(7), tier::size(40, 1_000));
    let others = std::slice::from_ref(&person);
    for n in 0..50 {
        hubs[0].clock.set(NOW + n);
        hubs[0].inbox.notify(notice(&format!("first{n}")), others).await.unwrap();
    }
    hubs.iter().for_each(|hub| hub.clock.set(NOW + 1_000));
    let working = (0..6_u64).map(async |worker| {
        let mut rng = Rng::new(worker);
        for step in 0..steps {
            let inbox = &hubs[step % 2].inbox;
            match rng.below(13) {
                0..2 => drop(inbox.notify(notice(&format!("{worker}-{step}")), others).await.unwrap()),
                2 => drop(inbox.mark_all_read(&person).await.unwrap()),
                3 => inbox.flush().await,
                12 => drop(inbox.forget_before(NOW + rng.below(60)).await.unwrap()),
                4 => drop(inbox.delete(&person, EntryId::Seq(rng.below(90) + 1)).await.unwrap()),
                _ => drop(inbox.mark_read(&person, EntryId::Seq(rng.below(90) + 1)).await.unwrap()),
            }
        }
    });
    futures_util::future::join_all(working).await;
    let last = hubs[0].inbox.notify(notice("last"), others).await.unwrap()[0].seq;
    hubs[1].inbox.mark_read(&person, EntryId::Seq(last)).await.unwrap().unwrap();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for hub in &hubs {
        for (_, changed) in hub.heard.1.lock().unwrap().iter() {
            let known = *counts.entry(changed.version).or_insert(changed.unread);
            assert_eq!(known, changed.unread, "two counts of version {}", changed.version);
        }
    }
    let standing = hubs[0].inbox.standing(&person).await.unwrap();
    let newest = counts.last_key_value().map(|(version, unread)| (*version, *unread));
    assert_eq!(newest, Some((standing.version, standing.unread)), "what devices show in the end");
    let wanted = Wanted { person: person.clone(), before: None, limit: 1_000, unread: true };
    let listed = hubs[1].inbox.list(wanted).await.unwrap();
    assert_eq!(
        (listed.entries.len() as u64, listed.standing),
        (standing.unread, standing),
        "the list is the count"
    );
    hubs[0].inbox.flush().await;
    assert_eq!(hubs[1].inbox.standing(&person).await.unwrap(), standing, "writing changes nothing");
}
