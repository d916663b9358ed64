//! The index of rooms with follow-up records is restored after Redis has lost it.

use std::time::Duration;

use bongsu_testkit::redis::Redis as Server;
use bongsu_testkit::wait;

use super::RedisAdapter;
use crate::log_contract::Adapter;
use crate::log_contract::support::{Event, LogFixture};

#[tokio::test]
async fn a_room_is_in_the_index_again_after_redis_has_lost_it() {
    if !RedisAdapter::<Server>::is_available() {
        return;
    }
    let fixture = LogFixture::<RedisAdapter<Server>>::empty().await;
    let prefix = &fixture.adapter().prefix;
    let shards: Vec<String> = (0..16).map(|shard| format!("{prefix}{{follow-ups:{shard}}}")).collect();
    let call = async |command: &'static str| {
        let arguments: Vec<&str> =
            std::iter::once(command).chain(shards.iter().map(String::as_str)).collect();
        fixture.adapter().command(&arguments).await.integer()
    };
    fixture.append_one(&Event::of("42").recipients(&["1"])).await;
    assert_eq!(call("DEL").await, 1, "the room is marked before its event is appended");
    // The instance remembers its recent mark, so this append does not write the mark again.
    fixture.append_one(&Event::of("42").recipients(&["1"])).await;
    assert_eq!(call("EXISTS").await, 0);
    wait::until(Duration::from_secs(60), async || call("EXISTS").await == 1).await;
}
