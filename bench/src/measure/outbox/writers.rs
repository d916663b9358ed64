//! Writers that commit outbox rows as an application does: each has a thread and a connection to the database.

use crate::Result;
use crate::clock::{Clock, STAMP_DIGITS, put_stamp};
use crate::generator::{CommittedRows, FIRST_ROOM};
use crate::measure::database::{BUSY_TIMEOUT, DatabaseAddress};
use crate::stats::Histogram;
use bongsu_testkit::sql::Flavour;
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const EMPTY_STAMP: &str = "0000000000000000";

/// How writers commit rows.
#[derive(Clone, Copy)]
pub(super) struct WriterPlan {
    pub(super) writers: usize,
    /// Rows per transaction, with consecutive subjects.
    pub(super) rows: u32,
    /// Transactions per second of all writers together; None for no limit.
    pub(super) rate: Option<u32>,
    pub(super) window: Duration,
    pub(super) subjects: u32,
}

/// Running writers.
pub(super) struct Writers(Vec<JoinHandle<std::result::Result<CommittedRows, String>>>);

impl Writers {
    pub(super) fn start(address: &DatabaseAddress, plan: WriterPlan, clock: Clock) -> Self {
        let start = |number: usize| {
            let address = address.clone();
            thread::spawn(move || {
                run_writer(&address, plan, clock, number).map_err(|error| error.to_string())
            })
        };
        Self((0..plan.writers).map(start).collect())
    }

    /// The committed rows once all writers have ended; None before that.
    pub(super) fn try_join(&mut self) -> Option<Result<CommittedRows>> {
        if self.0.iter().all(JoinHandle::is_finished) { Some(self.join()) } else { None }
    }

    /// Waits for all writers and returns the committed rows.
    pub(super) fn join(&mut self) -> Result<CommittedRows> {
        let mut total = CommittedRows { rows: Vec::new(), latency: Histogram::new() };
        for writer in self.0.drain(..) {
            let rows_of_one = writer.join().map_err(|_| "a writer failed")??;
            total.rows.resize(rows_of_one.rows.len(), 0);
            total
                .rows
                .iter_mut()
                .zip(&rows_of_one.rows)
                .for_each(|(total, rows_of_one)| *total += rows_of_one);
            total.latency.merge(&rows_of_one.latency);
        }
        Ok(total)
    }
}

fn run_writer(
    address: &DatabaseAddress,
    plan: WriterPlan,
    clock: Clock,
    number: usize,
) -> Result<CommittedRows> {
    let mut connection = Client::open(address)?;
    let mut written = CommittedRows { rows: vec![0; plan.subjects as usize], latency: Histogram::new() };
    let started = Instant::now();
    let mut subject = number as u32;
    for turn in 0.. {
        if let Some(rate) = plan.rate {
            // The writers take turns, so that together they keep the rate.
            let due = (turn * plan.writers + number) as f64 / f64::from(rate);
            thread::sleep(Duration::from_secs_f64(due).saturating_sub(started.elapsed()));
        }
        if started.elapsed() >= plan.window {
            break;
        }
        let subjects: Vec<u32> = (0..plan.rows).map(|row| (subject + row) % plan.subjects).collect();
        subject += plan.rows;
        let sent = clock.now_ns();
        connection.run(&insert_statement(&subjects, sent))?;
        written.latency.record(clock.now_ns() - sent);
        subjects.iter().for_each(|subject| written.rows[*subject as usize] += 1);
    }
    Ok(written)
}

fn insert_statement(subjects: &[u32], sent_ns: u64) -> String {
    let mut stamp = EMPTY_STAMP.as_bytes().to_vec();
    put_stamp(&mut stamp[..STAMP_DIGITS], sent_ns);
    let stamp = String::from_utf8_lossy(&stamp);
    let row = |subject: &u32| {
        let event = FIRST_ROOM + subject;
        format!("('proposal.created.v1', '{{\"proposal_id\":7,\"sentNs\":{stamp}}}', '{event}')")
    };
    let rows: Vec<String> = subjects.iter().map(row).collect();
    format!("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES {}", rows.join(", "))
}

/// The connection of a writer.
enum Client {
    File(rusqlite::Connection),
    Postgres(tokio::runtime::Runtime, sqlx::PgConnection),
    MariaDb(tokio::runtime::Runtime, sqlx::MySqlConnection),
}

impl Client {
    fn open(address: &DatabaseAddress) -> Result<Self> {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        match address {
            DatabaseAddress::File(file) => {
                let connection = rusqlite::Connection::open(file)?;
                connection.busy_timeout(BUSY_TIMEOUT)?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                Ok(Self::File(connection))
            }
            DatabaseAddress::Server(Flavour::Postgres, url) => {
                let runtime = runtime()?;
                let connection = runtime.block_on(sqlx::PgConnection::connect(url))?;
                Ok(Self::Postgres(runtime, connection))
            }
            DatabaseAddress::Server(Flavour::MariaDb, url) => {
                let runtime = runtime()?;
                let connection = runtime.block_on(sqlx::MySqlConnection::connect(url))?;
                Ok(Self::MariaDb(runtime, connection))
            }
        }
    }

    /// Runs one statement in one transaction.
    fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::File(connection) => connection.execute_batch(sql)?,
            Self::Postgres(runtime, connection) => {
                runtime.block_on(connection.execute(AssertSqlSafe(sql)))?;
            }
            Self::MariaDb(runtime, connection) => {
                runtime.block_on(connection.execute(AssertSqlSafe(sql)))?;
            }
        }
        Ok(())
    }
}
