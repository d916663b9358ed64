//! The limit of idempotency keys of all subjects together, on one server and on a Cluster.

use std::time::Duration;

use bongsu_testkit::redis::{Cluster, Redis as Server};
use bongsu_testkit::wait;

use super::{RedisAdapter, Servers};
use crate::log_contract::Adapter;
use crate::log_contract::support::{Event, LogFixture, NOW};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// An event with a key, in one of 30 rooms.
fn keyed(number: u64) -> Event {
    Event::of(&format!("room{}", number % 30)).number(number).key(&format!("key {number}"))
}

async fn the_oldest_keys_of_all_rooms_are_removed<S: Servers>() {
    if !RedisAdapter::<S>::is_available() {
        return;
    }
    let adapter = RedisAdapter::<S> { max_keys: 160, ..RedisAdapter::empty().await };
    let fixture = LogFixture::at(adapter).await;
    for number in 0..480 {
        fixture.append_one(&keyed(number)).await;
    }
    // Appending again with a key that is still stored has no effect. Notes are written a moment after the
    // answer.
    let is_removed =
        wait::holds_within(WAIT_TIMEOUT, async || !fixture.append_one(&keyed(0)).await.duplicate);
    assert!(is_removed.await, "the oldest key of 480 is still stored, although the limit is 160");
    for number in 340..480 {
        assert!(fixture.append_one(&keyed(number)).await.duplicate, "key {number} is among the newest 160");
    }
}

#[tokio::test]
async fn above_the_limit_the_oldest_keys_of_all_rooms_are_removed_on_one_server() {
    the_oldest_keys_of_all_rooms_are_removed::<Server>().await;
}

#[tokio::test]
async fn above_the_limit_the_oldest_keys_of_all_rooms_are_removed_on_a_cluster() {
    the_oldest_keys_of_all_rooms_are_removed::<Cluster>().await;
}

#[tokio::test]
async fn expired_keys_are_removed_unless_they_were_stored_again() {
    if !RedisAdapter::<Server>::is_available() {
        return;
    }
    let fixture = LogFixture::<RedisAdapter<Server>>::empty().await;
    let keys = ["stays", "goes"].map(|key| Event::of("42").key(key));
    for event in &keys {
        fixture.append_one(event).await;
    }
    fixture.clock.set(NOW + 26 * 60 * 60 * 1_000);
    assert!(!fixture.append_one(&keys[0]).await.duplicate, "the key has expired");
    // Adds notes to every list: the call that adds a note also removes the expired notes of that list.
    for number in 0..32 {
        fixture.append_one(&keyed(number)).await;
    }
    let prefix = &fixture.adapter().prefix;
    let answers = format!("{prefix}{{{prefix}room:events:42}}:answers");
    wait::until(WAIT_TIMEOUT, async || fixture.adapter().command(&["HLEN", &answers]).await.integer() == 1)
        .await;
    assert!(fixture.append_one(&keys[0]).await.duplicate);
}
