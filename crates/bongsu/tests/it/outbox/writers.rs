//! Programs that write rows in transactions of all lengths, and roll back a third of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_sql::{BoxFuture, Dialect, Error, Names, Query, Records, Transaction, Value};
use bongsu_testkit::Rng;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::fleet::Fleet;
use super::ledger::Ledger;

const INSERT_TEXT: &str = "INSERT INTO outbox_events (event_type, payload, target_event_id) \
    VALUES ('proposal.created.v1', :payload, :target)";
static INSERT: Query = Query::new("test_insert", [INSERT_TEXT; 3]);

/// A program with its own connection.
#[derive(Clone)]
pub(super) enum Program {
    Server(Records),
    File(Arc<Mutex<rusqlite::Connection>>),
}

impl Program {
    pub(super) async fn start(fleet: &Fleet) -> Self {
        match &fleet.database {
            Some(database) => Self::Server(database.records(1).await),
            None => Self::File(Arc::new(Mutex::new(fleet.file()))),
        }
    }

    /// Runs a query in its own transaction, which is committed when this returns.
    pub(super) async fn run(&self, query: &'static Query, values: Vec<(&'static str, Value)>) {
        type QueryWithValues = (&'static Query, Vec<(&'static str, Value)>);
        fn once<'t>(
            (query, values): &'t QueryWithValues,
            tx: &'t mut Transaction<'_>,
        ) -> BoxFuture<'t, Result<(), Error>> {
            Box::pin(async move { tx.run(query, values).await.map(drop) })
        }
        match self {
            Self::Server(records) => records.write((query, values), once).await.unwrap(),
            Self::File(file) => {
                let file = file.clone();
                let work = move || {
                    let written = query.render(Dialect::Sqlite, &Names::default());
                    let find = |name: &String| &values.iter().find(|(given, _)| given == name).unwrap().1;
                    let values = written.arguments.iter().map(find);
                    let file = file.lock().unwrap();
                    file.execute(&written.text, rusqlite::params_from_iter(values)).unwrap();
                };
                tokio::task::spawn_blocking(work).await.unwrap();
            }
        }
    }

    pub(super) async fn insert(&self, event: &str, number: u64) {
        self.run(&INSERT, vec![("payload", payload(number).into()), ("target", event.into())]).await;
    }
}

/// The timing of a writer.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Longest pause between two inserts of a transaction, in ms.
    pub(super) within: u64,
    /// One transaction in this many takes 1 to 2 s.
    pub(super) long_one_in: u64,
    /// Longest pause between two transactions, in ms.
    pub(super) between: u64,
    pub(super) targets: u64,
}

/// One transaction of a writer.
struct WriterTransaction {
    /// The number and target of each row, and the pause after its insert.
    rows: Vec<(u64, u64, Duration)>,
    is_kept: bool,
    ledger: Arc<Ledger>,
    /// When each insert began, in the attempt that counted.
    began: Mutex<Vec<u64>>,
}

impl WriterTransaction {
    fn draw(ledger: &Arc<Ledger>, rng: &mut Rng, pace: Pace) -> Self {
        let count = rng.range(2..5);
        let long = rng.chance(1, pace.long_one_in).then(|| rng.range(1_000..2_000) / count);
        let rows = ledger.numbers(count).map(|number| {
            let pause = long.unwrap_or_else(|| rng.below(pace.within));
            (number, rng.below(pace.targets), Duration::from_millis(pause))
        });
        let rows = rows.collect();
        Self { rows, is_kept: !rng.chance(1, 3), ledger: ledger.clone(), began: Mutex::default() }
    }

    fn rows(&self) -> Vec<(u64, u64, u64)> {
        let began = self.began.lock().unwrap();
        self.rows.iter().zip(&*began).map(|((number, target, _), began)| (*number, *target, *began)).collect()
    }
}

fn payload(number: u64) -> String {
    format!("{{\"proposal_id\": {number}}}")
}

