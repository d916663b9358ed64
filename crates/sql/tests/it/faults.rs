//! Servers that are killed, hang, close connections or do not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_sql::{DatabaseLock, Error, PreparedServer, Query, Records, Transaction, record_once};
use bongsu_testkit::proxy::{Direction, Proxy};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Rng, proof, tier, wait};
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout};

use crate::database::{INCREMENT, PUT, connect, counters, increment, item_ids, migrations, options, put};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Every call must return within this time, whatever is wrong with the server.
const MAX_CALL_TIME: Duration = Duration::from_secs(20);

macro_rules! tests_on_both {
    ($($test:ident)*) => {
        mod postgres {
            $(#[tokio::test] async fn $test() { super::run_on(super::Flavour::Postgres, super::$test).await; })*
        }
        mod mariadb {
            $(#[tokio::test] async fn $test() { super::run_on(super::Flavour::MariaDb, super::$test).await; })*
        }
    };
}

tests_on_both! {
    a_server_that_is_killed_loses_nothing_that_was_answered_and_does_nothing_twice
    a_hanging_server_delays_no_caller_for_long
    connections_closed_by_the_server_fail_no_request
    a_connection_that_breaks_within_a_change_undoes_it
    an_unanswered_commit_is_reported_as_unknown
    a_connection_lost_before_the_commit_stores_nothing
    a_refused_login_fails_at_once_without_showing_the_password
    a_start_waits_for_the_server_but_not_for_ever
    unsafe_server_settings_are_reported
    a_lock_that_another_session_held_for_a_moment_is_taken_again
}

async fn run_on<F: Future<Output = ()>>(flavour: Flavour, test: impl Fn(Flavour) -> F) {
    if tier::needs_engine(flavour.name()) {
        test(flavour).await;
    }
}

/// Inserts an item and increments the counter, unless the key was recorded before.
async fn put_once((key,): &(String,), tx: &mut Transaction<'_>) -> Result<bool, Error> {
    if !record_once(tx, "fault", key, 1).await? {
        return Ok(false);
    }
    tx.run(&PUT, &[("id", key.as_str().into()), ("number", 1_i64.into()), ("text", "".into())]).await?;
    let changed = tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
    assert_eq!(changed, 1, "the counter is there");
    Ok(true)
}

/// The counter and the number of items. One transaction changes both, so they are equal in every snapshot.
static COUNTER_AND_ITEMS: Query = Query::new(
    "counter_and_items",
    ["SELECT n, (SELECT count(*) FROM test_items) FROM test_counters WHERE id = 1"; 3],
);

#[derive(Default)]
struct Tally {
    in_flight: AtomicU64,
    acknowledged: AtomicU64,
    unavailable: AtomicU64,
    unanswered: AtomicU64,
    /// Unanswered changes that turned out to be stored.
    stored_unanswered: AtomicU64,
}

async fn a_server_that_is_killed_loses_nothing_that_was_answered_and_does_nothing_twice(flavour: Flavour) {
    let rounds = tier::size(4, 60) as u64;
    let server = Server::start(flavour).await;
    let url = server.database();
    let hubs = [connect(&url).await.unwrap(), connect(&url).await.unwrap()];
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    let writer = |n: usize| {
        let (records, tally, stop) = (&hubs[n % 2], &tally, &stop);
        async move {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let key = format!("w{n}-{}", acknowledged.len());
                let (mut was_unanswered, deadline) = (false, Instant::now() + TIMEOUT * 2);
                loop {
                    assert!(Instant::now() < deadline, "{key} is not stored although the server is back");
                    tally.in_flight.fetch_add(1, Ordering::SeqCst);
                    let started = Instant::now();
                    let result = records.write((key.clone(),), put_once).await;
                    tally.in_flight.fetch_sub(1, Ordering::SeqCst);
                    assert!(started.elapsed() < MAX_CALL_TIME);
                    match result {
                        Ok(is_new) => {
                            assert!(
                                is_new || was_unanswered,
                                "{key} was stored although its change had failed"
                            );
                            tally.stored_unanswered.fetch_add(u64::from(!is_new), Ordering::SeqCst);
                            break;
                        }
                        Err(Error::Unavailable(_)) => tally.unavailable.fetch_add(1, Ordering::SeqCst),
                        Err(Error::Unanswered(_)) => {
                            was_unanswered = true;
                            tally.unanswered.fetch_add(1, Ordering::SeqCst)
                        }
                        Err(error) => panic!("{key}: {error}"),
                    };
                    // The delay of a client between two attempts.
                    sleep(Duration::from_millis(20)).await;
                }
                tally.acknowledged.fetch_add(1, Ordering::SeqCst);
                acknowledged.push(key);
            }
            acknowledged
        }
    };
    let killer = async {
        let mut rng = Rng::for_test(flavour.name());
        let (mut kills, mut kills_in_flight) = (0, 0);
        let wait_for_changes = async |count: u64| {
            let target = tally.acknowledged.load(Ordering::SeqCst) + count;
            wait::until(TIMEOUT, || async { tally.acknowledged.load(Ordering::SeqCst) >= target }).await;
        };
        for _ in 0..rounds {
            wait_for_changes(rng.range(10..100)).await;
            kills_in_flight += u64::from(tally.in_flight.load(Ordering::SeqCst) > 0);
            server.restart().await;
            kills += 1;
            wait::until(TIMEOUT, || async { hubs.iter().all(|hub| hub.outage().is_none()) }).await;
            wait::until(TIMEOUT, || async {
                let row = hubs[0]
                    .read((), async |(): &(), tx: &mut Transaction<'_>| tx.row(&COUNTER_AND_ITEMS, &[]).await)
                    .await;
                let Ok(row) = row.map(Option::unwrap) else { return false };
                assert_eq!(row.int(0).unwrap(), row.int(1).unwrap(), "after kill {kills}");
                true
            })
            .await;
        }
        wait_for_changes(10).await;
        stop.store(true, Ordering::SeqCst);
        (kills, kills_in_flight)
    };
    let (acknowledged, (kills, kills_in_flight)) = tokio::join!(join_all((0..8).map(writer)), killer);
    let mut acknowledged = acknowledged.concat();
    acknowledged.sort_unstable();
    let (count, load) = (acknowledged.len(), |n: &AtomicU64| n.load(Ordering::SeqCst));
    let facts = json!({
        "seed": tier::seed(), "kills": kills, "killsInFlight": kills_in_flight, "acknowledged": count, "away": load(&tally.unavailable),
        "unanswered": load(&tally.unanswered), "keptUnanswered": load(&tally.stored_unanswered),
    });
    proof::record("sql", &format!("killed_{}", flavour.name()), facts);
    assert_eq!(item_ids(&hubs[0]).await, acknowledged, "exactly the acknowledged items are stored");
    let counts = [counters(&hubs[1]).await[0], counters(&hubs[0]).await[0]];
    assert_eq!(counts, [i64::try_from(count).unwrap(); 2], "every change ran once, as seen by both hubs");
    assert!(kills_in_flight * 2 >= rounds && count > 20, "too few kills landed");
}

async fn a_hanging_server_delays_no_caller_for_long(flavour: Flavour) {
    let server = Server::start(flavour).await;
    let records = connect(&server.database()).await.unwrap();
    put(&records, "before").await.unwrap();
    server.pause();
    let first = timeout(MAX_CALL_TIME, put(&records, "first")).await.expect("the call returns in time");
    assert!(matches!(first, Err(Error::Unavailable(_) | Error::Unanswered(_))), "{first:?}");
    wait::until(MAX_CALL_TIME, || async { records.outage().is_some() }).await;
    let started = Instant::now();
    for n in 0..20 {
        let result = put(&records, &format!("later{n}")).await;
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    }
    assert!(started.elapsed() < MAX_CALL_TIME, "calls fail at once after the outage was detected");
    server.resume();
    wait::until(TIMEOUT, || async { put(&records, "after").await.is_ok() }).await;
    wait::until(TIMEOUT, || async { records.outage().is_none() }).await;
    let stored: Vec<String> = item_ids(&records).await.into_iter().filter(|id| id != "first").collect();
    assert_eq!(stored, ["after", "before"], "refused items are not stored");
}

/// Makes the server close all connections to a database, and waits until they are closed.
async fn close_all_connections(server: &Arc<Server>, name: &str) {
    let (list, close) = match server.flavour() {
        Flavour::Postgres => (
            format!("SELECT pid FROM pg_stat_activity WHERE datname = '{name}'"),
            "SELECT pg_terminate_backend",
        ),
        Flavour::MariaDb => {
            (format!("SELECT id FROM information_schema.processlist WHERE db = '{name}'"), "KILL ")
        }
    };
    let connections = async || {
        let output = execute(server, list.clone()).await.unwrap();
        output.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let closed = connections().await;
    for id in &closed {
        // Fails if the connection has been closed meanwhile.
        let _ = execute(server, format!("{close}({id})")).await;
    }
    // The server closes a connection with a delay; until then a request on it may get a part of its answer.
    wait::until(TIMEOUT, async || !connections().await.iter().any(|id| closed.contains(id))).await;
}

/// Runs SQL by the server's command-line client on a blocking thread, so that the tasks of this thread, such as the
/// check of the server, go on.
async fn execute(server: &Arc<Server>, sql: String) -> Result<String, String> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || server.try_execute("", &sql)).await.unwrap()
}

async fn connections_closed_by_the_server_fail_no_request(flavour: Flavour) {
    let server = Arc::new(Server::start(flavour).await);
    let url = server.database();
    let records = connect(&url).await.unwrap();
    for round in 0..5 {
        let writes = (0..10).map(|n| {
            let (records, id) = (records.clone(), format!("r{round}-{n}"));
            async move { put(&records, &id).await }
        });
        for result in join_all(writes).await {
            result.unwrap();
        }
        assert_eq!(item_ids(&records).await.len(), (round + 1) * 10);
        close_all_connections(&server, Server::database_name(&url)).await;
    }
}

async fn a_connection_that_breaks_within_a_change_undoes_it(flavour: Flavour) {
    let server = Arc::new(Server::start(flavour).await);
    let url = server.database();
    let records = connect(&url).await.unwrap();
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    async fn change(
        (begun, go_on): &(Arc<Barrier>, Arc<Barrier>),
        tx: &mut Transaction<'_>,
    ) -> Result<u64, Error> {
        tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
        begun.wait().await;
        go_on.wait().await;
        tx.run(&INCREMENT, &[("id", 2_i64.into())]).await
    }
    let close = async {
        begun.wait().await;
        close_all_connections(&server, Server::database_name(&url)).await;
        go_on.wait().await;
    };
    let (result, ()) = tokio::join!(records.write((begun.clone(), go_on.clone()), change), close);
    assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    assert_eq!(counters(&records).await, [0, 0]);
}

/// Increments the counter, and waits until the test has stalled the connection.
async fn increment_and_wait(
    (begun, go_on): &(Arc<Barrier>, Arc<Barrier>),
    tx: &mut Transaction<'_>,
) -> Result<u64, Error> {
    let changed = tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
    begun.wait().await;
    go_on.wait().await;
    Ok(changed)
}

async fn an_unanswered_commit_is_reported_as_unknown(flavour: Flavour) {
    let server = flavour.shared().await;
    let (direct_url, mut count) = (server.database(), 0);
    let direct = connect(&direct_url).await.unwrap();
    // The proxy drops either the answer or the COMMIT itself. The caller cannot distinguish them.
    for (stalled, is_stored) in [(Direction::ToClient, true), (Direction::ToServer, false)] {
        let proxy = Proxy::start(server.addr()).await;
        let records =
            connect(&server.url_at(proxy.addr(), Server::database_name(&direct_url))).await.unwrap();
        let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let started = Instant::now();
        let stall = async {
            begun.wait().await;
            proxy.stall(stalled);
            go_on.wait().await;
        };
        let (result, ()) =
            tokio::join!(records.write((begun.clone(), go_on.clone()), increment_and_wait), stall);
        assert!(matches!(result, Err(Error::Unanswered(_))), "{result:?}");
        assert!(started.elapsed() < MAX_CALL_TIME);
        count += i64::from(is_stored);
        assert_eq!(counters(&direct).await[0], count, "{stalled:?}");
        proxy.heal();
        wait::until(TIMEOUT, || async { put(&records, &format!("after{count}{is_stored}")).await.is_ok() })
            .await;
        assert_eq!(counters(&records).await[0], count, "the change is not stored later");
    }
}

async fn a_connection_lost_before_the_commit_stores_nothing(flavour: Flavour) {
    let server = flavour.shared().await;
    let direct_url = server.database();
    let proxy = Proxy::start(server.addr()).await;
    let records = connect(&server.url_at(proxy.addr(), Server::database_name(&direct_url))).await.unwrap();
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    async fn change(barriers: &(Arc<Barrier>, Arc<Barrier>), tx: &mut Transaction<'_>) -> Result<u64, Error> {
        increment_and_wait(barriers, tx).await?;
        tx.run(&INCREMENT, &[("id", 2_i64.into())]).await
    }
    let stall = async {
        begun.wait().await;
        proxy.stall(Direction::ToClient);
        go_on.wait().await;
    };
    let (result, ()) = tokio::join!(records.write((begun.clone(), go_on.clone()), change), stall);
    assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    let direct = connect(&direct_url).await.unwrap();
    assert_eq!(counters(&direct).await, [0, 0]);
    // The server releases the row lock soon, although it has not seen the connection close.
    proxy.heal();
    wait::until(TIMEOUT, || async {
        let result = direct.write((), increment);
        result.await.is_ok_and(|changed: u64| changed == 1)
    })
    .await;
    assert_eq!(counters(&direct).await, [1, 0]);
}

async fn a_refused_login_fails_at_once_without_showing_the_password(flavour: Flavour) {
    let server = flavour.shared().await;
    let good = server.database();
    let wrong = [
        good.replace("pass%2Fword%3A1", "s3cret"),
        server.url("nowhere"),
        good.replace("bongsu:", "nobody:"),
    ];
    for url in wrong {
        let started = Instant::now();
        let error = connect(&url).await.err().expect("it is refused");
        assert!(started.elapsed() < MAX_CALL_TIME, "a refused login is not retried");
        let text = error.to_string();
        assert!(matches!(error, Error::ServerUnusable(..)) && text.contains("DATABASE_URL"), "{text}");
        assert!(!text.contains("s3cret") && !text.contains("word%"), "{text}");
        assert!(text.contains(&server.addr().to_string()), "{text}");
    }
}

async fn a_start_waits_for_the_server_but_not_for_ever(flavour: Flavour) {
    let server = Server::start(flavour).await;
    let url = server.database();
    server.kill9().await;
    let started = Instant::now();
    let error = connect(&url).await.err().expect("there is no server");
    assert!(matches!(error, Error::ServerUnusable(..)), "{error}");
    let waited = started.elapsed();
    assert!((Duration::from_secs(10)..TIMEOUT).contains(&waited), "{waited:?}");
    let (records, ()) = tokio::join!(connect(&url), async {
        // The server starts one second after the hub.
        sleep(Duration::from_secs(1)).await;
        server.restart().await;
    });
    put(&records.unwrap(), "a").await.unwrap();
}

async fn unsafe_server_settings_are_reported(flavour: Flavour) {
    let (settings, expected): (&[&str], &[&str]) = match flavour {
        Flavour::Postgres => (&["fsync=off", "synchronous_commit=off"], &["synchronous_commit", "fsync"]),
        Flavour::MariaDb => (
            &["innodb-flush-log-at-trx-commit=2", "log-bin=log", "sync-binlog=0"],
            &["innodb_flush_log_at_trx_commit", "sync_binlog"],
        ),
    };
    let server = Server::start_with(flavour, settings).await;
    let url = server.database();
    let records: Records = connect(&url).await.unwrap();
    let warnings = records.warnings();
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, setting) in warnings.iter().zip(expected) {
        assert!(warning.contains(setting), "{warning}");
    }
    put(&records, "a").await.unwrap();
    let address = options(&url).address;
    let inspected = bongsu_sql::inspect_server(&address, &migrations()).await.unwrap();
    assert_eq!(inspected.warnings, warnings);
}

/// As after an outage: the server has not released the lock of a lost session when the hub reconnects.
async fn a_lock_that_another_session_held_for_a_moment_is_taken_again(flavour: Flavour) {
    let server = Arc::new(Server::start(flavour).await);
    let url = server.database();
    let (options, migrations, supervisor) = (options(&url), migrations(), Supervisor::new());
    let connect = || PreparedServer::connect(&options, &migrations, Some(DatabaseLock::Exclusive));
    let records = connect().await.unwrap().migrate(&supervisor).await.unwrap();
    // The hub may be the first to take the lock again; then the sessions are closed once more.
    let mut other = Err(());
    for _ in 0..20 {
        if other.is_err() {
            close_all_connections(&server, Server::database_name(&url)).await;
            other = connect().await.map_err(drop);
        }
    }
    let other = other.expect("the other session took the lock");
    wait::until(TIMEOUT, async || records.outage().is_some()).await;
    assert!(put(&records, "a").await.is_err(), "without the lock nothing is written");
    drop(other);
    wait::until(TIMEOUT, async || put(&records, "b").await.is_ok()).await;
    assert!(supervisor.failed().now_or_never().is_none(), "the hub stays");
}
