//! Tests of the gap test: readers as they are usually written lose rows of the same writers, and the same checker says so.

use std::sync::Arc;
use std::time::Duration;

use bongsu_sql::{Error, Query, Records, Transaction};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Rng, proof, tier, wait};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fleet::{Database, LONG};
use super::follower::LAST;
use super::gaps::{SERVERS, TARGETS};
use super::ledger::{Ledger, Wrong};
use super::rows;
use super::writers::write_to;

/// So often the writers write for a while, at most, until something is lost.
const ROUNDS: u64 = 10;
const A_WHILE: usize = 120;

const BY_ID_TEXT: &str =
    "SELECT id, payload FROM outbox_events WHERE target_event_id = :target AND id > :last ORDER BY id";
static BY_ID: Query = Query::new("test_by_id", [BY_ID_TEXT; 3]);
/// Only what is older than the oldest transaction that is under way. The numbers of rows have 32 bits, the horizon has 64.
const BY_HORIZON_TEXT: &str = "SELECT id, payload FROM outbox_events WHERE target_event_id = :target AND id > :last \
    AND xmin::text::bigint < pg_snapshot_xmin(pg_current_snapshot())::text::bigint % 4294967296 ORDER BY id";
static BY_HORIZON: Query = Query::new("test_by_horizon", [BY_HORIZON_TEXT; 3]);

struct Asked {
    query: &'static Query,
    target: u64,
    last: i64,
}

/// Ids and numbers.
async fn ask(asked: &Asked, tx: &mut Transaction<'_>) -> Result<Vec<(i64, u64)>, Error> {
    let wanted = [("target", asked.target.to_string().into()), ("last", asked.last.into())];
    let rows = tx.rows(asked.query, &wanted).await?;
    let number = |payload: &str| {
        let payload: serde_json::Value = serde_json::from_str(payload).unwrap();
        payload["proposal_id"].as_u64().unwrap()
    };
    rows.iter().map(|row| Ok((row.int(0)?, number(row.text(1)?)))).collect()
}

/// Reads on by id to the last row of all.
async fn read(records: &Records, query: &'static Query, target: u64) -> Vec<u64> {
    let (mut seen, mut last, until) = (Vec::new(), 0, Instant::now() + LONG);
    while Instant::now() < until {
        for (id, number) in records.read(Asked { query, target, last }, ask).await.unwrap() {
            if number == LAST {
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

async fn is_found_out(name: &str, flavour: Flavour, query: &'static Query) {
    if !tier::needs_engine(flavour.name()) {
        return;
    }
    let mut rng = Rng::for_test(name);
    for round in 1..=ROUNDS {
        // No hub is there: it would change the rows.
        let database = match query.name() {
            // How far it reads depends on all transactions of the server, be they in other databases.
            "test_by_horizon" => Database::migrated_apart(flavour).await,
            _ => Database::migrated(flavour).await,
        };
        let (records, ledger) = (database.records(40).await, Arc::new(Ledger::default()));
        let work = async {
            let stop = async {
                wait::until(LONG, async || ledger.commits() >= A_WHILE).await;
                ledger.stop();
            };
            tokio::join!(stop, write_to(&records, &ledger, &mut rng, 32, SERVERS));
            for target in 0..TARGETS {
                database.execute(database.name(), &rows(&target.to_string(), [LAST]));
            }
        };
        let readers = (0..TARGETS).map(|target| read(&records, query, target));
        let ((), seen) = tokio::join!(work, futures_util::future::join_all(readers));
        let kept = ledger.kept();
        let wrong: Vec<Wrong> =
            seen.iter().zip(0..).map(|(seen, target)| Wrong::with(seen, target, &kept)).collect();
        let found = |count: fn(&Wrong) -> usize| wrong.iter().map(count).sum::<usize>();
        let (missing, disordered) =
            (found(|wrong| wrong.missing.len()), found(|wrong| wrong.disordered.len()));
        assert_eq!(found(|wrong| wrong.strange.len()), 0, "what was undone was never there to be read");
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
    is_found_out("a_reader_by_id_loses_rows_on_postgres", Flavour::Postgres, &BY_ID).await;
}

#[tokio::test]
async fn a_reader_by_id_loses_rows_on_mariadb() {
    is_found_out("a_reader_by_id_loses_rows_on_mariadb", Flavour::MariaDb, &BY_ID).await;
}

#[tokio::test]
async fn a_reader_by_a_horizon_of_transactions_loses_rows_on_postgres() {
    let name = "a_reader_by_a_horizon_of_transactions_loses_rows_on_postgres";
    is_found_out(name, Flavour::Postgres, &BY_HORIZON).await;
}

#[tokio::test]
async fn a_reader_by_a_horizon_of_transactions_waits_for_whoever_is_slowest_on_postgres() {
    if !tier::needs_engine("postgres") {
        return;
    }
    let database = Database::migrated_apart(Flavour::Postgres).await;
    let records = database.records(4).await;
    let insert = |number| database.execute(database.name(), &rows("0", [number]));
    let look = async |query| {
        let found = records.read(Asked { query, target: 0, last: 0 }, ask).await.unwrap();
        found.iter().map(|(_, number)| *number).collect::<Vec<_>>()
    };
    // A transaction that wrote something and is open: another one's row is committed, and yet not shown.
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
        assert_eq!(look(&BY_ID).await, [1], "it is committed");
        assert_eq!(
            look(&BY_HORIZON).await,
            [0; 0],
            "and waits for a transaction that has nothing to do with it"
        );
        barrier.wait().await;
    };
    tokio::join!(open, looking);
    wait::until(LONG, async || look(&BY_HORIZON).await == [1]).await;
}
