//! What the inbox promises of its records.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_inbox::{
    Beside, Changed, EntryId, EventId, Inbox, InboxSource, Kind, Live, Notice, Options, Templates, Told,
    Wanted, marks::WriteBehind, subject,
};
use bongsu_kernel::json::Object;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis, StreamId};
use bongsu_live::log::Most;
use bongsu_live::{Source, Start};
use bongsu_testkit::{Rng, proof, tier};
use serde_json::json;

use crate::database::Database;

const DAY: Millis = 24 * 60 * 60 * 1_000;
pub(crate) const NOW: Millis = 1_800_000_000_000;

/// What those who are connected would have heard.
#[derive(Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<Told>>, pub(crate) Mutex<Vec<(Id, Changed)>>);

impl Live for Heard {
    fn saved(&self, _: &Notice, _: Millis, told: &[Told]) {
        self.0.lock().unwrap().extend_from_slice(told);
    }

    fn changed(&self, person: &Id, changed: &Changed) {
        self.1.lock().unwrap().push((person.clone(), changed.clone()));
    }
}

pub(crate) struct Scene {
    pub(crate) inbox: Inbox,
    pub(crate) clock: Clock,
    pub(crate) heard: Arc<Heard>,
    supervisor: Supervisor,
}

async fn scene(database: &Database) -> Scene {
    scene_beside(database, None).await
}

pub(crate) async fn scene_beside(database: &Database, beside: Option<Beside>) -> Scene {
    let (clock, heard, supervisor) = (Clock::manual(NOW), Arc::new(Heard::default()), Supervisor::new());
    let write_behind = WriteBehind { interval: Duration::from_secs(30), at_once: 200 };
    let options = Options {
        templates: Templates::load(None).unwrap(),
        keeps: Duration::from_secs(30 * 86_400),
        write_behind,
    };
    let records = database.records().await;
    let inbox = Inbox::start(records, options, clock.clone(), heard.clone(), beside, None, &supervisor);
    Scene { inbox, clock, heard, supervisor }
}

pub(crate) fn id(number: u64) -> Id {
    named(&number.to_string())
}

