//! Whole hubs: tabs, the words that streams are told, and fleets that lose one of theirs.

use std::time::Duration;

use bongsu_presence::Options;
use bongsu_testkit::{Engine, wait};

use crate::store_contract::stage::{LONG, SHORT};
use crate::support::{Hub, Instances, PATIENCE, Place, id};

/// Long enough that a slow machine loses nobody by being slow.
const LEASE: Options = Options { user_ttl: Duration::from_secs(6), hash_ttl: Duration::from_secs(30) };

/// One hub of every kind.
async fn one_of_each(options: Options) -> Vec<Hub> {
    let mut hubs = vec![Hub::embedded(options)];
    for engine in [Engine::Redis, Engine::Cluster] {
        hubs.extend(Place::shared(engine).await.map(|place| Hub::on(&place, options)));
    }
    hubs
}

async fn three_hubs(options: Options) -> Option<[Hub; 3]> {
    let place = Place::shared(Engine::Redis).await?;
    Some([(); 3].map(|()| Hub::on(&place, options)))
}

#[tokio::test]
async fn a_stream_is_told_who_came_and_left() {
    for hub in one_of_each(LONG).await {
        let presence = &hub.presence;
        let three = presence.joined(&id("42"), &id("3")).await;
        let ten = presence.joined(&id("42"), &id("10")).await;
        let anna = presence.joined(&id("42"), &id("anna")).await;
        drop(ten);
        hub.tells("42", &["3", "anna"]).await;
        assert_eq!(
            hub.streams.texts("42"),
            [
                r#"{"onlineUsers":[3],"joined":null,"left":null,"count":1}"#,
                r#"{"onlineUsers":[3,10],"joined":10,"left":null,"count":2}"#,
                r#"{"onlineUsers":[3,10,"anna"],"joined":"anna","left":null,"count":3}"#,
                r#"{"onlineUsers":[3,"anna"],"joined":null,"left":10,"count":2}"#,
            ]
        );
        assert_eq!(hub.who("42").await, ["3", "anna"]);
        drop((three, anna));
        hub.sees("42", &[]).await;
    }
}

#[tokio::test]
async fn somebody_with_two_tabs_leaves_with_the_last() {
    for hub in one_of_each(LONG).await {
        let (room, anna) = (id("42"), id("anna"));
        let witness = hub.presence.joined(&room, &id("witness")).await;
        let tabs = [hub.presence.joined(&room, &anna).await, hub.presence.joined(&room, &anna).await];
        let elsewhere = hub.presence.joined(&id("43"), &anna).await;
        for tab in tabs {
            assert_eq!(hub.who("42").await, ["anna", "witness"]);
            drop(tab);
        }
        hub.tells("42", &["witness"]).await;
        assert_eq!(hub.streams.comings_and_goings("42", "anna"), (1, 1));
        assert_eq!(hub.who("43").await, ["anna"]);
        drop((witness, elsewhere));
    }
}

#[tokio::test]
async fn a_new_stream_begins_with_who_is_there() {
    for hub in one_of_each(LONG).await {
        let (room, anna) = (id("42"), id("anna"));
        let first = hub.presence.joined(&room, &anna).await;
        hub.begins_with(&first, &["anna"]).await;
        let second = hub.presence.joined(&room, &id("ben")).await;
        hub.begins_with(&second, &["anna", "ben"]).await;
        let told = hub.streams.texts("42");
        let tab = hub.presence.joined(&room, &anna).await;
        hub.begins_with(&tab, &["anna", "ben"]).await;
        assert_eq!(hub.streams.texts("42"), told, "nobody else is told of a second tab");
    }
}

#[tokio::test]
async fn a_new_stream_begins_with_the_people_of_other_hubs() {
    let Some([a, b, _]) = three_hubs(LONG).await else { return };
    let room = id("42");
    let _there = a.presence.joined(&room, &id("anna")).await;
    // Somebody whom the fleet knows already, so that nothing is announced.
    let tab = b.presence.joined(&room, &id("anna")).await;
    b.begins_with(&tab, &["anna"]).await;
    let ben = b.presence.joined(&room, &id("ben")).await;
    b.begins_with(&ben, &["anna", "ben"]).await;
}

#[tokio::test]
async fn an_observer_hears_of_others_and_nobody_hears_of_it() {
    for hub in one_of_each(SHORT).await {
        let room = id("42");
        let observer = hub.presence.observed(&room).await;
        hub.begins_with(&observer, &[]).await;
        let anna = hub.presence.joined(&room, &id("anna")).await;
        let another = hub.presence.observed(&room).await;
        hub.begins_with(&another, &["anna"]).await;
        hub.presence.heartbeat(&room, &id("7")).await.unwrap();
        wait::until(PATIENCE, async || hub.streams.comings_and_goings("42", "7").0 == 1).await;
        drop(anna);
        // Nobody has a stream there any more: the observer's hub looks whose time is up.
        hub.tells("42", &[]).await;
        assert_eq!(hub.streams.comings_and_goings("42", "7"), (1, 1));
        assert_eq!(hub.streams.comings_and_goings("42", "anna"), (1, 1));
        assert_eq!(hub.streams.updates("42").len(), 5, "the room as it was, and four changes");
    }
}

