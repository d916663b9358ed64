//! Formats that hubs of two versions share through Redis do not change. The golden files hold each version of a format.

use std::collections::BTreeMap;

use bongsu_coordination::registry::{Instance, InstanceInfo, RecordsLocation};
use bongsu_testkit::Redis;

use crate::hub::{Hub, disconnect, id, instance_info, revoke};

const COMMANDS: &str = include_str!("../golden/orders.v1.txt");
const INSTANCE_V1: &str = include_str!("../golden/instance.v1.txt");
const INSTANCE_V2: &str = include_str!("../golden/instance.v2.txt");

async fn redis_with_a_hub() -> Option<(Redis, Hub)> {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return None;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "", RecordsLocation::Shared(id("main"))).await;
    hub.join().await;
    hub.wait_until_current().await;
    Some((redis, hub))
}

#[tokio::test]
async fn commands_are_stored_and_sent_in_the_format_of_version_1() {
    let Some((redis, hub)) = redis_with_a_hub().await else { return };
    let mut subscriber = redis.connect().await.unwrap();
    subscriber.call(&["SSUBSCRIBE", "{orders}:bus"]).await.unwrap();
    hub.issue(disconnect("anna")).await;
    hub.issue(revoke("ben", 1_708_070_400_000)).await;
    let mut previous = "0-0".to_owned();
    let entries = redis.command(&["XRANGE", "{orders}:feed", "-", "+"]).await;
    for (entry, golden) in entries.items().iter().zip(COMMANDS.lines()) {
        let [entry_id, fields] = entry.items() else { panic!("no entry") };
        let fields: Vec<&str> = fields.items().iter().map(|field| field.text()).collect();
        assert_eq!(fields, ["order", golden]);
        let message = subscriber.read().await.unwrap();
        let entry_id = entry_id.text();
        assert_eq!(message.items()[2].text(), format!("{previous} {entry_id} {golden}"));
        previous = entry_id.to_owned();
    }
    assert_eq!(entries.items().len(), 2);
    assert_eq!(redis.command(&["GET", "{orders}:revoked:ben"]).await.text(), "1708070400000");
    let ttl_secs = redis.command(&["TTL", "{orders}:revoked:ben"]).await.integer();
    assert!((399 * 86_400..=400 * 86_400).contains(&ttl_secs), "{ttl_secs}");
}

#[tokio::test]
async fn commands_of_version_1_are_applied() {
    let Some((redis, hub)) = redis_with_a_hub().await else { return };
    for golden in COMMANDS.lines() {
        redis.command(&["XADD", "{orders}:feed", "*", "order", golden]).await.expect_ok();
    }
    hub.catch_up().await;
    assert_eq!(hub.recorder.commands(), [disconnect("anna"), revoke("ben", 1_708_070_400_000)]);
}

#[tokio::test]
async fn an_instance_is_stored_in_the_format_of_version_2_and_version_1_is_read() {
    let Some((redis, hub)) = redis_with_a_hub().await else { return };
    let stored = redis.command(&["HGET", "{instances}:about", hub.id()]).await;
    let without_time = |text: &str| text.split_once(' ').unwrap().1.trim_end().to_owned();
    assert_eq!(without_time(stored.text()), without_time(INSTANCE_V2));
    let info = instance_info(RecordsLocation::Shared(id("main")));
    let without_settings =
        InstanceInfo { required_settings: BTreeMap::new(), setting_hashes: None, ..info.clone() };
    for (golden, info) in [(INSTANCE_V1, without_settings), (INSTANCE_V2, info)] {
        redis.command(&["HSET", "{instances}:about", "other", golden.trim_end()]).await.expect_ok();
        redis.command(&["ZADD", "{instances}:leases", "99999999999999", "other"]).await.expect_ok();
        hub.join().await;
        let alive = hub.registry().fleet().borrow().alive.clone();
        let other = alive.iter().find(|instance| instance.id == "other");
        assert_eq!(other, Some(&Instance { id: "other".to_owned(), info, joined_at: 1_708_070_400_000 }));
        // An instance in this format does not keep others from joining.
        let later = Hub::start(&redis.url(), "", RecordsLocation::Shared(id("main"))).await;
        later.join().await;
        later.stop().await;
    }
}
