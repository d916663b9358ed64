//! Order: the ids of a subject only grow, also over restarts, kills and clock changes, and no id is used twice.

use bongsu_kernel::StreamId;
use bongsu_live::LogPosition;

use super::Adapter;
use super::support::{Event, LogFixture, NOW, appended, is_strictly_increasing};

async fn append_ids<A: Adapter>(fixture: &LogFixture<A>, room: &str, count: u64) -> Vec<StreamId> {
    let events = (0..count).map(|number| Event::of(room).number(number)).collect();
    fixture.append(events).await.iter().map(|outcome| appended(outcome).id).collect()
}

pub(crate) async fn ids_grow_in_the_order_of_a_batch<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let ids = append_ids(&fixture, "42", 100).await;
    assert!(is_strictly_increasing(&ids), "{ids:?}");
    assert_eq!(fixture.ids("42").await, ids);
    assert_eq!(fixture.append(Vec::new()).await, Vec::new());
}

pub(crate) async fn ids_grow_while_the_clock_stands_still_or_goes_back<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let mut ids = Vec::new();
    for now in [NOW, NOW, NOW - 1, 0, NOW + 1, NOW, NOW + 1, NOW + 5_000, 1] {
        fixture.clock.set(now);
        ids.extend(append_ids(&fixture, "42", 3).await);
    }
    assert!(is_strictly_increasing(&ids), "{ids:?}");
    assert_eq!(fixture.ids("42").await, ids);
    // An id contains the time of its append, unless an earlier id is larger.
    assert_eq!(ids[0], StreamId::new(NOW, 0));
    assert!(ids.contains(&StreamId::new(NOW + 5_000, 0)), "{ids:?}");
}

pub(crate) async fn ids_grow_over_reopening_with_a_clock_that_went_back<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    let mut ids = append_ids(&fixture, "42", 5).await;
    fixture.clock.set(NOW - 3_600_000);
    fixture.reopen().await;
    ids.extend(append_ids(&fixture, "42", 5).await);
    fixture.kill_and_reopen().await;
    ids.extend(append_ids(&fixture, "42", 5).await);
    assert!(is_strictly_increasing(&ids), "{ids:?}");
    assert_eq!(fixture.ids("42").await, ids);
}

pub(crate) async fn ids_are_not_reused_after_trimming<A: Adapter>() {
    let mut fixture = LogFixture::<A>::empty().await;
    let mut last = StreamId::START;
    for round in 0..400 {
        if round % 150 == 149 {
            fixture.clock.set(NOW - round);
            fixture.reopen().await;
        }
        let id = fixture.append_one(&Event::of("42").keep(1)).await.id;
        assert!(id > last, "{id} was assigned after {last}");
        last = id;
    }
}

pub(crate) async fn subjects_do_not_disturb_each_other<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    // Room ids are case-sensitive, and one id may be a prefix of another.
    let rooms = ["a", "A", "aa", "42", "4", "-1", "a:b", "a.b"];
    for round in 0..5 {
        let events = rooms.map(|room| Event::of(room).number(round)).to_vec();
        fixture.append(events).await;
    }
    for room in rooms {
        assert_eq!(
            fixture.ids(room).await,
            (0..5).map(|seq| StreamId::new(NOW, seq)).collect::<Vec<_>>(),
            "{room}"
        );
    }
    assert_eq!(fixture.head("nobody").await, LogPosition::START);
}

pub(crate) async fn acknowledged_events_survive_a_kill<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    let mut ids = Vec::new();
    for round in 0..5 {
        ids.extend(append_ids(&fixture, "42", 20).await);
        fixture.kill_and_reopen().await;
        assert_eq!(fixture.ids("42").await, ids, "after kill {round}");
    }
}
