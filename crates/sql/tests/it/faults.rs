//! Servers that are killed, stand still, close connections or are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bongsu_sql::{Error, Query, Records, Transaction, once};
use bongsu_testkit::proxy::{Direction, Proxy};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout};

use crate::database::{INCREMENT, PUT, connect, counters, increment, listed, put};

const LONG: Duration = Duration::from_secs(60);
/// Everything is answered within this, whatever is wrong with the server.
const IN_TIME: Duration = Duration::from_secs(20);

macro_rules! on_both {
    ($($promise:ident)*) => {
        mod postgres {
            $(#[tokio::test] async fn $promise() { super::on(super::Flavour::Postgres, super::$promise).await; })*
        }
        mod mariadb {
            $(#[tokio::test] async fn $promise() { super::on(super::Flavour::MariaDb, super::$promise).await; })*
        }
    };
}

on_both! {
    a_server_that_is_killed_loses_nothing_that_was_answered_and_does_nothing_twice
    a_server_that_stands_still_holds_up_nobody_for_long
    connections_that_the_server_closed_cost_nobody_an_answer
    a_connection_that_breaks_within_a_change_undoes_it
    a_commit_that_nobody_answers_is_told_as_that
    a_server_that_vanishes_before_the_commit_has_kept_nothing
    who_may_not_come_in_is_told_at_once_without_the_password
    a_start_waits_for_the_server_but_not_for_ever
    a_server_that_may_lose_changes_is_told_of
}

async fn on<F: Future<Output = ()>>(flavour: Flavour, promise: impl Fn(Flavour) -> F) {
    if tier::needs_engine(flavour.name()) {
        promise(flavour).await;
    }
}

/// Does something once, whoever repeats it.
async fn done_once((key,): &(String,), tx: &mut Transaction<'_>) -> Result<bool, Error> {
    if !once(tx, "fault", key, 1).await? {
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
    under_way: AtomicU64,
    acknowledged: AtomicU64,
    away: AtomicU64,
    unanswered: AtomicU64,
    /// Were kept although nobody had said so.
    kept_unanswered: AtomicU64,
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
                let (mut was_unanswered, deadline) = (false, Instant::now() + LONG * 2);
                loop {
                    assert!(Instant::now() < deadline, "{key} is not taken although the server is back");
                    tally.under_way.fetch_add(1, Ordering::SeqCst);
                    let started = Instant::now();
                    let done = records.write((key.clone(),), done_once).await;
                    tally.under_way.fetch_sub(1, Ordering::SeqCst);
                    assert!(started.elapsed() < IN_TIME);
                    match done {
                        Ok(first) => {
                            assert!(
                                first || was_unanswered,
                                "{key} was kept although nothing was to be kept"
                            );
                            tally.kept_unanswered.fetch_add(u64::from(!first), Ordering::SeqCst);
                            break;
                        }
                        Err(Error::Away(_)) => tally.away.fetch_add(1, Ordering::SeqCst),
                        Err(Error::Unanswered(_)) => {
                            was_unanswered = true;
                            tally.unanswered.fetch_add(1, Ordering::SeqCst)
                        }
                        Err(error) => panic!("{key}: {error}"),
                    };
                    // A program's pause before it tries again.
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
        let (mut kills, mut landed) = (0, 0);
        let some_more = async |more: u64| {
            let enough = tally.acknowledged.load(Ordering::SeqCst) + more;
            wait::until(LONG, || async { tally.acknowledged.load(Ordering::SeqCst) >= enough }).await;
        };
        for _ in 0..rounds {
            some_more(rng.range(10..100)).await;
            landed += u64::from(tally.under_way.load(Ordering::SeqCst) > 0);
            server.restart().await;
            kills += 1;
            wait::until(LONG, || async { hubs.iter().all(|hub| hub.trouble().is_none()) }).await;
            wait::until(LONG, || async {
                let counted = hubs[0]
                    .read((), async |(): &(), tx: &mut Transaction<'_>| tx.row(&COUNTER_AND_ITEMS, &[]).await)
                    .await;
                let Ok(counted) = counted.map(Option::unwrap) else { return false };
                assert_eq!(counted.int(0).unwrap(), counted.int(1).unwrap(), "after kill {kills}");
                true
            })
            .await;
        }
        some_more(10).await;
        stop.store(true, Ordering::SeqCst);
        (kills, landed)
    };
    let (acknowledged, (kills, landed)) = tokio::join!(join_all((0..8).map(writer)), killer);
    let mut acknowledged = acknowledged.concat();
    acknowledged.sort_unstable();
    let (count, of) = (acknowledged.len(), |n: &AtomicU64| n.load(Ordering::SeqCst));
    let facts = json!({
        "seed": tier::seed(), "kills": kills, "killsInFlight": landed, "acknowledged": count, "away": of(&tally.away),
        "unanswered": of(&tally.unanswered), "keptUnanswered": of(&tally.kept_unanswered),
    });
    proof::record("sql", &format!("killed_{}", flavour.name()), facts);
    assert_eq!(listed(&hubs[0]).await, acknowledged, "what was acknowledged is there, and nothing else");
    let seen = [counters(&hubs[1]).await[0], counters(&hubs[0]).await[0]];
    assert_eq!(seen, [i64::try_from(count).unwrap(); 2], "once each, for both hubs");
    assert!(landed * 2 >= rounds && count > 20, "too few kills landed");
}

async fn a_server_that_stands_still_holds_up_nobody_for_long(flavour: Flavour) {
    let server = Server::start(flavour).await;
    let records = connect(&server.database()).await.unwrap();
    put(&records, "before").await.unwrap();
    server.pause();
    let first = timeout(IN_TIME, put(&records, "first")).await.expect("it is answered in time");
    assert!(matches!(first, Err(Error::Away(_) | Error::Unanswered(_))), "{first:?}");
    wait::until(IN_TIME, || async { records.trouble().is_some() }).await;
    let started = Instant::now();
    for n in 0..20 {
        let done = put(&records, &format!("later{n}")).await;
        assert!(matches!(done, Err(Error::Away(_))), "{done:?}");
    }
    assert!(started.elapsed() < IN_TIME, "once it is known to be away nobody waits for it");
    server.resume();
    wait::until(LONG, || async { put(&records, "after").await.is_ok() }).await;
    wait::until(LONG, || async { records.trouble().is_none() }).await;
    let listed: Vec<String> = listed(&records).await.into_iter().filter(|id| id != "first").collect();
    assert_eq!(listed, ["after", "before"], "what was refused is not there");
}

/// Has the server close all connections to a database, and waits until it has.
async fn end_all_connections(server: &Arc<Server>, name: &str) {
    let (list, end) = match server.flavour() {
        Flavour::Postgres => (
            format!("SELECT pid FROM pg_stat_activity WHERE datname = '{name}'"),
            "SELECT pg_terminate_backend",
        ),
        Flavour::MariaDb => {
            (format!("SELECT id FROM information_schema.processlist WHERE db = '{name}'"), "KILL ")
        }
    };
    let connections = async || {
        let said = execute(server, list.clone()).await.unwrap();
        said.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let ended = connections().await;
    for id in &ended {
        // It may have ended by itself.
        let _ = execute(server, format!("{end}({id})")).await;
    }
    // The server ends a connection when it comes to it; until then requests on it may get half of an answer.
    wait::until(LONG, async || !connections().await.iter().any(|id| ended.contains(id))).await;
}

/// Runs SQL by the server's command line, beside the tasks of this thread: the records' own watch is one of them.
async fn execute(server: &Arc<Server>, sql: String) -> Result<String, String> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || server.try_execute("", &sql)).await.unwrap()
}

async fn connections_that_the_server_closed_cost_nobody_an_answer(flavour: Flavour) {
    let server = Arc::new(Server::start(flavour).await);
    let url = server.database();
    let records = connect(&url).await.unwrap();
    for round in 0..5 {
        let writes = (0..10).map(|n| {
            let (records, id) = (records.clone(), format!("r{round}-{n}"));
            async move { put(&records, &id).await }
        });
        for done in join_all(writes).await {
            done.unwrap();
        }
        assert_eq!(listed(&records).await.len(), (round + 1) * 10);
        end_all_connections(&server, Server::name_in(&url)).await;
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
    let cut = async {
        begun.wait().await;
        end_all_connections(&server, Server::name_in(&url)).await;
        go_on.wait().await;
    };
    let (done, ()) = tokio::join!(records.write((begun.clone(), go_on.clone()), change), cut);
    assert!(matches!(done, Err(Error::Away(_))), "{done:?}");
    assert_eq!(counters(&records).await, [0, 0]);
}

/// Increments, and waits at its end until the test has done something to the line.
async fn until_the_end(
    (begun, go_on): &(Arc<Barrier>, Arc<Barrier>),
    tx: &mut Transaction<'_>,
) -> Result<u64, Error> {
    let changed = tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
    begun.wait().await;
    go_on.wait().await;
    Ok(changed)
}

async fn a_commit_that_nobody_answers_is_told_as_that(flavour: Flavour) {
    let server = flavour.shared().await;
    let (direct, mut kept) = (server.database(), 0);
    let near = connect(&direct).await.unwrap();
    // What vanishes is the answer, or the COMMIT itself: whoever asked cannot tell.
    for (lost, is_kept) in [(Direction::ToClient, true), (Direction::ToServer, false)] {
        let proxy = Proxy::start(server.addr()).await;
        let records = connect(&server.url_at(proxy.addr(), Server::name_in(&direct))).await.unwrap();
        let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let asked = Instant::now();
        let lose = async {
            begun.wait().await;
            proxy.stall(lost);
            go_on.wait().await;
        };
        let (done, ()) = tokio::join!(records.write((begun.clone(), go_on.clone()), until_the_end), lose);
        assert!(matches!(done, Err(Error::Unanswered(_))), "{done:?}");
        assert!(asked.elapsed() < IN_TIME);
        kept += i64::from(is_kept);
        assert_eq!(counters(&near).await[0], kept, "{lost:?}");
        proxy.heal();
        wait::until(LONG, || async { put(&records, &format!("after{kept}{is_kept}")).await.is_ok() }).await;
        assert_eq!(counters(&records).await[0], kept, "and nothing of it later");
    }
}

async fn a_server_that_vanishes_before_the_commit_has_kept_nothing(flavour: Flavour) {
    let server = flavour.shared().await;
    let direct = server.database();
    let proxy = Proxy::start(server.addr()).await;
    let records = connect(&server.url_at(proxy.addr(), Server::name_in(&direct))).await.unwrap();
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    async fn change(given: &(Arc<Barrier>, Arc<Barrier>), tx: &mut Transaction<'_>) -> Result<u64, Error> {
        until_the_end(given, tx).await?;
        tx.run(&INCREMENT, &[("id", 2_i64.into())]).await
    }
    let lose = async {
        begun.wait().await;
        proxy.stall(Direction::ToClient);
        go_on.wait().await;
    };
    let (done, ()) = tokio::join!(records.write((begun.clone(), go_on.clone()), change), lose);
    assert!(matches!(done, Err(Error::Away(_))), "{done:?}");
    let near = connect(&direct).await.unwrap();
    assert_eq!(counters(&near).await, [0, 0]);
    // Nobody holds its locks for long, either: the line is open still, as far as the server knows.
    proxy.heal();
    wait::until(LONG, || async {
        let done = near.write((), increment);
        done.await.is_ok_and(|changed: u64| changed == 1)
    })
    .await;
    assert_eq!(counters(&near).await, [1, 0]);
}

async fn who_may_not_come_in_is_told_at_once_without_the_password(flavour: Flavour) {
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
        assert!(started.elapsed() < IN_TIME, "waiting does not help");
        let told = error.to_string();
        assert!(matches!(error, Error::NoServer(..)) && told.contains("DATABASE_URL"), "{told}");
        assert!(!told.contains("s3cret") && !told.contains("word%"), "{told}");
        assert!(told.contains(&server.addr().to_string()), "{told}");
    }
}

async fn a_start_waits_for_the_server_but_not_for_ever(flavour: Flavour) {
    let server = Server::start(flavour).await;
    let url = server.database();
    server.kill9().await;
    let started = Instant::now();
    let error = connect(&url).await.err().expect("there is no server");
    assert!(matches!(error, Error::NoServer(..)), "{error}");
    let waited = started.elapsed();
    assert!((Duration::from_secs(10)..LONG).contains(&waited), "{waited:?}");
    let (records, ()) = tokio::join!(connect(&url), async {
        // How long it is away while somebody starts.
        sleep(Duration::from_secs(1)).await;
        server.restart().await;
    });
    put(&records.unwrap(), "a").await.unwrap();
}

async fn a_server_that_may_lose_changes_is_told_of(flavour: Flavour) {
    let (settings, told): (&[&str], &[&str]) = match flavour {
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
    assert_eq!(warnings.len(), told.len(), "{warnings:?}");
    for (warning, setting) in warnings.iter().zip(told) {
        assert!(warning.contains(setting), "{warning}");
    }
    put(&records, "a").await.unwrap();
    let address = crate::database::options(&url).address;
    let inspected = bongsu_sql::inspect_server(&address, &crate::database::migrations()).await.unwrap();
    assert_eq!(inspected.warnings, warnings);
}