async fn run(change: &Arc<WriterTransaction>, tx: &mut Transaction<'_>) -> Result<(), Error> {
    change.began.lock().unwrap().clear();
    for (number, target, pause) in &change.rows {
        let began = change.ledger.tick();
        change.began.lock().unwrap().push(began);
        let row = [("payload", payload(*number).into()), ("target", target.to_string().into())];
        tx.run(&INSERT, &row).await?;
        // The pauses within and between transactions are the program's own pace, here and below.
        sleep(*pause).await;
    }
    if change.is_kept { Ok(()) } else { Err(Error::RolledBack) }
}

/// Writes to a database server until the ledger is over.
async fn write(records: &Records, ledger: &Arc<Ledger>, mut rng: Rng, pace: Pace) {
    while !ledger.is_over() {
        let change = Arc::new(WriterTransaction::draw(ledger, &mut rng, pace));
        ledger.in_flight.fetch_add(1, Ordering::SeqCst);
        match records.write(change.clone(), run).await {
            Ok(()) => ledger.keep(&change.rows()),
            Err(Error::RolledBack) => drop(ledger.undone.fetch_add(1, Ordering::SeqCst)),
            // Nothing was committed: the server is unavailable, and the program tries again.
            Err(Error::Unavailable(_)) => sleep(Duration::from_millis(50)).await,
            Err(Error::Unanswered(_)) => ledger.leave_open(&change.rows()),
            // A MariaDB that was killed may assign an id that a row already has.
            Err(Error::Failed(reason)) if reason.contains("(1062)") => {}
            Err(error) => panic!("{error}"),
        }
        ledger.in_flight.fetch_sub(1, Ordering::SeqCst);
        sleep(Duration::from_millis(rng.below(pace.between))).await;
    }
}

/// Writes to the embedded file, from another process than the hub, until the ledger is over.
fn write_file(file: &rusqlite::Connection, ledger: &Arc<Ledger>, mut rng: Rng, pace: Pace) {
    while !ledger.is_over() {
        let change = WriterTransaction::draw(ledger, &mut rng, pace);
        ledger.in_flight.fetch_add(1, Ordering::SeqCst);
        let mut tries = 0..10;
        while let Err(error) = file.execute_batch("BEGIN IMMEDIATE") {
            // A paused hub may hold the write lock: no other process writes until the hub resumes.
            assert!(tries.next().is_some(), "another process never releases the file: {error}");
            assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{error}");
        }
        for (number, target, pause) in &change.rows {
            change.began.lock().unwrap().push(ledger.tick());
            let row = (payload(*number), target.to_string());
            let text = INSERT_TEXT.replace(":payload", "?1").replace(":target", "?2");
            file.prepare_cached(&text).unwrap().execute(row).unwrap();
            // All other writers wait meanwhile, so the transactions are short.
            std::thread::sleep(*pause / 2);
        }
        if change.is_kept {
            file.execute_batch("COMMIT").unwrap();
            ledger.keep(&change.rows());
        } else {
            file.execute_batch("ROLLBACK").unwrap();
            ledger.undone.fetch_add(1, Ordering::SeqCst);
        }
        ledger.in_flight.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(rng.below(pace.between)));
    }
}

/// Runs this many writers, each on its own connection.
pub(super) async fn run_server_writers(
    records: &Records,
    ledger: &Arc<Ledger>,
    rng: &mut Rng,
    count: usize,
    pace: Pace,
) {
    let rngs = (0..count).map(|_| Rng::new(rng.next_u64())).collect::<Vec<_>>();
    join_all(rngs.into_iter().map(|rng| write(records, ledger, rng, pace))).await;
}

/// Runs this many writers on the database of the fleet, each on its own connection, until the ledger is over.
pub(super) async fn run_writers(
    fleet: &Fleet,
    ledger: &Arc<Ledger>,
    rng: &mut Rng,
    count: usize,
    pace: Pace,
) {
    match &fleet.database {
        Some(database) => run_server_writers(&database.records(count).await, ledger, rng, count, pace).await,
        None => {
            let writers = (0..count).map(|_| {
                let (file, ledger, rng) = (fleet.file(), ledger.clone(), Rng::new(rng.next_u64()));
                tokio::task::spawn_blocking(move || write_file(&file, &ledger, rng, pace))
            });
            for writer in join_all(writers).await {
                writer.unwrap();
            }
        }
    }
}
