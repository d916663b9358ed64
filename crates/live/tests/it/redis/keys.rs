//! How many idempotency keys Redis keeps: a bound on all subjects together, on one server and on a Cluster.

use std::time::Duration;

use bongsu_testkit::redis::{Cluster, Redis as Server};
use bongsu_testkit::wait;

use super::{OnRedis, Servers};
use crate::log_contract::Adapter;
use crate::log_contract::support::{Event, NOW, Stage};

const LONG: Duration = Duration::from_secs(60);

/// One of many rooms each time.
fn keyed(number: u64) -> Event {
    Event::of(&format!("room{}", number % 30)).number(number).key(&format!("key {number}"))
}

async fn the_oldest_keys_of_all_rooms_go_early<S: Servers>() {
    if !OnRedis::<S>::is_available() {
        return;
    }
    let adapter = OnRedis::<S> { most_keys: 160, ..OnRedis::empty().await };
    let stage = Stage::at(adapter).await;
    for number in 0..480 {
        stage.append_one(&keyed(number)).await;
    }
    // Asking with a key that is still there changes nothing; keys are noted a moment after they were stored.
    let is_gone = wait::holds_within(LONG, async || !stage.append_one(&keyed(0)).await.duplicate);
    assert!(is_gone.await, "the oldest key of 480 is still there, though 160 are kept");
    for number in 340..480 {
        assert!(stage.append_one(&keyed(number)).await.duplicate, "key {number} is among the newest 160");
    }
}

#[tokio::test]
async fn past_the_bound_the_oldest_keys_of_all_rooms_go_early_on_one_server() {
    the_oldest_keys_of_all_rooms_go_early::<Server>().await;
}

#[tokio::test]
async fn past_the_bound_the_oldest_keys_of_all_rooms_go_early_on_a_cluster() {
    the_oldest_keys_of_all_rooms_go_early::<Cluster>().await;
}

#[tokio::test]
async fn keys_go_after_their_life_unless_they_were_stored_anew() {
    if !OnRedis::<Server>::is_available() {
        return;
    }
    let stage = Stage::<OnRedis<Server>>::empty().await;
    let keys = ["stays", "goes"].map(|key| Event::of("42").key(key));
    for event in &keys {
        stage.append_one(event).await;
    }
    stage.clock.set(NOW + 26 * 60 * 60 * 1_000);
    assert!(!stage.append_one(&keys[0]).await.duplicate, "its life was over");
    // Every list of notes is looked at, and so the notes of the first time are found.
    for number in 0..32 {
        stage.append_one(&keyed(number)).await;
    }
    let prefix = &stage.adapter().prefix;
    let answers = format!("{prefix}{{{prefix}room:events:42}}:answers");
    wait::until(LONG, async || stage.adapter().command(&["HLEN", &answers]).await.integer() == 1).await;
    assert!(stage.append_one(&keys[0]).await.duplicate);
}
