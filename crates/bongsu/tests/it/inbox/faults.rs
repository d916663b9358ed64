//! Devices of one person on two hubs while Redis forgets, stands still, or loses messages: nobody is sent away who was not
//! replaced, who was replaced goes, and what is saved reaches every device once and in order.

use std::collections::HashSet;
use std::time::Duration;

use bongsu_testkit::hub::Signal;
use bongsu_testkit::proxy::Proxy;
use bongsu_testkit::redis::{Cluster, Redis};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Event, Resuming, Stream};
use bongsu_testkit::tokens::now;
use bongsu_testkit::{Api, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::devices::is_replaced;
use super::{LONG, SOON, like, listen, notify, one_of_a_fleet, open};
use crate::fleet::Fleet;

const COUNTED: &str = "sse:notification:{7}";
const DISCONNECT: &str = "sse:notification:disconnect";

fn engines() -> bool {
    tier::needs_engine("redis") && tier::needs_engine("postgres")
}

/// Two hubs that reach Redis by an address of their own. Their streams say nothing unless there is something to say.
async fn fleet(urls: [&str; 2]) -> Fleet {
    let database = Flavour::Postgres.database().await;
    Fleet::of(urls.map(|url| one_of_a_fleet(url, &database).env("MEMBER_STREAM_PING_SECS", 3_600))).await
}

/// Three devices, the oldest and the newest of them on the first hub.
async fn three_devices(fleet: &Fleet) -> Vec<Stream> {
    let mut streams = Vec::new();
    for hub in [0, 1, 0] {
        streams.push(open(listen(&fleet.hubs[hub], 7)).await);
    }
    streams
}

async fn say_nothing(streams: &mut [Stream]) {
    for stream in streams {
        let said = stream.try_next_event(Duration::from_millis(10)).await;
        assert!(said.is_err(), "a device that nobody replaced was told {said:?}");
    }
}

async fn counted(redis: &Redis) -> i64 {
    redis.command(&["ZCARD", COUNTED]).await.integer()
}

/// Whether no hub has said within the last half second what it holds.
async fn all_are_silent(redis: &Redis) -> bool {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let clock = redis.command(&["TIME"]).await;
    let now = number(clock.items()[0].text()) * 1_000 + number(clock.items()[1].text()) / 1_000;
    let words = redis.command(&["HVALS", &format!("{COUNTED}:hubs")]).await;
    let came = |word: &str| number(word.split(' ').nth(1).expect("when it came"));
    words.items().iter().all(|word| came(word.text()) + 500 < now)
}

/// Of these, the oldest first, the fourth that comes now replaces the first and no other.
async fn a_fourth_replaces_the_oldest_only(fleet: &Fleet, streams: &mut Vec<Stream>, round: usize) {
    streams.push(open(listen(&fleet.hubs[1], 7)).await);
    assert!(is_replaced(&mut streams[0]).await, "the oldest stays, in round {round}");
    streams.remove(0);
    notify(&fleet.apis()[0], &like(&format!("after{round}"), &[7])).await.expect(202);
    for stream in streams {
        told_of(stream, &format!("after{round}")).await;
    }
}

/// Reads on to the entry of an event, and fails when something else than entries comes.
async fn told_of(stream: &mut Stream, event: &str) {
    let what = format!("the entry of {event}");
    let is_it = |told: &Event| {
        assert_eq!(told.event, "notification", "{told:?}");
        told.json()["eventId"] == event
    };
    stream.find_event(&what, LONG, is_it).await;
}

/// Cuts all connections of the bus off, and gives how many there were. Those that were cut off before may just be on
/// their way back, so it waits for some.
async fn cut_the_bus(redis: &Redis) -> i64 {
    let cut = wait::value_within(SOON, || async {
        let killed = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.accepted().integer();
        (killed > 0).then_some(killed)
    });
    cut.await.expect("a connection of the bus")
}

/// `home` is the server that counts.
async fn nobody_is_replaced_by_a_redis_that_forgets(url: &str, nodes: &[Redis], home: &Redis) {
    let fleet = fleet([url, url]).await;
    let mut streams = three_devices(&fleet).await;
    for round in 0..tier::size(1, 10) {
        for node in nodes {
            node.command(&["FLUSHALL"]).await.accepted();
        }
        // Each hub finds out by itself, when it looks.
        let counted_again = async {
            while counted(home).await < 3 {
                say_nothing(&mut streams).await;
            }
        };
        tokio::time::timeout(LONG, counted_again).await.expect("all three are counted again");
        say_nothing(&mut streams).await;
        a_fourth_replaces_the_oldest_only(&fleet, &mut streams, round).await;
    }
}

#[tokio::test]
async fn nobody_is_replaced_when_redis_forgets_everything() {
    if !engines() {
        return;
    }
    let redis = [Redis::start().await];
    nobody_is_replaced_by_a_redis_that_forgets(&redis[0].url(), &redis, &redis[0]).await;
}

#[tokio::test]
async fn nobody_is_replaced_when_a_cluster_forgets_everything() {
    if !engines() {
        return;
    }
    let cluster = Cluster::start().await;
    let home = cluster.node_of(Cluster::slot_of(COUNTED)).await;
    nobody_is_replaced_by_a_redis_that_forgets(&cluster.url(), cluster.nodes(), &cluster.nodes()[home]).await;
}

#[tokio::test]
async fn nobody_is_replaced_when_one_of_them_is_no_longer_counted() {
    if !engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut streams = three_devices(&fleet).await;
    // As a failover does that comes before the replica has heard of it.
    let newest = redis.command(&["ZPOPMAX", COUNTED]).await;
    let (id, time) = (newest.items()[0].text().to_owned(), newest.items()[1].text().to_owned());
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.accepted();
    wait::until(SOON, async || counted(&redis).await == 3).await;
    assert_eq!(redis.command(&["ZSCORE", COUNTED, &id]).await.text(), time, "since when it is here");
    say_nothing(&mut streams).await;
    a_fourth_replaces_the_oldest_only(&fleet, &mut streams, 0).await;
}

#[tokio::test]
async fn nobody_is_replaced_because_their_hub_stood_still() {
    if !engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut oldest = Resuming::new(listen(&fleet.hubs[0], 7));
    notify(&fleet.apis()[0], &like("e1", &[7])).await.expect(202);
    assert_eq!(oldest.next_event(SOON).await.unwrap().event, "notification");
    let instances = async || redis.command(&["ZCARD", "{instances}:leases"]).await.integer();
    let before = instances().await;
    fleet.hubs[0].send_signal(Signal::STOP);
    wait::until(LONG, async || instances().await == before / 2).await;
    // It is given up when others come.
    wait::until(LONG, async || {
        drop(open(listen(&fleet.hubs[1], 7)).await);
        counted(&redis).await == 0
    })
    .await;
    let _newer = [open(listen(&fleet.hubs[1], 7)).await, open(listen(&fleet.hubs[1], 7)).await];
    // So that it looks at once when it goes on.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.accepted();
    fleet.hubs[0].send_signal(Signal::CONT);
    let close = oldest.next_event(SOON).await.expect("an end with a reason");
    assert_eq!((close.event.as_str(), &close.json()["code"]), ("system.close", &json!(3001)));
    notify(&fleet.apis()[1], &like("e2", &[7])).await.expect(202);
    let back = oldest.next_event(SOON).await.expect("it comes back");
    assert_eq!((back.event.as_str(), back.own_id.as_deref()), ("notification", Some("2")));
    wait::until(SOON, async || counted(&redis).await == 3).await;
}

#[tokio::test]
async fn who_is_replaced_goes_although_no_message_says_so() {
    if !engines() {
        return;
    }
    let redis = Redis::start().await;
    let proxies = [Proxy::start(redis.addr()).await, Proxy::start(redis.addr()).await];
    let urls = proxies.each_ref().map(|proxy| format!("redis://{}", proxy.addr()));
    let fleet = fleet([&urls[0], &urls[1]]).await;
    let mut streams = three_devices(&fleet).await;
    let lost = || proxies.iter().map(Proxy::dropped).sum::<u64>();
    for round in 0..tier::size(1, 10) {
        let before = lost();
        // More than there will be: whoever looks is told by Redis alone.
        for proxy in proxies.iter().cycle().take(20) {
            proxy.drop_next_message(DISCONNECT.as_bytes());
        }
        a_fourth_replaces_the_oldest_only(&fleet, &mut streams, round).await;
        wait::until(SOON, async || lost() >= before + 2).await;
        wait::until(SOON, async || counted(&redis).await == 3).await;
    }
}

#[tokio::test]
async fn who_is_replaced_goes_although_the_bus_breaks_at_that_moment() {
    if !engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut streams = three_devices(&fleet).await;
    for round in 0..tier::size(5, 100) {
        cut_the_bus(&redis).await;
        a_fourth_replaces_the_oldest_only(&fleet, &mut streams, round).await;
        wait::until(SOON, async || counted(&redis).await == 3).await;
    }
}

#[tokio::test]
async fn devices_that_come_and_go_while_redis_is_away_leave_nothing_behind() {
    if !engines() {
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
        // Whether Redis hears of them later or not: they are told to come back, and are gone.
        let coming = (0..6).map(async |n: usize| {
            let mut stream = open(listen(&fleet.hubs[n % 2], 7)).await;
            let close = stream.expect_event("system.close", SOON).await.json();
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
        wait::until(SOON, async || counted(&redis).await == left).await;
        say_nothing(&mut streams).await;
    }
    drop(streams);
    let kept = [COUNTED.to_owned(), format!("{COUNTED}:hubs")];
    wait::until(SOON, async || redis.command(&["EXISTS", &kept[0], &kept[1]]).await.integer() == 0).await;
}

#[tokio::test]
async fn what_the_bus_of_people_loses_reaches_every_device_once_and_in_order() {
    tier::counts_events();
    if !engines() {
        return;
    }
    let name = "what_the_bus_of_people_loses_reaches_every_device_once_and_in_order";
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
            notify(rng.pick(&apis), &like(&format!("n{n}"), &[7])).await.expect(202);
            acknowledged += 1;
        }
        (killed, acknowledged)
    };
    let reading = join_all(streams.iter_mut().map(async |stream| {
        let mut seen = Vec::new();
        for n in 1..=notices {
            let event = stream.expect_event("notification", LONG).await;
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
    assert!(killed as u64 >= notices / 20 && repairs > 0.0, "{killed} were killed, {repairs} repairs");
}

#[tokio::test]
async fn how_long_an_entry_took_is_counted_from_when_it_was_saved() {
    if !engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    let mut stream = open(listen(&fleet.hubs[0], 7)).await;
    // As another hub says it that saved it five seconds ago.
    let data = json!({"v": 1, "id": 1, "eventId": "e1", "type": "POST_LIKE", "payload": {}, "at": 0});
    let message = format!("1 1 +\n{} {data}", (now() - 5) * 1_000);
    redis.command(&["SPUBLISH", "{member:7}:bus", &message]).await.accepted();
    stream.expect_event("notification", SOON).await;
    let took = fleet.hubs[0].metrics().await.get("delivery_latency_seconds_sum", &[]);
    assert!((4.0..60.0).contains(&took), "{took} seconds");
}

#[tokio::test]
async fn devices_that_come_back_at_once_from_a_killed_hub_push_out_nobody() {
    if !engines() {
        return;
    }
    let redis = Redis::start().await;
    let fleet = fleet([&redis.url(), &redis.url()]).await;
    for round in 0..tier::size(2, 20) {
        let mut streams = vec![open(listen(&fleet.hubs[0], 7)).await];
        let gone = [open(listen(&fleet.hubs[1], 7)).await, open(listen(&fleet.hubs[1], 7)).await];
        wait::until(SOON, async || all_are_silent(&redis).await).await;
        fleet.hubs[1].kill9().await;
        drop(gone);
        for _ in 0..2 {
            streams.push(open(listen(&fleet.hubs[0], 7)).await);
        }
        wait::until(SOON, async || counted(&redis).await == 3).await;
        notify(&fleet.apis()[0], &like(&format!("back{round}"), &[7])).await.expect(202);
        for stream in &mut streams {
            told_of(stream, &format!("back{round}")).await;
        }
        // A fourth is one too many, as ever.
        a_fourth_replaces_the_oldest_here(&fleet, &mut streams).await;
        drop(streams);
        wait::until(SOON, async || counted(&redis).await == 0).await;
        fleet.hubs[1].restart().await;
    }
}

async fn a_fourth_replaces_the_oldest_here(fleet: &Fleet, streams: &mut Vec<Stream>) {
    let fourth = open(listen(&fleet.hubs[0], 7)).await;
    assert!(is_replaced(&mut streams[0]).await, "the oldest stays");
    streams.push(fourth);
}

#[tokio::test]
async fn connections_of_a_killed_hub_are_given_back_when_its_lease_ends() {
    if !engines() {
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
    // Two who have nothing but what is killed, and one who has another device.
    let mut killed = vec![open(listen(&fleet.hubs[1], 8)).await, open(listen(&fleet.hubs[1], 9)).await];
    let mut stays = open(listen(&fleet.hubs[0], 7)).await;
    killed.push(open(listen(&fleet.hubs[1], 7)).await);
    assert_eq!((counted(&redis).await, exist(8).await, exist(9).await), (2, 2, 2));
    fleet.hubs[1].kill9().await;
    wait::until(SOON, async || (exist(8).await, exist(9).await, counted(&redis).await) == (0, 0, 1)).await;
    let noted = async || redis.command(&["KEYS", "sse:notification:people:*"]).await.items().len();
    wait::until(SOON, async || noted().await == 1).await;
    notify(&fleet.apis()[0], &like("after", &[7])).await.expect(202);
    told_of(&mut stays, "after").await;
    // The last connection of a hub leaves no note.
    drop(stays);
    wait::until(SOON, async || noted().await == 0).await;
    // All hubs were gone for a while: the one that comes back finds out.
    let _lost = open(listen(&fleet.hubs[0], 8)).await;
    fleet.hubs[0].kill9().await;
    fleet.hubs[0].restart().await;
    wait::until(SOON, async || exist(8).await == 0).await;
}
