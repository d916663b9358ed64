//! Two hubs send the same rows in the same order, and a database that fails and recovers loses no row for any stream.

use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Hub, tier};

use super::{WAIT_TIMEOUT, numbers, open, rows, stream_request};
use crate::BONGSU;

const INSERT_MEMBER: &str =
    "INSERT INTO memberships (event_id, user_id, status) VALUES ('42', '7', 'ACCEPTED')";

async fn two_hubs_deliver_the_same_rows_through_an_outage(flavour: Flavour) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let url = server.database();
    let database = Server::database_name(&url);
    let start =
        async || Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", &url).start().await;
    let hubs = [start().await, start().await];
    server.execute(database, INSERT_MEMBER);
    let mut streams = Vec::new();
    for hub in &hubs {
        streams.push(open(stream_request(hub, "42", 7)).await);
    }
    server.execute(database, &rows("42", 1..=50));
    let mut told = Vec::new();
    for stream in &mut streams {
        told.push(stream.take_events(50, WAIT_TIMEOUT).await);
    }
    assert_eq!(told[0], told[1], "the same bytes in the same order");
    assert_eq!(numbers(&told[0]), (1..=50).collect::<Vec<_>>());
    // MariaDB shows a commit before it is on disk; acknowledging a later commit writes the earlier one to disk.
    server.execute(
        database,
        "INSERT INTO memberships (event_id, user_id, status) VALUES ('settled', '1', 'PENDING')",
    );
    server.kill9().await;
    // The outage lasts long enough for every hub to notice it.
    for stream in &mut streams {
        assert!(
            stream.try_next_event(Duration::from_secs(3)).await.is_err(),
            "the streams must stay open and silent"
        );
    }
    server.restart().await;
    server.execute(database, &rows("42", 51..=100));
    for stream in &mut streams {
        assert_eq!(numbers(&stream.take_events(50, WAIT_TIMEOUT).await), (51..=100).collect::<Vec<_>>());
    }
    // The hub with the sequencer is killed; the other one takes over.
    hubs[0].kill9().await;
    server.execute(database, &rows("42", 101..=110));
    let longest = Duration::from_secs(60);
    assert_eq!(numbers(&streams[1].take_events(10, longest).await), (101..=110).collect::<Vec<_>>());
}

#[tokio::test]
async fn two_hubs_on_postgres_deliver_the_same_rows_through_an_outage() {
    two_hubs_deliver_the_same_rows_through_an_outage(Flavour::Postgres).await;
}

#[tokio::test]
async fn two_hubs_on_mariadb_deliver_the_same_rows_through_an_outage() {
    two_hubs_deliver_the_same_rows_through_an_outage(Flavour::MariaDb).await;
}
