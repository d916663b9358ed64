//! Devices of one person on two hubs while Redis loses its data, is paused, or loses messages: only a replaced device
//! is closed, every replaced device is closed, and every entry reaches every device once and in order.

use std::collections::HashSet;
use std::time::Duration;

use bongsu_testkit::hub::Signal;
use bongsu_testkit::proxy::Proxy;
use bongsu_testkit::redis::{Cluster, Redis};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Event, ResumingClient, Stream};
use bongsu_testkit::tokens::now;
use bongsu_testkit::{Api, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::devices::is_replaced;
use super::{RECOUNT_TIMEOUT, WAIT_TIMEOUT, like_notification, notify, one_of_a_fleet, open, stream_request};
use crate::fleet::Fleet;

const CONNECTIONS_KEY: &str = "sse:notification:{7}";
const DISCONNECT_CHANNEL: &str = "sse:notification:disconnect";

fn has_engines() -> bool {
    tier::needs_engine("redis") && tier::needs_engine("postgres")
}

/// Two hubs with their own URL for the same Redis. The ping interval is so long that their streams stay silent.
async fn fleet(urls: [&str; 2]) -> Fleet {
    let database = Flavour::Postgres.database().await;
    Fleet::start_hubs(urls.map(|url| one_of_a_fleet(url, &database).env("MEMBER_STREAM_PING_SECS", 3_600)))
        .await
}

/// Three devices; the oldest and the newest are on the first hub.
async fn three_devices(fleet: &Fleet) -> Vec<Stream> {
    let mut streams = Vec::new();
    for hub in [0, 1, 0] {
        streams.push(open(stream_request(&fleet.hubs[hub], 7)).await);
    }
    streams
}

async fn expect_silence(streams: &mut [Stream]) {
    for stream in streams {
        let said = stream.try_next_event(Duration::from_millis(10)).await;
        assert!(said.is_err(), "a device that was not replaced received {said:?}");
    }
}

async fn count_connections(redis: &Redis) -> i64 {
    redis.command(&["ZCARD", CONNECTIONS_KEY]).await.integer()
}

/// Whether every hub's last report of its connections is older than 500 ms.
async fn are_reports_old(redis: &Redis) -> bool {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let clock = redis.command(&["TIME"]).await;
    let now = number(clock.items()[0].text()) * 1_000 + number(clock.items()[1].text()) / 1_000;
    let words = redis.command(&["HVALS", &format!("{CONNECTIONS_KEY}:hubs")]).await;
    let came = |word: &str| number(word.split(' ').nth(1).expect("the time of the report"));
    words.items().iter().all(|word| came(word.text()) + 500 < now)
}

/// `streams` is ordered from the oldest: checks that a fourth device replaces the first one and no other.
async fn expect_fourth_replaces_oldest(fleet: &Fleet, streams: &mut Vec<Stream>, round: usize) {
    streams.push(open(stream_request(&fleet.hubs[1], 7)).await);
    assert!(is_replaced(&mut streams[0]).await, "the oldest device stays in round {round}");
    streams.remove(0);
    notify(&fleet.apis()[0], &like_notification(&format!("after{round}"), &[7])).await.expect(202);
    for stream in streams {
        expect_entry(stream, &format!("after{round}")).await;
    }
}

/// Reads up to the entry of an event, and fails when anything else than a notification arrives.
async fn expect_entry(stream: &mut Stream, event: &str) {
    let what = format!("the entry of {event}");
    let is_it = |told: &Event| {
        assert_eq!(told.event, "notification", "{told:?}");
        told.json()["eventId"] == event
    };
    stream.find_event(&what, RECOUNT_TIMEOUT, is_it).await;
}

/// Kills all bus connections, and returns how many there were. Connections that were killed before may just be
/// reconnecting, so this waits until there is at least one.
async fn cut_the_bus(redis: &Redis) -> i64 {
    let cut = wait::value_within(WAIT_TIMEOUT, || async {
        let killed = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.expect_ok().integer();
        (killed > 0).then_some(killed)
    });
    cut.await.expect("a bus connection")
}

/// `home` is the server with the key that counts connections.
async fn expect_no_replacement_after_flush(url: &str, nodes: &[Redis], home: &Redis) {
    let fleet = fleet([url, url]).await;
    let mut streams = three_devices(&fleet).await;
    for round in 0..tier::size(1, 10) {
        for node in nodes {
            node.command(&["FLUSHALL"]).await.expect_ok();
        }
        // Each hub notices the loss at its next check.
        let counted_again = async {
            while count_connections(home).await < 3 {
                expect_silence(&mut streams).await;
            }
        };
        tokio::time::timeout(RECOUNT_TIMEOUT, counted_again).await.expect("three counted devices");
        expect_silence(&mut streams).await;
        expect_fourth_replaces_oldest(&fleet, &mut streams, round).await;
    }
}

#[tokio::test]
async fn no_device_is_replaced_when_redis_loses_its_data() {
    if !has_engines() {
        return;
    }
    let redis = [Redis::start().await];
    expect_no_replacement_after_flush(&redis[0].url(), &redis, &redis[0]).await;
}

#[tokio::test]
async fn no_device_is_replaced_when_a_cluster_loses_its_data() {
    if !has_engines() {
        return;
    }
    let cluster = Cluster::start().await;
    let home = cluster.node_of(Cluster::slot_of(CONNECTIONS_KEY)).await;
    expect_no_replacement_after_flush(&cluster.url(), cluster.nodes(), &cluster.nodes()[home]).await;
}

#[tokio::test]
async fn no_device_is_replaced_when_redis_loses_one_connection_entry() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut streams = three_devices(&fleet).await;
    // As after a failover to a replica that had not received the entry.
    let newest = redis.command(&["ZPOPMAX", CONNECTIONS_KEY]).await;
    let (id, time) = (newest.items()[0].text().to_owned(), newest.items()[1].text().to_owned());
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.expect_ok();
    wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == 3).await;
    assert_eq!(
        redis.command(&["ZSCORE", CONNECTIONS_KEY, &id]).await.text(),
        time,
        "the time of the connection"
    );
    expect_silence(&mut streams).await;
    expect_fourth_replaces_oldest(&fleet, &mut streams, 0).await;
}

