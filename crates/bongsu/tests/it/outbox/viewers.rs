//! Many viewers cost the database as much as one, because each process reads new rows once for all its streams.

use std::time::Duration;

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Hub, proof, tier};
use futures_util::future::join_all;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fleet::{Database, FLEET_TIMEOUT, Fleet};
use super::follower::row_of;
use super::writers::Program;
use super::{open, stream_request};

const EVENTS: u64 = 5;
/// Commits per measured run, and the time between two of them.
const COMMITS_PER_RUN: u64 = 100;
const COMMIT_INTERVAL: Duration = Duration::from_millis(20);
/// Streams that are opened at the same time.
const OPEN_BATCH_SIZE: usize = 50;

/// How many queries the database has executed since its start, by its own log or counter.
fn query_count(database: &Database) -> u64 {
    match database.flavour() {
        Flavour::Postgres => {
            let log = database.log();
            let is_asked =
                |line: &&str| line.contains("LOG:  execute ") || line.contains("LOG:  statement: ");
            log.lines().filter(is_asked).count() as u64
        }
        Flavour::MariaDb => {
            let said = database.execute("", "SHOW GLOBAL STATUS LIKE 'Queries'");
            said.split('\t').nth(1).unwrap().parse().unwrap()
        }
    }
}

/// The queries that the database executed during a run of commits.
#[derive(Clone, Copy)]
struct QueryCost {
    per_second: f64,
    queries: u64,
    commits: u64,
}

/// Commits rows while viewers read them, and measures the queries.
async fn measure_cost(
    fleet: &Fleet,
    program: &Program,
    streams: &mut [(u64, Stream)],
    first: u64,
) -> QueryCost {
    let database = fleet.database.as_ref().unwrap();
    let (before, started) = (query_count(database), Instant::now());
    let writing = async {
        let mut commits = 0;
        for number in first..first + COMMITS_PER_RUN {
            program.insert(&(number % EVENTS).to_string(), number).await;
            commits += 1;
            // The program's own pace.
            sleep(COMMIT_INTERVAL).await;
        }
        commits
    };
    let watching = streams.iter_mut().map(async |(event, stream)| {
        let mut told = Vec::new();
        while (told.len() as u64) < COMMITS_PER_RUN / EVENTS {
            told.push(row_of(&stream.next_event(FLEET_TIMEOUT).await.expect("an open stream")).1);
        }
        let expected = (first..first + COMMITS_PER_RUN).filter(|number| number % EVENTS == *event);
        assert_eq!(told, expected.collect::<Vec<_>>());
    });
    let (commits, _) = tokio::join!(writing, join_all(watching));
    let queries = query_count(database) - before;
    QueryCost { per_second: queries as f64 / started.elapsed().as_secs_f64(), queries, commits }
}

/// Waits until a hub has sent this row, so that every later event belongs to a later row.
async fn wait_until_sent(hub: &Hub, number: u64) {
    let mut all = open(stream_request(hub, &(number % EVENTS).to_string(), 7).last_event_id("0")).await;
    all.find_event(&format!("row {number}"), FLEET_TIMEOUT, |event| row_of(event).1 == number).await;
}

async fn many_viewers_cost_as_much_as_one(flavour: Flavour) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
    let most = limit.maximum.unwrap_or(u64::MAX).saturating_sub(1_000);
    let many = tier::size(300, 10_000).min(usize::try_from(most).unwrap_or(usize::MAX));
    let settings: &[&str] = if flavour == Flavour::Postgres { &["log_statement=all"] } else { &[] };
    let Some(fleet) = Fleet::start_with(Some(flavour), Some(settings), |builder| builder).await else {
        return;
    };
    let program = Program::start(&fleet).await;
    (0..EVENTS).for_each(|event| fleet.accept(event, &[7]));
    let view = async |viewer: usize| {
        let (hub, event) = (&fleet.hubs[viewer % fleet.hubs.len()], viewer as u64 % EVENTS);
        (event, open(stream_request(hub, &event.to_string(), 7)).await)
    };
    let mut streams = vec![view(0).await];
    let before = measure_cost(&fleet, &program, &mut streams, 0).await;
    for hub in &fleet.hubs {
        wait_until_sent(hub, COMMITS_PER_RUN - 1).await;
    }
    while streams.len() < many {
        let some = streams.len()..(streams.len() + OPEN_BATCH_SIZE).min(many);
        streams.extend(join_all(some.map(&view)).await);
    }
    let viewers = streams.len();
    let first = measure_cost(&fleet, &program, &mut streams, COMMITS_PER_RUN).await;
    let again = measure_cost(&fleet, &program, &mut streams, 2 * COMMITS_PER_RUN).await;
    streams.truncate(1);
    let after = measure_cost(&fleet, &program, &mut streams, 3 * COMMITS_PER_RUN).await;
    // On a busy machine a run takes longer: the hub then sends fewer queries per second, and more in total, because
    // it also polls while no row comes. So the better of two runs counts, and either measure may show that the cost
    // is equal.
    let one = if before.per_second > after.per_second { &before } else { &after };
    let all = if first.per_second < again.per_second { &first } else { &again };
    let (one_in_all, all_in_all) = (before.queries.max(after.queries), first.queries.min(again.queries));
    let name = format!("many_viewers_cost_as_much_as_one_on_{}", fleet.name());
    let facts = json!({"viewers": viewers, "commits": all.commits, "queriesForOne": one.queries,
        "queriesForAll": all.queries, "perSecondForOne": one.per_second.round(),
        "perSecondForAll": all.per_second.round()});
    proof::record("outbox", &name, &facts);
    // One query per viewer and second, or one per viewer and row, would be hundreds or thousands more.
    let is_as_cheap =
        all.per_second <= one.per_second * 1.2 + 20.0 || all_in_all as f64 <= one_in_all as f64 * 1.2 + 60.0;
    assert!(is_as_cheap, "{facts}");
}

#[tokio::test]
async fn many_viewers_cost_as_much_as_one_on_postgres() {
    many_viewers_cost_as_much_as_one(Flavour::Postgres).await;
}

#[tokio::test]
async fn many_viewers_cost_as_much_as_one_on_mariadb() {
    many_viewers_cost_as_much_as_one(Flavour::MariaDb).await;
}
