//! Whole instances: several streams of a person, the updates to streams, and instances that are lost from the fleet.

use std::time::Duration;

use bongsu_presence::Options;
use bongsu_testkit::{Engine, wait};

use crate::store_contract::fixture::{LONG_LEASES, SHORT_LEASES};
use crate::support::{Hub, RedisNamespace, TestFleet, WAIT_TIMEOUT, id};

/// Leases that are long enough not to expire on a slow machine before they are renewed.
const MEDIUM_LEASES: Options =
    Options { user_ttl: Duration::from_secs(6), hash_ttl: Duration::from_secs(30) };

/// An instance on each engine.
async fn one_of_each(options: Options) -> Vec<Hub> {
    let mut hubs = vec![Hub::embedded(options)];
    for engine in [Engine::Redis, Engine::Cluster] {
        hubs.extend(RedisNamespace::shared(engine).await.map(|namespace| Hub::start_on(&namespace, options)));
    }
    hubs
}

async fn three_hubs(options: Options) -> Option<[Hub; 3]> {
    let namespace = RedisNamespace::shared(Engine::Redis).await?;
    Some([(); 3].map(|()| Hub::start_on(&namespace, options)))
}

#[tokio::test]
async fn streams_receive_joins_and_leaves() {
    for hub in one_of_each(LONG_LEASES).await {
        let presence = &hub.presence;
        let three = presence.join(&id("42"), &id("3")).await;
        let ten = presence.join(&id("42"), &id("10")).await;
        let anna = presence.join(&id("42"), &id("anna")).await;
        drop(ten);
        hub.wait_for_update("42", &["3", "anna"]).await;
        assert_eq!(
            hub.sink.texts("42"),
            [
                r#"{"onlineUsers":[3],"joined":null,"left":null,"count":1}"#,
                r#"{"onlineUsers":[3,10],"joined":10,"left":null,"count":2}"#,
                r#"{"onlineUsers":[3,10,"anna"],"joined":"anna","left":null,"count":3}"#,
                r#"{"onlineUsers":[3,"anna"],"joined":null,"left":10,"count":2}"#,
            ]
        );
        assert_eq!(hub.occupants("42").await, ["3", "anna"]);
        drop((three, anna));
        hub.wait_for_occupants("42", &[]).await;
    }
}

#[tokio::test]
async fn a_person_with_two_streams_leaves_with_the_last() {
    for hub in one_of_each(LONG_LEASES).await {
        let (room, anna) = (id("42"), id("anna"));
        let witness = hub.presence.join(&room, &id("witness")).await;
        let streams = [hub.presence.join(&room, &anna).await, hub.presence.join(&room, &anna).await];
        let other_room = hub.presence.join(&id("43"), &anna).await;
        for stream in streams {
            assert_eq!(hub.occupants("42").await, ["anna", "witness"]);
            drop(stream);
        }
        hub.wait_for_update("42", &["witness"]).await;
        assert_eq!(hub.sink.joins_and_leaves("42", "anna"), (1, 1));
        assert_eq!(hub.occupants("43").await, ["anna"]);
        drop((witness, other_room));
    }
}

#[tokio::test]
async fn a_new_stream_begins_with_the_people_in_the_room() {
    for hub in one_of_each(LONG_LEASES).await {
        let (room, anna) = (id("42"), id("anna"));
        let first = hub.presence.join(&room, &anna).await;
        hub.wait_for_snapshot(&first, &["anna"]).await;
        let second = hub.presence.join(&room, &id("ben")).await;
        hub.wait_for_snapshot(&second, &["anna", "ben"]).await;
        let updates = hub.sink.texts("42");
        let second = hub.presence.join(&room, &anna).await;
        hub.wait_for_snapshot(&second, &["anna", "ben"]).await;
        assert_eq!(hub.sink.texts("42"), updates, "a second stream of a person is not announced");
    }
}

#[tokio::test]
async fn a_new_stream_begins_with_the_people_of_other_instances() {
    let Some([a, b, _]) = three_hubs(LONG_LEASES).await else { return };
    let room = id("42");
    let _first = a.presence.join(&room, &id("anna")).await;
    // The person is in the room already, so that no change is announced.
    let second = b.presence.join(&room, &id("anna")).await;
    b.wait_for_snapshot(&second, &["anna"]).await;
    let ben = b.presence.join(&room, &id("ben")).await;
    b.wait_for_snapshot(&ben, &["anna", "ben"]).await;
}