#[tokio::test]
async fn no_device_is_replaced_because_its_hub_was_suspended() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut oldest = ResumingClient::new(stream_request(&fleet.hubs[0], 7));
    notify(&fleet.apis()[0], &like_notification("e1", &[7])).await.expect(202);
    assert_eq!(oldest.next_event(WAIT_TIMEOUT).await.unwrap().event, "notification");
    let instances = async || redis.command(&["ZCARD", "{instances}:leases"]).await.integer();
    let before = instances().await;
    fleet.hubs[0].send_signal(Signal::STOP);
    wait::until(RECOUNT_TIMEOUT, async || instances().await == before / 2).await;
    // The streams of the paused hub are removed when other devices connect.
    wait::until(RECOUNT_TIMEOUT, async || {
        drop(open(stream_request(&fleet.hubs[1], 7)).await);
        count_connections(&redis).await == 0
    })
    .await;
    let _newer =
        [open(stream_request(&fleet.hubs[1], 7)).await, open(stream_request(&fleet.hubs[1], 7)).await];
    // Killing the bus connections makes the hub check at once when it resumes.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.expect_ok();
    fleet.hubs[0].send_signal(Signal::CONT);
    let close = oldest.next_event(WAIT_TIMEOUT).await.expect("a `system.close` event");
    assert_eq!((close.event.as_str(), &close.json()["code"]), ("system.close", &json!(3001)));
    notify(&fleet.apis()[1], &like_notification("e2", &[7])).await.expect(202);
    let back = oldest.next_event(WAIT_TIMEOUT).await.expect("a reconnect");
    assert_eq!((back.event.as_str(), back.own_id.as_deref()), ("notification", Some("2")));
    wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == 3).await;
}

#[tokio::test]
async fn a_replaced_device_is_closed_even_without_a_message() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let proxies = [Proxy::start(redis.addr()).await, Proxy::start(redis.addr()).await];
    let urls = proxies.each_ref().map(|proxy| format!("redis://{}", proxy.addr()));
    let fleet = fleet([&urls[0], &urls[1]]).await;
    let mut streams = three_devices(&fleet).await;
    let lost = || proxies.iter().map(Proxy::dropped_messages).sum::<u64>();
    for round in 0..tier::size(1, 10) {
        let before = lost();
        // The proxies drop more messages than are sent, so that the hub can learn of the replacement only from Redis.
        for proxy in proxies.iter().cycle().take(20) {
            proxy.drop_next_message(DISCONNECT_CHANNEL.as_bytes());
        }
        expect_fourth_replaces_oldest(&fleet, &mut streams, round).await;
        wait::until(WAIT_TIMEOUT, async || lost() >= before + 2).await;
        wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == 3).await;
    }
}

