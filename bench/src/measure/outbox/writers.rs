//! Programs that commit rows on their own, each in a thread with a connection: what an application does beside the hub.

use crate::Result;
use crate::clock::{Clock, STAMP_DIGITS, put_stamp};
use crate::generator::{FIRST_ROOM, Written};
use crate::measure::database::{PATIENCE, Place};
use crate::stats::Histogram;
use bongsu_testkit::sql::Flavour;
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const STAMP: &str = "0000000000000000";

/// What they do.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) writers: usize,
    /// Rows of one transaction, about one subject after another.
    pub(super) rows: u32,
    /// Transactions a second, all together; nothing for as many as they can.
    pub(super) rate: Option<u32>,
    pub(super) window: Duration,
    pub(super) subjects: u32,
}

/// Programs at work.
pub(super) struct Writers(Vec<JoinHandle<std::result::Result<Written, String>>>);

impl Writers {
    pub(super) fn start(place: &Place, plan: Plan, clock: Clock) -> Self {
        let start = |number: usize| {
            let place = place.clone();
            thread::spawn(move || work(&place, plan, clock, number).map_err(|error| error.to_string()))
        };
        Self((0..plan.writers).map(start).collect())
    }

    /// What they wrote, once all are done.
    pub(super) fn written(&mut self) -> Option<Result<Written>> {
        if self.0.iter().all(JoinHandle::is_finished) { Some(self.join()) } else { None }
    }

    pub(super) fn join(&mut self) -> Result<Written> {
        let mut all = Written { rows: Vec::new(), latency: Histogram::new() };
        for writer in self.0.drain(..) {
            let one = writer.join().map_err(|_| "a writer failed")??;
            all.rows.resize(one.rows.len(), 0);
            all.rows.iter_mut().zip(&one.rows).for_each(|(all, one)| *all += one);
            all.latency.add(&one.latency);
        }
        Ok(all)
    }
}

fn work(place: &Place, plan: Plan, clock: Clock, number: usize) -> Result<Written> {
    let mut connection = Client::open(place)?;
    let mut written = Written { rows: vec![0; plan.subjects as usize], latency: Histogram::new() };
    let began = Instant::now();
    let mut subject = number as u32;
    for turn in 0.. {
        if let Some(rate) = plan.rate {
            // Each has its turn: together they keep the rate.
            let due = (turn * plan.writers + number) as f64 / f64::from(rate);
            thread::sleep(Duration::from_secs_f64(due).saturating_sub(began.elapsed()));
        }
        if began.elapsed() >= plan.window {
            break;
        }
        let subjects: Vec<u32> = (0..plan.rows).map(|row| (subject + row) % plan.subjects).collect();
        subject += plan.rows;
        let sent = clock.now_ns();
        connection.run(&insert(&subjects, sent))?;
        written.latency.record(clock.now_ns() - sent);
        subjects.iter().for_each(|subject| written.rows[*subject as usize] += 1);
    }
    Ok(written)
}

fn insert(subjects: &[u32], sent_ns: u64) -> String {
    let mut stamp = STAMP.as_bytes().to_vec();
    put_stamp(&mut stamp[..STAMP_DIGITS], sent_ns);
    let stamp = String::from_utf8_lossy(&stamp);
    let row = |subject: &u32| {
        let event = FIRST_ROOM + subject;
        format!("('proposal.created.v1', '{{\"proposal_id\":7,\"sentNs\":{stamp}}}', '{event}')")
    };
    let rows: Vec<String> = subjects.iter().map(row).collect();
    format!("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES {}", rows.join(", "))
}

/// A connection of a program.
enum Client {
    File(rusqlite::Connection),
    Postgres(tokio::runtime::Runtime, sqlx::PgConnection),
    MariaDb(tokio::runtime::Runtime, sqlx::MySqlConnection),
}

impl Client {
    fn open(place: &Place) -> Result<Self> {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        match place {
            Place::File(file) => {
                let connection = rusqlite::Connection::open(file)?;
                connection.busy_timeout(PATIENCE)?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                Ok(Self::File(connection))
            }
            Place::Server(Flavour::Postgres, url) => {
                let runtime = runtime()?;
                let connection = runtime.block_on(sqlx::PgConnection::connect(url))?;
                Ok(Self::Postgres(runtime, connection))
            }
            Place::Server(Flavour::MariaDb, url) => {
                let runtime = runtime()?;
                let connection = runtime.block_on(sqlx::MySqlConnection::connect(url))?;
                Ok(Self::MariaDb(runtime, connection))
            }
        }
    }

    /// One statement, one transaction.
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