#[tokio::test]
async fn an_observer_receives_updates_and_is_not_present() {
    for hub in one_of_each(SHORT_LEASES).await {
        let room = id("42");
        let observer = hub.presence.observe(&room).await;
        hub.wait_for_snapshot(&observer, &[]).await;
        let anna = hub.presence.join(&room, &id("anna")).await;
        let another = hub.presence.observe(&room).await;
        hub.wait_for_snapshot(&another, &["anna"]).await;
        hub.presence.heartbeat(&room, &id("7")).await.unwrap();
        wait::until(WAIT_TIMEOUT, async || hub.sink.joins_and_leaves("42", "7").0 == 1).await;
        drop(anna);
        // Only observers are left: their instance still reports the room, so that the expiry is announced.
        hub.wait_for_update("42", &[]).await;
        assert_eq!(hub.sink.joins_and_leaves("42", "7"), (1, 1));
        assert_eq!(hub.sink.joins_and_leaves("42", "anna"), (1, 1));
        assert_eq!(hub.sink.updates("42").len(), 5, "the occupants, and four changes");
    }
}

#[tokio::test]
async fn people_without_a_stream_are_present_by_heartbeats() {
    for hub in one_of_each(SHORT_LEASES).await {
        let witness = hub.presence.join(&id("42"), &id("witness")).await;
        let next = hub.presence.heartbeat(&id("42"), &id("7")).await.unwrap();
        assert_eq!(next, SHORT_LEASES.user_ttl / 2);
        hub.wait_for_update("42", &["7", "witness"]).await;
        // No request follows the heartbeat: the instance reports the room when the lease of person 7 has expired, and
        // the report announces the expiry.
        hub.wait_for_update("42", &["witness"]).await;
        assert_eq!(hub.sink.joins_and_leaves("42", "7"), (1, 1));
        assert_eq!(
            hub.sink.joins_and_leaves("42", "witness"),
            (0, 0),
            "the first update lists the occupants instead"
        );
        drop(witness);
    }
}

