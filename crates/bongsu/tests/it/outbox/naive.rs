//! Tests of the gap test: readers as they are usually written lose rows of the same writers, and the same checker
//! reports it.

use std::sync::Arc;
use std::time::Duration;

use bongsu_sql::{Error, Query, Records, Transaction};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Rng, proof, tier, wait};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fleet::{Database, FLEET_TIMEOUT};
use super::follower::LAST_NUMBER;
use super::gaps::{SERVER_PACE, TARGETS};
use super::ledger::{Ledger, Violations};
use super::rows;
use super::writers::run_server_writers;

/// The writers run in at most this many rounds, until a row is lost.
const MAX_ROUNDS: u64 = 10;
const COMMITS_PER_ROUND: usize = 120;

const BY_ID_TEXT: &str =
    "SELECT id, payload FROM outbox_events WHERE target_event_id = :target AND id > :last ORDER BY id";
static BY_ID: Query = Query::new("test_by_id", [BY_ID_TEXT; 3]);
/// Reads only rows older than the oldest open transaction. Row versions have 32-bit transaction ids, the horizon has
/// 64 bits.
const BY_HORIZON_TEXT: &str = "SELECT id, payload FROM outbox_events WHERE target_event_id = :target AND id > :last \
    AND xmin::text::bigint < pg_snapshot_xmin(pg_current_snapshot())::text::bigint % 4294967296 ORDER BY id";
static BY_HORIZON: Query = Query::new("test_by_horizon", [BY_HORIZON_TEXT; 3]);

struct ReaderQuery {
    query: &'static Query,
    target: u64,
    last: i64,
}

/// The ids and numbers of the rows after the last id.
async fn fetch_rows(asked: &ReaderQuery, tx: &mut Transaction<'_>) -> Result<Vec<(i64, u64)>, Error> {
    let wanted = [("target", asked.target.to_string().into()), ("last", asked.last.into())];
    let rows = tx.rows(asked.query, &wanted).await?;
    let number = |payload: &str| {
        let payload: serde_json::Value = serde_json::from_str(payload).unwrap();
        payload["proposal_id"].as_u64().unwrap()
    };
    rows.iter().map(|row| Ok((row.int(0)?, number(row.text(1)?)))).collect()
}

/// Reads with the query until the last row.
async fn read_by(records: &Records, query: &'static Query, target: u64) -> Vec<u64> {
    let (mut seen, mut last, until) = (Vec::new(), 0, Instant::now() + FLEET_TIMEOUT);
    while Instant::now() < until {
        for (id, number) in records.read(ReaderQuery { query, target, last }, fetch_rows).await.unwrap() {
            if number == LAST_NUMBER {
                return seen;
            }
            seen.push(number);
            last = id;
        }
        // The reader's own pace.
        sleep(Duration::from_millis(5)).await;
    }
    seen
}

async fn expect_lost_rows(name: &str, flavour: Flavour, query: &'static Query) {
    if !tier::needs_engine(flavour.name()) {
        return;
    }
    let mut rng = Rng::for_test(name);
    for round in 1..=MAX_ROUNDS {
        // No hub uses this database, because a hub would change the rows.
        let database = match query.name() {
            // The horizon depends on all transactions of the server, including those in other databases.
            "test_by_horizon" => Database::migrated_on_own_server(flavour).await,
            _ => Database::migrated(flavour).await,
        };
        let (records, ledger) = (database.records(40).await, Arc::new(Ledger::default()));
        let work = async {
            let stop = async {
                wait::until(FLEET_TIMEOUT, async || ledger.commits() >= COMMITS_PER_ROUND).await;
                ledger.stop();
            };
            tokio::join!(stop, run_server_writers(&records, &ledger, &mut rng, 32, SERVER_PACE));
            for target in 0..TARGETS {
                database.execute(database.name(), &rows(&target.to_string(), [LAST_NUMBER]));
            }
        };
        let readers = (0..TARGETS).map(|target| read_by(&records, query, target));
        let ((), seen) = tokio::join!(work, futures_util::future::join_all(readers));
        let kept = ledger.kept();
        let wrong: Vec<Violations> =
            seen.iter().zip(0..).map(|(seen, target)| Violations::find(seen, target, &kept)).collect();
        let found = |count: fn(&Violations) -> usize| wrong.iter().map(count).sum::<usize>();
        let (missing, disordered) =
            (found(|wrong| wrong.missing.len()), found(|wrong| wrong.disordered.len()));
        assert_eq!(found(|wrong| wrong.unexpected.len()), 0, "rolled back rows were read");
        if missing > 0 {
            let facts = json!({"seed": tier::seed(), "rounds": round, "acknowledged": kept.len(),
                "missing": missing, "disordered": disordered});
            proof::record("outbox", name, facts);
            return;
        }
    }
    panic!("the gap test would not notice a reader that loses rows");
}

#[tokio::test]
async fn a_reader_by_id_loses_rows_on_postgres() {
    expect_lost_rows("a_reader_by_id_loses_rows_on_postgres", Flavour::Postgres, &BY_ID).await;
}

#[tokio::test]
async fn a_reader_by_id_loses_rows_on_mariadb() {
    expect_lost_rows("a_reader_by_id_loses_rows_on_mariadb", Flavour::MariaDb, &BY_ID).await;
}

#[tokio::test]
async fn a_reader_by_a_horizon_of_transactions_loses_rows_on_postgres() {
    let name = "a_reader_by_a_horizon_of_transactions_loses_rows_on_postgres";
    expect_lost_rows(name, Flavour::Postgres, &BY_HORIZON).await;
}

#[tokio::test]
async fn a_reader_by_a_horizon_of_transactions_waits_for_whoever_is_slowest_on_postgres() {
    if !tier::needs_engine("postgres") {
        return;
    }
    let database = Database::migrated_on_own_server(Flavour::Postgres).await;
    let records = database.records(4).await;
    let insert = |number| database.execute(database.name(), &rows("0", [number]));
    let look = async |query| {
        let found = records.read(ReaderQuery { query, target: 0, last: 0 }, fetch_rows).await.unwrap();
        found.iter().map(|(_, number)| *number).collect::<Vec<_>>()
    };
    // A transaction that has written a row and stays open: another program's committed row is not shown meanwhile.
    async fn stay_open(looked: &Arc<tokio::sync::Barrier>, tx: &mut Transaction<'_>) -> Result<(), Error> {
        tx.run(&OTHER, &[]).await?;
        looked.wait().await;
        looked.wait().await;
        Ok(())
    }
    static OTHER: Query = Query::new(
        "test_other",
        ["INSERT INTO memberships (event_id, user_id, status) VALUES ('9', '9', 'PENDING')"; 3],
    );
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let (opened, other) = (barrier.clone(), records.clone());
    let open = async move { other.write(opened, stay_open).await.unwrap() };
    let looking = async {
        barrier.wait().await;
        insert(1);
        assert_eq!(look(&BY_ID).await, [1], "the committed row");
        assert_eq!(look(&BY_HORIZON).await, [0; 0], "no row while an unrelated transaction is open");
        barrier.wait().await;
    };
    tokio::join!(open, looking);
    wait::until(FLEET_TIMEOUT, async || look(&BY_HORIZON).await == [1]).await;
}
