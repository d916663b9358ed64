//! Two hubs tell the same, and a database that goes away and comes back costs nobody a row.

use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Hub, tier};

use super::{SOON, follow, numbers, open, rows};
use crate::BONGSU;

const MEMBERS: &str = "INSERT INTO memberships (event_id, user_id, status) VALUES ('42', '7', 'ACCEPTED')";

async fn two_hubs_tell_the_same_through_a_loss(flavour: Flavour) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let url = server.database();
    let database = Server::name_in(&url);
    let start =
        async || Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &url).start().await;
    let hubs = [start().await, start().await];
    server.execute(database, MEMBERS);
    let mut streams = Vec::new();
    for hub in &hubs {
        streams.push(open(follow(hub, "42", 7)).await);
    }
    server.execute(database, &rows("42", 1..=50));
    let mut told = Vec::new();
    for stream in &mut streams {
        told.push(stream.take_events(50, SOON).await);
    }
    assert_eq!(told[0], told[1], "the same bytes in the same order");
    assert_eq!(numbers(&told[0]), (1..=50).collect::<Vec<_>>());
    // MariaDB shows a commit before it is on the disk; one that it acknowledges later puts it there.
    server.execute(
        database,
        "INSERT INTO memberships (event_id, user_id, status) VALUES ('settled', '1', 'PENDING')",
    );
    server.kill9().await;
    // Long enough for everybody to notice.
    for stream in &mut streams {
        assert!(
            stream.try_next_event(Duration::from_secs(3)).await.is_err(),
            "they stay open, and say nothing"
        );
    }
    server.restart().await;
    server.execute(database, &rows("42", 51..=100));
    for stream in &mut streams {
        assert_eq!(numbers(&stream.take_events(50, SOON).await), (51..=100).collect::<Vec<_>>());
    }
    // The one that gives positions goes; another one takes over.
    hubs[0].kill9().await;
    server.execute(database, &rows("42", 101..=110));
    let longest = Duration::from_secs(60);
    assert_eq!(numbers(&streams[1].take_events(10, longest).await), (101..=110).collect::<Vec<_>>());
}

#[tokio::test]
async fn two_hubs_on_postgres_tell_the_same_through_a_loss() {
    two_hubs_tell_the_same_through_a_loss(Flavour::Postgres).await;
}

#[tokio::test]
async fn two_hubs_on_mariadb_tell_the_same_through_a_loss() {
    two_hubs_tell_the_same_through_a_loss(Flavour::MariaDb).await;
}
