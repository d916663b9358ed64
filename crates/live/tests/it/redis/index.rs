//! The index of rooms with follow-up records: a Redis that has lost it gets it back.

use std::time::Duration;

use bongsu_testkit::redis::Redis as Server;
use bongsu_testkit::wait;

use super::OnRedis;
use crate::log_contract::Adapter;
use crate::log_contract::support::{Event, Stage};

#[tokio::test]
async fn a_room_is_in_the_index_again_after_redis_has_lost_it() {
    if !OnRedis::<Server>::is_available() {
        return;
    }
    let stage = Stage::<OnRedis<Server>>::empty().await;
    let prefix = &stage.adapter().prefix;
    let shards: Vec<String> = (0..16).map(|shard| format!("{prefix}{{follow-ups:{shard}}}")).collect();
    let ask = async |command: &'static str| {
        let arguments: Vec<&str> =
            std::iter::once(command).chain(shards.iter().map(String::as_str)).collect();
        stage.adapter().command(&arguments).await.integer()
    };
    stage.append_one(&Event::of("42").recipients(&["1"])).await;
    assert_eq!(ask("DEL").await, 1, "the room is marked before its event is appended");
    // The mark is remembered, so that this append does not make it anew.
    stage.append_one(&Event::of("42").recipients(&["1"])).await;
    assert_eq!(ask("EXISTS").await, 0);
    wait::until(Duration::from_secs(60), async || ask("EXISTS").await == 1).await;
}
