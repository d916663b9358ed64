//! Coming and leaving: each is one change, announced once.

use super::Adapter;
use super::stage::{LONG, ROOM, Stage, heard_all, who};
use crate::support::{id, ids};

pub(crate) async fn who_comes_is_there_and_announced_once<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    assert!(stage.who().await.is_empty());
    stage.tell(&["7"], &[]).await;
    assert_eq!(stage.who().await, ["7"]);
    stage.tell(&["10"], &[]).await;
    assert_eq!(stage.who().await, ["7", "10"]);
    assert_eq!(stage.announced().await, ["+7 of 7", "+10 of 7 10"]);
}

pub(crate) async fn saying_it_again_changes_nothing<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    for _ in 0..3 {
        stage.tell(&["7", "7"], &[]).await;
    }
    assert_eq!(stage.who().await, ["7"]);
    assert_eq!(stage.announced().await, ["+7 of 7"]);
}

pub(crate) async fn who_leaves_is_gone_and_announced_once<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.tell(&["7", "8"], &[]).await;
    stage.tell(&["9"], &["7"]).await;
    assert_eq!(stage.who().await, ["8", "9"]);
    stage.tell(&[], &["8", "9"]).await;
    assert!(stage.who().await.is_empty());
    stage.tell(&["7"], &[]).await;
    let said = stage.announced().await;
    assert_eq!(said[2..], ["+9 of 7 8 9", "-7 of 8 9", "-8 of 9", "-9 of", "+7 of 7"]);
}

pub(crate) async fn leaving_twice_or_without_having_come_changes_nothing<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.tell(&[], &["7"]).await;
    stage.tell(&["7"], &[]).await;
    stage.tell(&[], &["7", "7"]).await;
    stage.tell(&[], &["7", "8"]).await;
    assert_eq!(stage.announced().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn several_at_once_are_announced_one_by_one<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.tell(&["1", "2", "3"], &[]).await;
    stage.tell(&[], &["1", "2", "3"]).await;
    let said = stage.announced().await;
    assert_eq!(said, ["+1 of 1", "+2 of 1 2", "+3 of 1 2 3", "-1 of 2 3", "-2 of 3", "-3 of"]);
}

pub(crate) async fn rooms_do_not_disturb_each_other<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    // So many that a Cluster has them on all its servers.
    let rooms: Vec<String> = (0..24).map(|n| format!("room:{n}")).collect();
    for room in &rooms {
        stage.store.listen(&id(room)).await.unwrap();
        stage.store.tell(&id(room), &ids(&["1", room]), &[]).await.unwrap();
        stage.store.beat(&id(room), &id("beat")).await.unwrap();
    }
    stage.tell(&["1"], &[]).await;
    stage.store.tell(&id(&rooms[0]), &[], &ids(&["1"])).await.unwrap();
    stage.store.forget(&id(&rooms[1]));
    assert_eq!(who(&stage.store, &rooms[0]).await, ["beat", "room:0"]);
    for room in &rooms[1..] {
        assert_eq!(who(&stage.store, room).await, ["1", "beat", room]);
    }
    assert_eq!(stage.announced().await, ["+1 of 1"]);
}

pub(crate) async fn every_id_travels<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    let long = "x".repeat(128);
    let odd = ["-", ".", "0", "007", "-7", "A", "a", "a@b.c", "1:2:3", "_", "9007199254740993", &long];
    for person in odd {
        stage.tell(&[person], &[]).await;
    }
    let mut here = odd.map(str::to_owned);
    here.sort_by_key(|person| (person.len(), person.clone()));
    assert_eq!(stage.who().await, here);
    let said = stage.announced().await;
    assert_eq!(said[0], "+- of -");
    assert_eq!(said[odd.len() - 1], format!("+{long} of {}", here.join(" ")));
    stage.tell(&[], &odd).await;
    assert!(stage.who().await.is_empty());
}

pub(crate) async fn announcements_are_in_order<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    for person in ["1", "2", "3", "1", "2"] {
        stage.tell(&[person], &["1"]).await;
    }
    let before = stage.store.who(&id(ROOM), None, 0).await.unwrap().version;
    stage.announced().await;
    let changes = heard_all(&stage.ears).await;
    assert_eq!(changes.last().map(|change| change.version), Some(before), "the room includes what was told");
    for pair in changes.windows(2) {
        assert!(pair[0].version < pair[1].version && pair[0].at <= pair[1].at);
        assert!(pair[1].previous.is_none_or(|previous| previous == pair[0].version));
    }
}