#[tokio::test]
async fn people_without_a_stream_come_and_go_by_heartbeats() {
    for hub in one_of_each(SHORT).await {
        let witness = hub.presence.joined(&id("42"), &id("witness")).await;
        let next = hub.presence.heartbeat(&id("42"), &id("7")).await.unwrap();
        assert_eq!(next, SHORT.user_ttl / 2);
        hub.tells("42", &["7", "witness"]).await;
        // Nobody asks: whoever has people there finds out by itself.
        hub.tells("42", &["witness"]).await;
        assert_eq!(hub.streams.comings_and_goings("42", "7"), (1, 1));
        assert_eq!(
            hub.streams.comings_and_goings("42", "witness"),
            (0, 0),
            "its own coming is no news to it"
        );
        drop(witness);
    }
}

#[tokio::test]
async fn a_large_room_is_told_its_count_once_a_second() {
    for hub in one_of_each(LONG).await {
        let join = async |person: u32| hub.presence.joined(&id("42"), &id(&person.to_string())).await;
        let mut guards = Vec::new();
        for person in 0..230 {
            guards.push(join(person).await);
        }
        wait::until(PATIENCE, async || {
            let last = hub.streams.texts("42").pop();
            last.is_some_and(|last| last.ends_with(r#""count":230}"#))
        })
        .await;
        assert!(!hub.streams.texts("42").pop().unwrap().contains("onlineUsers"));
        // Thirty came within a few seconds, and their updates were fewer. The first stream got the room as it was.
        let large = hub.streams.updates("42").len() - 200;
        assert!((1..30).contains(&large), "{large} updates");
        guards.truncate(200);
        wait::until(PATIENCE, async || {
            let last = hub.streams.updates("42").pop();
            last.is_some_and(|last| last.count == 200 && last.online_users.is_some())
        })
        .await;
        assert_eq!(hub.who("42").await.len(), 200);
    }
}

#[tokio::test]
async fn three_hubs_count_somebody_once() {
    let Some([a, b, c]) = three_hubs(LONG).await else { return };
    let room = id("42");
    let mut anchors = Vec::new();
    for (hub, anchor) in [(&a, "a"), (&b, "b"), (&c, "c")] {
        anchors.push(hub.presence.joined(&room, &id(anchor)).await);
    }
    let anna = id("anna");
    let [one, two, three, four] = [
        a.presence.joined(&room, &anna).await,
        a.presence.joined(&room, &anna).await,
        b.presence.joined(&room, &anna).await,
        c.presence.joined(&room, &anna).await,
    ];
    let ben = b.presence.joined(&room, &id("ben")).await;
    drop((one, four));
    drop(two);
    b.sees("42", &["a", "b", "c", "ben", "anna"]).await;
    drop(ben);
    drop(three);
    for hub in [&a, &b, &c] {
        hub.tells("42", &["a", "b", "c"]).await;
        for person in ["anna", "ben"] {
            assert_eq!(hub.streams.comings_and_goings("42", person), (1, 1), "{person}");
        }
        assert_eq!(hub.streams.folded("42").len(), 3);
    }
    // Each begins with the room as it was.
    let [first, second, third] = [&a, &b, &c].map(|hub| hub.streams.texts("42").split_off(1));
    assert!(first.ends_with(&second) && second.ends_with(&third), "all hubs are told the same");
}

#[tokio::test]
async fn the_people_of_a_hub_that_vanished_leave_once() {
    let Some([a, b, c]) = three_hubs(LEASE).await else { return };
    let (room, mut guards) = (id("42"), Vec::new());
    for (hub, people) in [(&a, ["a", "both"]), (&b, ["b", "ben"]), (&c, ["both", "carl"])] {
        for person in people {
            guards.push(hub.presence.joined(&room, &id(person)).await);
        }
    }
    guards.push(c.presence.joined(&room, &id("carl")).await);
    let everybody = ["a", "b", "ben", "both", "carl"];
    for hub in [&a, &b, &c] {
        hub.tells("42", &everybody).await;
    }
    let told = c.streams.texts("42").len();
    let gone = c.vanish();
    for hub in [&a, &b] {
        hub.tells("42", &["a", "b", "ben", "both"]).await;
        assert_eq!(hub.streams.comings_and_goings("42", "carl"), (1, 1));
        assert_eq!(hub.streams.comings_and_goings("42", "both").1, 0);
        assert_eq!(hub.who("42").await, ["a", "b", "ben", "both"]);
        hub.streams.folded("42");
    }
    assert_eq!(gone.texts("42").len(), told, "a hub that is gone tells nobody anything");
    // Guards of the hub that is gone are dropped as well by now; those of the others leave in order.
    drop(guards);
    a.sees("42", &[]).await;
}

#[tokio::test]
async fn the_people_of_a_lost_instance_leave_once_however_long_their_signs_live() {
    for engine in [Engine::Redis, Engine::Cluster] {
        let Some(place) = Place::shared(engine).await else { return };
        let options = Options { user_ttl: Duration::from_secs(3_600), hash_ttl: Duration::from_secs(7_200) };
        let instances = Instances::default();
        let [a, b, c] = [(); 3].map(|()| Hub::of_fleet(&place, options, &instances));
        let (room, mut guards) = (id("42"), Vec::new());
        for (hub, people) in [(&a, ["a", "both"]), (&b, ["b", "ben"]), (&c, ["both", "carl"])] {
            for person in people {
                guards.push(hub.presence.joined(&room, &id(person)).await);
            }
        }
        guards.push(a.presence.joined(&id("large"), &id("a")).await);
        for person in 0..300 {
            guards.push(c.presence.joined(&id("large"), &id(&person.to_string())).await);
        }
        guards.push(c.presence.joined(&id("left"), &id("carl")).await);
        a.presence.heartbeat(&id("large"), &id("7")).await.unwrap();
        for hub in [&a, &b] {
            hub.tells("42", &["a", "b", "ben", "both", "carl"]).await;
        }
        c.vanish();
        assert_eq!(a.who("large").await.len(), 301, "its lease lasts on");
        instances.lose(2);
        for hub in [&a, &b] {
            hub.tells("42", &["a", "b", "ben", "both"]).await;
            assert_eq!(hub.streams.comings_and_goings("42", "carl"), (1, 1));
            assert_eq!(hub.streams.comings_and_goings("42", "both").1, 0, "who has another stream stays");
            hub.streams.folded("42");
        }
        a.tells("large", &["7", "a"]).await;
        // Also where no other instance has anybody, and for an instance that never saw the lost one.
        let d = Hub::of_fleet(&place, options, &instances);
        d.sees("left", &[]).await;
        d.sees("large", &["7", "a"]).await;
    }
}

#[tokio::test]
async fn a_hub_that_ends_in_order_takes_its_people_with_it() {
    let Some([a, b, c]) = three_hubs(LONG).await else { return };
    let (room, mut guards) = (id("42"), Vec::new());
    for (hub, person) in [(&a, "a"), (&b, "b"), (&b, "ben"), (&b, "a")] {
        guards.push(hub.presence.joined(&room, &id(person)).await);
    }
    for other in 0..150 {
        guards.push(b.presence.joined(&id(&format!("other:{}", other % 40)), &id(&other.to_string())).await);
    }
    a.tells("42", &["a", "b", "ben"]).await;
    b.end();
    a.tells("42", &["a"]).await;
    for other in 0..40 {
        assert!(c.who(&format!("other:{other}")).await.is_empty());
    }
}

#[tokio::test]
async fn many_hubs_renew_many_people_without_losing_one() {
    let Some(hubs) = three_hubs(Options { user_ttl: Duration::from_secs(6), ..LEASE }).await else { return };
    let mut guards = Vec::new();
    for (at, hub) in hubs.iter().enumerate() {
        for person in 0..130 {
            let person = id(&format!("{at}:{person}"));
            // A large room, several batches a round, and many small ones.
            guards.push(hub.presence.joined(&id("large"), &person).await);
            guards.push(hub.presence.joined(&id(&format!("small:{}", guards.len() % 50)), &person).await);
        }
    }
    let small =
        |hub: &Hub| (0..50).map(|room| hub.streams.updates(&format!("small:{room}")).len()).sum::<usize>();
    // Somebody without a stream shows that whole leases have passed.
    hubs[0].presence.heartbeat(&id("clock"), &id("7")).await.unwrap();
    hubs[1].sees("clock", &[]).await;
    assert_eq!(hubs[2].who("large").await.len(), 390);
    let before: Vec<usize> = hubs.iter().map(small).collect();
    hubs[0].presence.heartbeat(&id("clock"), &id("7")).await.unwrap();
    hubs[1].sees("clock", &[]).await;
    assert_eq!(hubs.iter().map(small).collect::<Vec<_>>(), before, "nobody came or left");
    assert_eq!(hubs[2].who("large").await.len(), 390);
}