#[tokio::test]
async fn a_replaced_device_is_closed_even_if_the_bus_breaks() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut streams = three_devices(&fleet).await;
    for round in 0..tier::size(5, 100) {
        cut_the_bus(&redis).await;
        expect_fourth_replaces_oldest(&fleet, &mut streams, round).await;
        wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == 3).await;
    }
}

#[tokio::test]
async fn devices_that_connect_during_a_redis_outage_leave_no_connection_counted() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut streams = three_devices(&fleet).await;
    for kills in [false, true] {
        if kills {
            redis.kill9().await;
        } else {
            redis.pause();
        }
        // Whether or not their connections are recorded in Redis later: these clients are asked to reconnect and
        // disconnect.
        let coming = (0..6).map(async |n: usize| {
            let mut stream = open(stream_request(&fleet.hubs[n % 2], 7)).await;
            let close = stream.expect_event("system.close", WAIT_TIMEOUT).await.json();
            assert!(close["code"].as_u64().unwrap() < 3_500, "{close}");
        });
        join_all(coming).await;
        streams.pop();
        if kills {
            redis.restart().await;
        } else {
            redis.resume();
        }
        let left = streams.len() as i64;
        wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == left).await;
        expect_silence(&mut streams).await;
    }
    drop(streams);
    let kept = [CONNECTIONS_KEY.to_owned(), format!("{CONNECTIONS_KEY}:hubs")];
    wait::until(WAIT_TIMEOUT, async || redis.command(&["EXISTS", &kept[0], &kept[1]]).await.integer() == 0)
        .await;
}

#[tokio::test]
async fn entries_whose_bus_message_is_lost_reach_every_device_once_and_in_order() {
    tier::counts_events();
    if !has_engines() {
        return;
    }
    let name = "entries_whose_bus_message_is_lost_reach_every_device_once_and_in_order";
    let (notices, mut rng) = (tier::size(400, 10_000) as u64, Rng::for_test(name));
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut streams = three_devices(&fleet).await;
    let telling = async {
        let (apis, mut killed, mut acknowledged): ([Api; 2], i64, u64) = (fleet.apis(), 0, 0);
        for n in 1..=notices {
            if rng.chance(1, 10) {
                killed += cut_the_bus(&redis).await;
            }
            notify(rng.pick(&apis), &like_notification(&format!("n{n}"), &[7])).await.expect(202);
            acknowledged += 1;
        }
        (killed, acknowledged)
    };
    let reading = join_all(streams.iter_mut().map(async |stream| {
        let mut seen = Vec::new();
        for n in 1..=notices {
            // After a loss the device also gets the current count, in a message without entries.
            let is_notification = |event: &Event| {
                let is_count = event.event == "read" && event.json()["ids"] == json!([]);
                assert!(is_count || event.event == "notification", "{event:?}");
                !is_count
            };
            let event = stream.find_event("a notification", RECOUNT_TIMEOUT, is_notification).await;
            let (id, name) = (n.to_string(), json!(format!("n{n}")));
            assert_eq!((event.own_id.as_ref(), &event.json()["eventId"]), (Some(&id), &name));
            seen.push(id);
        }
        seen
    }));
    let ((killed, acknowledged), seen) = tokio::join!(telling, reading);
    let delivered: usize = seen.iter().map(Vec::len).sum();
    let distinct: usize = seen.iter().map(|ids| ids.iter().collect::<HashSet<_>>().len()).sum();
    let mut repairs = 0.0;
    for hub in &fleet.hubs {
        repairs += hub.metrics().await.get("bus_repairs_total", &[]);
    }
    let facts = json!({"seed": tier::seed(), "acknowledged": acknowledged, "devices": seen.len(),
        "delivered": delivered, "missing": acknowledged as usize * seen.len() - distinct,
        "repeated": delivered - distinct, "connectionsKilled": killed, "repairs": repairs});
    proof::record("inbox", name, facts);
    assert!(killed as u64 >= notices / 20 && repairs > 0.0, "{killed} connections killed, {repairs} repairs");
}

