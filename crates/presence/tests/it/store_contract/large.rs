//! Rooms of more than two hundred: nobody is listed, and changes are gathered for a second.

use bongsu_presence::store::MOST_LISTED;
use bongsu_testkit::wait;

use super::Adapter;
use super::stage::{LONG, ROOM, Stage, words};
use crate::support::{PATIENCE, id};

/// Fills a room with so many people, `1` and on, and waits until all of it is announced.
pub(crate) async fn fill<A: Adapter>(stage: &Stage<A>, count: usize) {
    let people: Vec<String> = (1..=count).map(|person| person.to_string()).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    for people in people.chunks(100) {
        stage.tell(people, &[]).await;
    }
    look_until(stage, |said| said.last().is_some_and(|last| last.ends_with(&format!(" {count}")))).await;
}

/// Looks, as a hub with people there does, until what was announced is as it should be.
#[track_caller]
pub(crate) fn look_until<A: Adapter>(
    stage: &Stage<A>,
    enough: impl Fn(&[String]) -> bool,
) -> impl Future<Output = Vec<String>> {
    let caller = std::panic::Location::caller();
    async move {
        let said = wait::value_within(PATIENCE, || async {
            stage.tell(&[], &[]).await;
            let said: Vec<String> = stage.ears.of(ROOM).iter().map(words).collect();
            enough(&said).then_some(said)
        });
        said.await.unwrap_or_else(|| panic!("not announced at {caller}"))
    }
}

pub(crate) async fn two_hundred_are_listed_and_no_more<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    fill(&stage, MOST_LISTED).await;
    let changes = stage.ears.of(ROOM);
    assert_eq!(changes.len(), MOST_LISTED);
    assert!(changes.iter().all(|change| change.online.is_some() && change.joined.is_some()));
    stage.tell(&["one-more"], &[]).await;
    let said = look_until(&stage, |said| said.len() > MOST_LISTED).await;
    assert_eq!(said[MOST_LISTED..], ["+one-more of 201"]);
}

pub(crate) async fn changes_of_a_large_room_are_gathered<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    fill(&stage, 205).await;
    let before = stage.ears.of(ROOM).len();
    let told = stage.tell(&["a", "b"], &["1"]).await;
    assert!(told.look_within.is_none_or(|within| within <= bongsu_presence::store::GATHER));
    stage.tell(&["c"], &["a"]).await;
    assert_eq!(stage.store.who(&id(ROOM), None, 0).await.unwrap().count, 206);
    let said = look_until(&stage, |said| said.len() > before).await;
    assert_eq!(said[before..], ["= of 206"]);
    // Nothing is left of it: what comes next is a change of its own.
    stage.tell(&[], &["b"]).await;
    let said = look_until(&stage, |said| said.len() > before + 1).await;
    assert_eq!(said[before + 1..], ["-b of 205"]);
}

pub(crate) async fn a_single_change_of_a_large_room_is_named<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    fill(&stage, 202).await;
    let before = stage.ears.of(ROOM).len();
    stage.tell(&["1", "2", "new"], &[]).await;
    let said = look_until(&stage, |said| said.len() > before).await;
    assert_eq!(said[before..], ["+new of 203"]);
    stage.tell(&[], &["new"]).await;
    let said = look_until(&stage, |said| said.len() > before + 1).await;
    assert_eq!(said[before + 1..], ["-new of 202"]);
}

pub(crate) async fn a_room_that_shrinks_lists_its_people_again<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    fill(&stage, 202).await;
    let before = stage.ears.of(ROOM).len();
    stage.tell(&[], &["1", "2"]).await;
    stage.tell(&[], &["3"]).await;
    let said = look_until(&stage, |said| said.len() > before + 1).await;
    assert!(said[before].starts_with("= of 4 ") || said[before].starts_with("= of 3 "), "{}", said[before]);
    assert!(said[before + 1].starts_with("-3 of 4 5 6"), "{}", said[before + 1]);
    let changes = stage.ears.of(ROOM);
    assert_eq!(changes[before..].iter().map(|change| change.count).collect::<Vec<_>>(), [200, 199]);
}

pub(crate) async fn pages_are_in_order_and_count_the_whole_room<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    fill(&stage, 250).await;
    stage.tell(&["ada", "Z"], &["7"]).await;
    let page = async |after: &str, most: usize| {
        let after = (!after.is_empty()).then(|| id(after));
        let who = stage.store.who(&id(ROOM), after.as_ref(), most).await.unwrap();
        assert_eq!(who.count, 251, "of the whole room");
        let listed: Vec<String> = who.online.iter().map(|online| online.user.to_string()).collect();
        (listed, who.has_more)
    };
    let (mut everybody, mut pages) = (Vec::<String>::new(), 0);
    loop {
        let after = everybody.last().cloned().unwrap_or_default();
        let (listed, has_more) = page(&after, 60).await;
        everybody.extend(listed);
        pages += 1;
        if !has_more {
            break;
        }
    }
    let mut expected: Vec<String> = (1..=250).filter(|n| *n != 7).map(|n| n.to_string()).collect();
    expected.extend(["ada".to_owned(), "Z".to_owned()]);
    expected.sort_by_key(|id| (id.len(), id.clone()));
    assert_eq!((everybody, pages), (expected, 5), "shorter ids first, each once");
    // Whoever was the last of a page may have left since.
    assert_eq!(page("7", 1).await, (vec!["8".to_owned()], true));
    assert_eq!(page("Z", 1).await, (vec!["10".to_owned()], true));
    assert_eq!(page("ada", 1).await, (vec![], false));
    assert_eq!(page("", 0).await, (vec![], true));
    assert!(!page("", 251).await.1);
    let empty = stage.store.who(&id("nowhere"), None, 5).await.unwrap();
    assert_eq!((empty.count, empty.online, empty.has_more), (0, vec![], false));
}