#[tokio::test]
async fn streams_of_a_large_room_receive_its_count_once_per_second() {
    for hub in one_of_each(LONG_LEASES).await {
        let join = async |person: u32| hub.presence.join(&id("42"), &id(&person.to_string())).await;
        let mut guards = Vec::new();
        for person in 0..230 {
            guards.push(join(person).await);
        }
        wait::until(WAIT_TIMEOUT, async || {
            let last = hub.sink.texts("42").pop();
            last.is_some_and(|last| last.ends_with(r#""count":230}"#))
        })
        .await;
        assert!(!hub.sink.texts("42").pop().unwrap().contains("onlineUsers"));
        // 30 people joined within a few seconds, with fewer updates. The first update was a refresh.
        let large = hub.sink.updates("42").len() - 200;
        assert!((1..30).contains(&large), "{large} updates");
        guards.truncate(200);
        wait::until(WAIT_TIMEOUT, async || {
            let last = hub.sink.updates("42").pop();
            last.is_some_and(|last| last.count == 200 && last.online_users.is_some())
        })
        .await;
        assert_eq!(hub.occupants("42").await.len(), 200);
    }
}

#[tokio::test]
async fn three_instances_count_a_person_once() {
    let Some([a, b, c]) = three_hubs(LONG_LEASES).await else { return };
    let room = id("42");
    let mut anchors = Vec::new();
    for (hub, anchor) in [(&a, "a"), (&b, "b"), (&c, "c")] {
        anchors.push(hub.presence.join(&room, &id(anchor)).await);
    }
    let anna = id("anna");
    let [one, two, three, four] = [
        a.presence.join(&room, &anna).await,
        a.presence.join(&room, &anna).await,
        b.presence.join(&room, &anna).await,
        c.presence.join(&room, &anna).await,
    ];
    let ben = b.presence.join(&room, &id("ben")).await;
    drop((one, four));
    drop(two);
    b.wait_for_occupants("42", &["a", "b", "c", "ben", "anna"]).await;
    drop(ben);
    drop(three);
    for hub in [&a, &b, &c] {
        hub.wait_for_update("42", &["a", "b", "c"]).await;
        for person in ["anna", "ben"] {
            assert_eq!(hub.sink.joins_and_leaves("42", person), (1, 1), "{person}");
        }
        assert_eq!(hub.sink.replay("42").len(), 3);
    }
    // Each instance begins with a refresh.
    let [first, second, third] = [&a, &b, &c].map(|hub| hub.sink.texts("42").split_off(1));
    assert!(first.ends_with(&second) && second.ends_with(&third), "all instances receive the same updates");
}

#[tokio::test]
async fn people_of_a_killed_instance_leave_once() {
    let Some([a, b, c]) = three_hubs(MEDIUM_LEASES).await else { return };
    let (room, mut guards) = (id("42"), Vec::new());
    for (hub, people) in [(&a, ["a", "both"]), (&b, ["b", "ben"]), (&c, ["both", "carl"])] {
        for person in people {
            guards.push(hub.presence.join(&room, &id(person)).await);
        }
    }
    guards.push(c.presence.join(&room, &id("carl")).await);
    let everybody = ["a", "b", "ben", "both", "carl"];
    for hub in [&a, &b, &c] {
        hub.wait_for_update("42", &everybody).await;
    }
    let updates = c.sink.texts("42").len();
    let killed = c.kill();
    for hub in [&a, &b] {
        hub.wait_for_update("42", &["a", "b", "ben", "both"]).await;
        assert_eq!(hub.sink.joins_and_leaves("42", "carl"), (1, 1));
        assert_eq!(hub.sink.joins_and_leaves("42", "both").1, 0);
        assert_eq!(hub.occupants("42").await, ["a", "b", "ben", "both"]);
        hub.sink.replay("42");
    }
    assert_eq!(killed.texts("42").len(), updates, "a killed instance passes on no updates");
    // The guards of the killed instance are dropped as well; only those of the other two have an effect.
    drop(guards);
    a.wait_for_occupants("42", &[]).await;
}

#[tokio::test]
async fn people_of_a_lost_instance_leave_before_their_leases_expire() {
    for engine in [Engine::Redis, Engine::Cluster] {
        let Some(namespace) = RedisNamespace::shared(engine).await else { return };
        let options = Options { user_ttl: Duration::from_secs(3_600), hash_ttl: Duration::from_secs(7_200) };
        let fleet = TestFleet::default();
        let [a, b, c] = [(); 3].map(|()| Hub::start_in_fleet(&namespace, options, &fleet));
        let (room, mut guards) = (id("42"), Vec::new());
        for (hub, people) in [(&a, ["a", "both"]), (&b, ["b", "ben"]), (&c, ["both", "carl"])] {
            for person in people {
                guards.push(hub.presence.join(&room, &id(person)).await);
            }
        }
        guards.push(a.presence.join(&id("large"), &id("a")).await);
        for person in 0..300 {
            guards.push(c.presence.join(&id("large"), &id(&person.to_string())).await);
        }
        guards.push(c.presence.join(&id("left"), &id("carl")).await);
        a.presence.heartbeat(&id("large"), &id("7")).await.unwrap();
        for hub in [&a, &b] {
            hub.wait_for_update("42", &["a", "b", "ben", "both", "carl"]).await;
        }
        c.kill();
        assert_eq!(a.occupants("large").await.len(), 301, "its leases have not ended yet");
        fleet.lose(2);
        for hub in [&a, &b] {
            hub.wait_for_update("42", &["a", "b", "ben", "both"]).await;
            assert_eq!(hub.sink.joins_and_leaves("42", "carl"), (1, 1));
            assert_eq!(hub.sink.joins_and_leaves("42", "both").1, 0, "a person with another stream stays");
            hub.sink.replay("42");
        }
        a.wait_for_update("large", &["7", "a"]).await;
        // Also in a room without people on other instances, and on an instance that started after the loss.
        let d = Hub::start_in_fleet(&namespace, options, &fleet);
        d.wait_for_occupants("left", &[]).await;
        d.wait_for_occupants("large", &["7", "a"]).await;
    }
}

#[tokio::test]
async fn people_of_an_instance_that_shuts_down_leave_at_once() {
    let Some([a, b, c]) = three_hubs(LONG_LEASES).await else { return };
    let (room, mut guards) = (id("42"), Vec::new());
    for (hub, person) in [(&a, "a"), (&b, "b"), (&b, "ben"), (&b, "a")] {
        guards.push(hub.presence.join(&room, &id(person)).await);
    }
    for other in 0..150 {
        guards.push(b.presence.join(&id(&format!("other:{}", other % 40)), &id(&other.to_string())).await);
    }
    a.wait_for_update("42", &["a", "b", "ben"]).await;
    b.shut_down();
    a.wait_for_update("42", &["a"]).await;
    for other in 0..40 {
        assert!(c.occupants(&format!("other:{other}")).await.is_empty());
    }
}

#[tokio::test]
async fn renewals_of_many_people_lose_nobody() {
    let Some(hubs) = three_hubs(Options { user_ttl: Duration::from_secs(6), ..MEDIUM_LEASES }).await else {
        return;
    };
    let mut guards = Vec::new();
    for (index, hub) in hubs.iter().enumerate() {
        for person in 0..130 {
            let person = id(&format!("{index}:{person}"));
            // One large room, with several reports per renewal round, and many small rooms.
            guards.push(hub.presence.join(&id("large"), &person).await);
            guards.push(hub.presence.join(&id(&format!("small:{}", guards.len() % 50)), &person).await);
        }
    }
    let small =
        |hub: &Hub| (0..50).map(|room| hub.sink.updates(&format!("small:{room}")).len()).sum::<usize>();
    // When the heartbeat lease has expired, every other lease has been renewed.
    hubs[0].presence.heartbeat(&id("clock"), &id("7")).await.unwrap();
    hubs[1].wait_for_occupants("clock", &[]).await;
    assert_eq!(hubs[2].occupants("large").await.len(), 390);
    let before: Vec<usize> = hubs.iter().map(small).collect();
    hubs[0].presence.heartbeat(&id("clock"), &id("7")).await.unwrap();
    hubs[1].wait_for_occupants("clock", &[]).await;
    assert_eq!(hubs.iter().map(small).collect::<Vec<_>>(), before, "nobody joined or left");
    assert_eq!(hubs[2].occupants("large").await.len(), 390);
}