#[tokio::test]
async fn the_delivery_time_of_an_entry_is_measured_from_its_save() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut stream = open(stream_request(&fleet.hubs[0], 7)).await;
    // The test sends the message of another hub for an entry that was saved five seconds ago.
    let data = json!({"v": 1, "id": 1, "eventId": "e1", "type": "POST_LIKE", "payload": {}, "at": 0});
    let message = format!("1 1 +\n{} {data}", (now() - 5) * 1_000);
    redis.command(&["SPUBLISH", "{member:7}:bus", &message]).await.expect_ok();
    stream.expect_event("notification", WAIT_TIMEOUT).await;
    let took = fleet.hubs[0].metrics().await.get("delivery_latency_seconds_sum", &[]);
    assert!((4.0..60.0).contains(&took), "{took} seconds");
}

#[tokio::test]
async fn devices_that_reconnect_at_once_from_a_killed_hub_replace_nobody() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    for round in 0..tier::size(2, 20) {
        let mut streams = vec![open(stream_request(&fleet.hubs[0], 7)).await];
        let gone =
            [open(stream_request(&fleet.hubs[1], 7)).await, open(stream_request(&fleet.hubs[1], 7)).await];
        wait::until(WAIT_TIMEOUT, async || are_reports_old(&redis).await).await;
        fleet.hubs[1].kill9().await;
        drop(gone);
        for _ in 0..2 {
            streams.push(open(stream_request(&fleet.hubs[0], 7)).await);
        }
        wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == 3).await;
        notify(&fleet.apis()[0], &like_notification(&format!("back{round}"), &[7])).await.expect(202);
        for stream in &mut streams {
            expect_entry(stream, &format!("back{round}")).await;
        }
        // A fourth device is still over the limit.
        expect_fourth_on_same_hub_replaces_oldest(&fleet, &mut streams).await;
        drop(streams);
        wait::until(WAIT_TIMEOUT, async || count_connections(&redis).await == 0).await;
        fleet.hubs[1].restart().await;
    }
}

async fn expect_fourth_on_same_hub_replaces_oldest(fleet: &Fleet, streams: &mut Vec<Stream>) {
    let fourth = open(stream_request(&fleet.hubs[0], 7)).await;
    assert!(is_replaced(&mut streams[0]).await, "the oldest device stays");
    streams.push(fourth);
}

#[tokio::test]
async fn connections_of_a_killed_hub_are_released_when_its_lease_ends() {
    if !has_engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let keys =
        |user: u64| [format!("sse:notification:{{{user}}}"), format!("sse:notification:{{{user}}}:hubs")];
    let exist = async |user: u64| {
        let [streams, hubs] = keys(user);
        redis.command(&["EXISTS", &streams, &hubs]).await.integer()
    };
    // Two people have connections to the killed hub only; one person has another device.
    let mut killed =
        vec![open(stream_request(&fleet.hubs[1], 8)).await, open(stream_request(&fleet.hubs[1], 9)).await];
    let mut stays = open(stream_request(&fleet.hubs[0], 7)).await;
    killed.push(open(stream_request(&fleet.hubs[1], 7)).await);
    assert_eq!((count_connections(&redis).await, exist(8).await, exist(9).await), (2, 2, 2));
    fleet.hubs[1].kill9().await;
    wait::until(WAIT_TIMEOUT, async || {
        (exist(8).await, exist(9).await, count_connections(&redis).await) == (0, 0, 1)
    })
    .await;
    let noted = async || redis.command(&["KEYS", "sse:notification:people:*"]).await.items().len();
    wait::until(WAIT_TIMEOUT, async || noted().await == 1).await;
    notify(&fleet.apis()[0], &like_notification("after", &[7])).await.expect(202);
    expect_entry(&mut stays, "after").await;
    // A hub removes its record of a person with the person's last connection.
    drop(stays);
    wait::until(WAIT_TIMEOUT, async || noted().await == 0).await;
    // All hubs were down for a while: a hub that starts again finds the leftover connections.
    let _lost = open(stream_request(&fleet.hubs[0], 8)).await;
    fleet.hubs[0].kill9().await;
    fleet.hubs[0].restart().await;
    wait::until(WAIT_TIMEOUT, async || exist(8).await == 0).await;
}
