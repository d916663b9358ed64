//! What the tests of the contract speak in: a store with ears that remember, and a room that they are about.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_kernel::task::Supervisor;
use bongsu_presence::store::{Change, Ears, GATHER, Store, Told};
use bongsu_presence::{Options, in_order};
use bongsu_testkit::wait;

use super::Adapter;
use crate::support::{PATIENCE, id, ids};

pub(crate) const ROOM: &str = "42";
/// Comes and goes again, to show that everything before has been heard.
const MARKER: &str = "marker";

/// For tests in which nobody's time is up.
pub(crate) const LONG: Options =
    Options { user_ttl: Duration::from_secs(60), hash_ttl: Duration::from_secs(120) };
/// For tests that wait for it. Longer than a busy machine holds up whoever says that somebody is there.
pub(crate) const SHORT: Options =
    Options { user_ttl: Duration::from_secs(6), hash_ttl: Duration::from_secs(20) };

/// Remembers everything in the order in which it was told.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Vec<(Id, Change)>>, AtomicUsize);

impl Ears for Memory {
    fn change(&self, room: &Id, change: Change) {
        self.0.lock().unwrap().push((room.clone(), change));
    }

    fn soon(&self, _: &Id, within: Duration) {
        assert!(within <= GATHER);
        self.1.fetch_add(1, Ordering::SeqCst);
    }

    fn doubt(&self, room: &Id) {
        panic!("room {room} is in doubt, though nothing happened to the engine");
    }
}

impl Memory {
    /// How often it was said that something is due soon.
    pub(crate) fn soons(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    pub(crate) fn of(&self, room: &str) -> Vec<Change> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(of, _)| of.as_str() == room).map(|(_, change)| change.clone()).collect()
    }
}

/// One hub's store.
pub(crate) struct Stage<A: Adapter> {
    pub(crate) adapter: A,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ears: Arc<Memory>,
    supervisor: Supervisor,
}

impl<A: Adapter> Stage<A> {
    pub(crate) async fn empty(options: Options) -> Option<Self> {
        let adapter = A::empty().await?;
        let (supervisor, ears) = (Supervisor::new(), Arc::new(Memory::default()));
        let store = adapter.open(options, ears.clone(), &supervisor);
        store.listen(&id(ROOM)).await.unwrap();
        Some(Self { adapter, store, ears, supervisor })
    }

    /// Another hub on the same store.
    pub(crate) async fn another(&self, options: Options) -> (Arc<dyn Store>, Arc<Memory>) {
        let ears = Arc::new(Memory::default());
        let store = self.adapter.open(options, ears.clone(), &self.supervisor);
        store.listen(&id(ROOM)).await.unwrap();
        (store, ears)
    }

    pub(crate) async fn tell(&self, here: &[&str], gone: &[&str]) -> Told {
        tell(&self.store, here, gone).await
    }

    pub(crate) async fn beat(&self, person: &str) {
        self.store.beat(&id(ROOM), &id(person)).await.unwrap();
    }

    pub(crate) async fn who(&self) -> Vec<String> {
        who(&self.store, ROOM).await
    }

    /// Everything that was announced of the room until now, in words, and that nothing more is on its way.
    pub(crate) async fn announced(&self) -> Vec<String> {
        // Whose time is up leaves before the marker comes, and is not mixed up with it.
        self.tell(&[], &[]).await;
        self.tell(&[MARKER], &[]).await;
        self.tell(&[], &[MARKER]).await;
        heard_all(&self.ears).await.iter().map(words).collect()
    }
}

/// All changes, when the marker has come and gone.
pub(crate) async fn heard_all(ears: &Memory) -> Vec<Change> {
    let marker = Some(id(MARKER));
    let heard = wait::value_within(PATIENCE, || async {
        let changes = ears.of(ROOM);
        changes.last().is_some_and(|last| last.left == marker).then_some(changes)
    });
    let mut changes = heard.await.expect("the marker was not heard");
    changes.retain(|change| change.joined != marker && change.left != marker);
    changes
}

pub(crate) async fn tell(store: &Arc<dyn Store>, here: &[&str], gone: &[&str]) -> Told {
    store.tell(&id(ROOM), &ids(here), &ids(gone)).await.unwrap()
}

/// Who is in a room, in order.
pub(crate) async fn who(store: &Arc<dyn Store>, room: &str) -> Vec<String> {
    let who = store.who(&id(room), None, usize::MAX).await.unwrap();
    assert_eq!((who.count, who.has_more), (who.online.len(), false));
    who.online.iter().map(|online| online.user.to_string()).collect()
}

/// `+7 of 3 7 9`, `-7 of 3 9`, `= of 201`.
pub(crate) fn words(change: &Change) -> String {
    let what = match (&change.joined, &change.left) {
        (Some(joined), None) => format!("+{joined}"),
        (None, Some(left)) => format!("-{left}"),
        (None, None) => "=".to_owned(),
        both => panic!("{both:?} in one change"),
    };
    match &change.online {
        Some(online) => {
            assert_eq!(online.len(), change.count, "{what}");
            let mut online = online.clone();
            online.sort_by(in_order);
            let online: Vec<&str> = online.iter().map(Id::as_str).collect();
            format!("{what} of {}", online.join(" ")).trim_end().to_owned()
        }
        None => format!("{what} of {}", change.count),
    }
}
