//! What stands in Redis, and travels between hubs of two versions, is what it was: the golden files hold every version.

use std::collections::BTreeMap;

use bongsu_coordination::registry::{About, Instance, Records};
use bongsu_testkit::Redis;

use crate::hub::{Hub, about, id, kick, revoke};

const ORDERS: &str = include_str!("../golden/orders.v1.txt");
const INSTANCE_V1: &str = include_str!("../golden/instance.v1.txt");
const INSTANCE_V2: &str = include_str!("../golden/instance.v2.txt");

async fn redis_with_a_hub() -> Option<(Redis, Hub)> {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return None;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "", Records::Shared(id("main"))).await;
    hub.join().await;
    hub.is_current().await;
    Some((redis, hub))
}

#[tokio::test]
async fn orders_are_written_and_sent_as_in_version_1() {
    let Some((redis, hub)) = redis_with_a_hub().await else { return };
    let mut subscriber = redis.connect().await.unwrap();
    subscriber.call(&["SSUBSCRIBE", "{orders}:bus"]).await.unwrap();
    hub.give(kick("anna")).await;
    hub.give(revoke("ben", 1_708_070_400_000)).await;
    let mut previous = "0-0".to_owned();
    let entries = redis.command(&["XRANGE", "{orders}:feed", "-", "+"]).await;
    for (entry, golden) in entries.items().iter().zip(ORDERS.lines()) {
        let [own, fields] = entry.items() else { panic!("no entry") };
        let fields: Vec<&str> = fields.items().iter().map(|field| field.text()).collect();
        assert_eq!(fields, ["order", golden]);
        let message = subscriber.read().await.unwrap();
        let own = own.text();
        assert_eq!(message.items()[2].text(), format!("{previous} {own} {golden}"));
        previous = own.to_owned();
    }
    assert_eq!(entries.items().len(), 2);
    assert_eq!(redis.command(&["GET", "{orders}:revoked:ben"]).await.text(), "1708070400000");
    let life = redis.command(&["TTL", "{orders}:revoked:ben"]).await.integer();
    assert!((399 * 86_400..=400 * 86_400).contains(&life), "{life}");
}

#[tokio::test]
async fn orders_of_version_1_are_understood() {
    let Some((redis, hub)) = redis_with_a_hub().await else { return };
    for golden in ORDERS.lines() {
        redis.command(&["XADD", "{orders}:feed", "*", "order", golden]).await.accepted();
    }
    hub.catch_up().await;
    assert_eq!(hub.applied.orders(), [kick("anna"), revoke("ben", 1_708_070_400_000)]);
}

#[tokio::test]
async fn an_instance_is_written_as_in_version_2_and_older_ones_are_understood() {
    let Some((redis, hub)) = redis_with_a_hub().await else { return };
    let stored = redis.command(&["HGET", "{instances}:about", hub.id()]).await;
    let without_time = |text: &str| text.split_once(' ').unwrap().1.trim_end().to_owned();
    assert_eq!(without_time(stored.text()), without_time(INSTANCE_V2));
    let about = about(Records::Shared(id("main")));
    let without_settings =
        About { required_settings: BTreeMap::new(), setting_hashes: None, ..about.clone() };
    for (golden, about) in [(INSTANCE_V1, without_settings), (INSTANCE_V2, about)] {
        redis.command(&["HSET", "{instances}:about", "other", golden.trim_end()]).await.accepted();
        redis.command(&["ZADD", "{instances}:leases", "99999999999999", "other"]).await.accepted();
        hub.join().await;
        let alive = hub.registry().fleet().borrow().alive.clone();
        let other = alive.iter().find(|instance| instance.id == "other");
        assert_eq!(other, Some(&Instance { id: "other".to_owned(), about, joined_at: 1_708_070_400_000 }));
        // Nor does it keep others out.
        let later = Hub::start(&redis.url(), "", Records::Shared(id("main"))).await;
        later.join().await;
        later.stop().await;
    }
}
