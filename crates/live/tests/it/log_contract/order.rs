//! Order: ids of a subject only grow, over everything that can happen, and none is given twice.

use bongsu_kernel::StreamId;
use bongsu_live::Place;

use super::Adapter;
use super::support::{Event, NOW, Stage, appended, grow};

async fn append_ids<A: Adapter>(stage: &Stage<A>, room: &str, count: u64) -> Vec<StreamId> {
    let events = (0..count).map(|number| Event::of(room).number(number)).collect();
    stage.append(events).await.iter().map(|outcome| appended(outcome).id).collect()
}

pub(crate) async fn ids_grow_in_the_order_of_a_batch<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let ids = append_ids(&stage, "42", 100).await;
    assert!(grow(&ids), "{ids:?}");
    assert_eq!(stage.ids("42").await, ids);
    assert_eq!(stage.append(Vec::new()).await, Vec::new());
}

pub(crate) async fn ids_grow_while_the_clock_stands_still_or_goes_back<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let mut ids = Vec::new();
    for now in [NOW, NOW, NOW - 1, 0, NOW + 1, NOW, NOW + 1, NOW + 5_000, 1] {
        stage.clock.set(now);
        ids.extend(append_ids(&stage, "42", 3).await);
    }
    assert!(grow(&ids), "{ids:?}");
    assert_eq!(stage.ids("42").await, ids);
    // An id says when it was given, as far as the order allows.
    assert_eq!(ids[0], StreamId::new(NOW, 0));
    assert!(ids.contains(&StreamId::new(NOW + 5_000, 0)), "{ids:?}");
}

pub(crate) async fn ids_grow_over_reopening_with_a_clock_that_went_back<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    let mut ids = append_ids(&stage, "42", 5).await;
    stage.clock.set(NOW - 3_600_000);
    stage.reopen().await;
    ids.extend(append_ids(&stage, "42", 5).await);
    stage.kill_and_reopen().await;
    ids.extend(append_ids(&stage, "42", 5).await);
    assert!(grow(&ids), "{ids:?}");
    assert_eq!(stage.ids("42").await, ids);
}

pub(crate) async fn ids_are_not_given_again_after_everything_was_trimmed<A: Adapter>() {
    let mut stage = Stage::<A>::empty().await;
    let mut last = StreamId::START;
    for round in 0..400 {
        if round % 150 == 149 {
            stage.clock.set(NOW - round);
            stage.reopen().await;
        }
        let id = stage.append_one(&Event::of("42").keep(1)).await.id;
        assert!(id > last, "{id} was given after {last}");
        last = id;
    }
}

pub(crate) async fn subjects_do_not_disturb_each_other<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    // Ids are case-sensitive, and one may begin with another.
    let rooms = ["a", "A", "aa", "42", "4", "-1", "a:b", "a.b"];
    for round in 0..5 {
        let events = rooms.map(|room| Event::of(room).number(round)).to_vec();
        stage.append(events).await;
    }
    for room in rooms {
        assert_eq!(
            stage.ids(room).await,
            (0..5).map(|seq| StreamId::new(NOW, seq)).collect::<Vec<_>>(),
            "{room}"
        );
    }
    assert_eq!(stage.head("nobody").await, Place::START);
}

pub(crate) async fn what_was_acknowledged_is_there_after_a_kill<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    let mut ids = Vec::new();
    for round in 0..5 {
        ids.extend(append_ids(&stage, "42", 20).await);
        stage.kill_and_reopen().await;
        assert_eq!(stage.ids("42").await, ids, "after kill {round}");
    }
}