fn named(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn notice(event: &str) -> Notice {
    Notice {
        event: EventId::new(event).unwrap(),
        kind: Kind::new("POST_LIKE").unwrap(),
        reference: None,
        actor: None,
        payload: Object::stored("{}").unwrap(),
    }
}

/// What a room tells of an event.
fn room_notice(event: &str) -> Notice {
    let room = event.split_once(':').unwrap().0;
    Notice { kind: Kind::new("comment.created").unwrap(), reference: Some(named(room)), ..notice(event) }
}

fn name(event: &str) -> EntryId {
    EntryId::of(EventId::new(event).unwrap())
}

async fn listed(inbox: &Inbox, person: &Id) -> (Vec<u64>, u64) {
    let wanted = Wanted { person: person.clone(), before: None, limit: 100, unread: false };
    let listed = inbox.list(wanted).await.unwrap();
    (listed.entries.iter().map(|entry| entry.seq).collect(), listed.standing.unread)
}

/// Nobody may be kept out of their inbox longer than this.
const LONGEST: Duration = Duration::from_millis(100);

pub(crate) async fn what_is_too_old_goes_in_steps_and_the_counts_with_it(database: Database) {
    let Scene { inbox, clock, supervisor, .. } = scene(&database).await;
    let (people, notices): (Vec<Id>, usize) = ((0..1_000).map(id).collect(), tier::size(20, 1_000));
    for n in 0..notices {
        inbox.notify(notice(&format!("old{n}")), &people).await.unwrap();
    }
    inbox.mark_read(&people[0], EntryId::Seq(1)).await.unwrap().unwrap();
    assert!(inbox.delete(&people[0], EntryId::Seq(2)).await.unwrap());
    clock.set(NOW + 10 * DAY);
    assert_eq!(inbox.forget_before(NOW).await.unwrap().entries, 0, "nothing is older than that");
    // Meanwhile the same people are told of other things.
    let (over, told) = (AtomicBool::new(false), AtomicU64::new(0));
    let telling = async {
        while !over.load(Ordering::Relaxed) {
            let n = told.fetch_add(1, Ordering::Relaxed);
            inbox.notify(notice(&format!("young{n}")), &people).await.unwrap();
            // The pace of whoever tells.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let forgetting = async {
        let forgotten = inbox.forget_before(NOW + DAY).await.unwrap();
        over.store(true, Ordering::Relaxed);
        forgotten
    };
    let ((), forgotten) = tokio::join!(telling, forgetting);
    let gone = (notices * people.len()) as u64;
    assert_eq!(forgotten.entries, gone);
    assert!(forgotten.steps >= gone / 200, "in {} steps", forgotten.steps);
    let told = told.load(Ordering::Relaxed);
    for person in &people {
        let standing = inbox.standing(person).await.unwrap();
        assert_eq!((standing.unread, standing.last_seq), (told, notices as u64 + told), "of {person}");
    }
    let wanted = Wanted { person: people[0].clone(), before: None, limit: 100, unread: true };
    let listed = inbox.list(wanted).await.unwrap().entries.len() as u64;
    assert_eq!(listed, told.min(100));
    proof::record(
        "inbox",
        &format!("retention.{}", database.name()),
        json!({"rows": forgotten.entries, "steps": forgotten.steps, "longestHeldMs": forgotten.longest.as_millis(), "toldMeanwhile": told}),
    );
    // In a small run others use the same two cores, and a figure would say nothing.
    assert!(tier::Tier::current() != tier::Tier::Prove || forgotten.longest <= LONGEST, "{forgotten:?}");
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_service_and_a_room_may_give_the_same_event_id(database: Database) {
    let Scene { inbox, supervisor, .. } = scene(&database).await;
    let told = async |notice: Notice| inbox.notify(notice, &[id(7)]).await.unwrap().len();
    // In whichever order they come, and each once.
    assert_eq!([told(notice("42:5-0")).await, told(room_notice("42:5-0")).await], [1, 1]);
    assert_eq!([told(room_notice("42:6-0")).await, told(notice("42:6-0")).await], [1, 1]);
    assert_eq!([told(notice("42:5-0")).await, told(room_notice("42:5-0")).await], [0, 0]);
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3, 2, 1], 4));
    // The name is the room's first: whoever saw the event there means that.
    assert_eq!(inbox.mark_read(&id(7), name("42:5-0")).await.unwrap().unwrap().seq, 2);
    assert_eq!(inbox.mark_read(&id(7), name("42:6-0")).await.unwrap().unwrap().seq, 3);
    assert!(inbox.delete(&id(7), name("42:5-0")).await.unwrap());
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3, 1], 2));
    assert_eq!(inbox.mark_read(&id(7), name("42:5-0")).await.unwrap().unwrap().seq, 1, "then the service's");
    assert!(inbox.delete(&id(7), name("42:5-0")).await.unwrap());
    assert!(!inbox.delete(&id(7), name("42:5-0")).await.unwrap());
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3], 1));
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn entries_of_the_first_schema_are_not_made_again(database: Database) {
    let Scene { inbox, supervisor, .. } = scene(&database).await;
    assert_eq!(listed(&inbox, &id(7)).await, (vec![3, 2, 1], 3));
    let told = async |notice: Notice| inbox.notify(notice, &[id(7)]).await.unwrap().len();
    assert_eq!([told(room_notice("42:5-0")).await, told(notice("like-1")).await], [0, 0]);
    assert_eq!(told(notice("42:6-0")).await, 0);
    assert_eq!(told(room_notice("42:6-0")).await, 1, "the name that the service took is the room's as well");
    assert_eq!(listed(&inbox, &id(7)).await, (vec![4, 3, 2, 1], 4));
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_list_of_large_entries_is_bounded_and_the_next_one_goes_on(database: Database) {
    let Scene { inbox, supervisor, .. } = scene(&database).await;
    let person = id(1);
    // Characters of three bytes: bytes count, not characters.
    let payload = Object::stored(&format!("{{\"text\":\"{}\"}}", "봉".repeat(20_000))).unwrap();
    for n in 1..=20 {
        let large = Notice { payload: payload.clone(), ..notice(&format!("e{n}")) };
        inbox.notify(large, std::slice::from_ref(&person)).await.unwrap();
    }
    inbox.mark_read(&person, EntryId::Seq(20)).await.unwrap().unwrap();
    for (unread, newest) in [(false, 20), (true, 19)] {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let wanted = Wanted { person: person.clone(), before, limit: 100, unread };
            let listed = inbox.list(wanted).await.unwrap();
            assert!((1..=4).contains(&listed.entries.len()), "{} entries at once", listed.entries.len());
            assert!(listed.entries.iter().all(|entry| entry.notice.payload == payload));
            seen.extend(listed.entries.iter().map(|entry| entry.seq));
            before = seen.last().copied();
            if !listed.more {
                break;
            }
        }
        assert_eq!(seen, (1..=newest).rev().collect::<Vec<_>>());
        // The limit counts as well, and one entry of any size is listed.
        let wanted = Wanted { person: person.clone(), before: None, limit: 1, unread };
        let listed = inbox.list(wanted).await.unwrap();
        assert_eq!((listed.entries.len(), listed.more), (1, true));
    }
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_notice_goes_with_its_last_entry_and_one_that_is_told_again_stays(database: Database) {
    let Scene { inbox, clock, supervisor, .. } = scene(&database).await;
    inbox.notify(notice("e"), &[id(1)]).await.unwrap();
    clock.set(NOW + 10 * DAY);
    // The notice is old, this entry of it is not.
    inbox.notify(notice("e"), &[id(2)]).await.unwrap();
    assert_eq!(inbox.forget_before(NOW + DAY).await.unwrap().entries, 1);
    assert_eq!((listed(&inbox, &id(1)).await, listed(&inbox, &id(2)).await), ((vec![], 0), (vec![1], 1)));
    assert_eq!(inbox.forget_before(NOW + 20 * DAY).await.unwrap().entries, 1);
    // Whoever tells of it now begins anew.
    assert_eq!(inbox.notify(notice("e"), &[id(1), id(2)]).await.unwrap().len(), 2);
    assert_eq!(listed(&inbox, &id(2)).await, (vec![2], 1));
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn a_position_before_what_time_took_is_told_of_the_hole(database: Database) {
    let Scene { inbox, clock, supervisor, .. } = scene(&database).await;
    let (person, source) = (id(1), InboxSource(inbox.clone()));
    let start = async |after: u64| {
        let most = Most { entries: 256, bytes: 1 << 20 };
        let page = source.read(&subject(&person), StreamId::new(after, 0), most).await.unwrap();
        let seqs: Vec<u64> = page.entries.iter().map(|entry| entry.place.id.ms).collect();
        (page.start, seqs)
    };
    for n in 1..=4 {
        inbox.notify(notice(&format!("e{n}")), std::slice::from_ref(&person)).await.unwrap();
        clock.set(NOW + n * DAY);
    }
    // Whoever deletes makes no hole.
    assert!(inbox.delete(&person, EntryId::Seq(2)).await.unwrap());
    assert_eq!(start(1).await, (Start::Known, vec![3, 4]));
    assert_eq!(inbox.forget_before(NOW + DAY + 1).await.unwrap().entries, 2);
    assert_eq!(start(1).await, (Start::Cut, vec![3, 4]), "the second is gone");
    assert_eq!(start(2).await, (Start::Known, vec![3, 4]));
    inbox.forget_before(NOW + 10 * DAY).await.unwrap();
    assert_eq!(start(2).await, (Start::Cut, vec![]), "all are gone");
    assert_eq!(start(4).await, (Start::Known, vec![]));
    assert_eq!(start(5).await.0, Start::Unknown);
    supervisor.shut_down(Duration::from_secs(1)).await;
}

pub(crate) async fn overlapping_sets_are_told_without_a_deadlock(database: Database) {
    let scenes = [scene(&database).await, scene(&database).await];
    let (people, notices) = (10_u64, tier::size(60, 1_000));
    let telling = (0..8_u64).map(async |worker| {
        let mut rng = Rng::new(worker);
        for n in 0..notices {
            let mut targets: Vec<Id> = (0..people).filter(|_| rng.chance(2, 3)).map(id).collect();
            rng.shuffle(&mut targets);
            let inbox = &scenes[n % 2].inbox;
            // Half of them are told by everybody at once.
            let event = if n % 2 == 0 { format!("all{n}") } else { format!("{worker}-{n}") };
            inbox.notify(notice(&event), &targets).await.unwrap();
            inbox.mark_read(&id(rng.below(people)), EntryId::Seq(rng.below(100) + 1)).await.unwrap();
        }
    });
    futures_util::future::join_all(telling).await;
    for person in (0..people).map(id) {
        let standing = scenes[0].inbox.standing(&person).await.unwrap();
        let mut told: Vec<u64> = Vec::new();
        for scene in &scenes {
            let heard = scene.heard.0.lock().unwrap();
            told.extend(heard.iter().filter(|told| told.person == person).map(|told| told.seq));
        }
        told.sort_unstable();
        assert_eq!(told, (1..=standing.last_seq).collect::<Vec<_>>(), "every number once, of {person}");
    }
    assert_eq!(database.deadlocks(), 0, "the database had to break up");
    for scene in scenes {
        scene.supervisor.shut_down(Duration::from_secs(1)).await;
    }
}

pub(crate) async fn everybody_hears_of_it_once_with_where_they_stand(database: Database) {
    let Scene { inbox, heard, supervisor, .. } = scene(&database).await;
    let people = [named("B"), named("a"), named("b")];
    let told = inbox.notify(notice("e1"), &[&people[..], &people[..1]].concat()).await.unwrap();
    assert_eq!(
        told.iter().map(|told| &told.person).collect::<Vec<_>>(),
        [&people[0], &people[1], &people[2]]
    );
    assert!(told.iter().all(|told| (told.seq, told.unread, told.version, told.silent) == (1, 1, 1, false)));
    assert_eq!(inbox.notify(notice("e1"), &people).await.unwrap(), [], "again, nobody");
    assert_eq!(*heard.0.lock().unwrap(), told);
    let read = inbox.mark_read(&people[1], EntryId::Seq(1)).await.unwrap().unwrap();
    assert_eq!(inbox.mark_read(&people[1], EntryId::Seq(1)).await.unwrap(), Some(read));
    assert_eq!(inbox.mark_all_read(&people[2]).await.unwrap(), 0);
    assert_eq!(inbox.mark_all_read(&people[2]).await.unwrap(), 0);
    let changed = |seqs: &[u64]| Changed { seqs: seqs.to_vec(), unread: 0, version: 2 };
    assert_eq!(
        *heard.1.lock().unwrap(),
        [(people[1].clone(), changed(&[1])), (people[2].clone(), changed(&[1]))],
        "once for each change"
    );
    supervisor.shut_down(Duration::from_secs(1)).await;
}
