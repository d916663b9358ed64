//! Measures the outbox on each kind of database: latency and throughput from commit to viewer, the work of the database
//! for one and for many viewers, and whether the sequencer slows down the commits of applications.
//!
//! `writers` commits rows like applications, `report` has the figures.

mod report;
mod writers;

pub(crate) use report::OutboxReport;

use super::database::{Database, DatabaseKind};
use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::clock::Clock;
use crate::generator::{FIRST_ROOM, Generator, Load, Outcome, Pace, StreamKind};
use crate::stats::{Latency, rounded};
use report::{InsertReport, LiveReport, TailedReport, ViewersReport};
use std::time::Duration;
use writers::{WriterPlan, Writers};

/// Events with a viewer in the throughput measurement.
const EVENT_COUNT: u32 = 10;
/// Rows per transaction in the throughput measurement.
const ROWS_PER_TRANSACTION: u32 = 20;

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes, users: usize) -> Result<Vec<OutboxReport>> {
    DatabaseKind::ALL.into_iter().map(|kind| measure_on(kind, hubs, sizes, users)).collect()
}

fn measure_on(kind: DatabaseKind, hubs: &HubStarter, sizes: &Sizes, users: usize) -> Result<OutboxReport> {
    let database = Database::start(kind)?;
    // The hub creates the tables.
    drop(hubs.start_with(&database.settings())?);
    for event in 0..EVENT_COUNT {
        let member = |user| format!("('{}', '{user}', 'ACCEPTED')", FIRST_ROOM + event);
        let members: Vec<String> = (1..=users.max(1)).map(member).collect();
        let columns = "memberships (event_id, user_id, status)";
        database.execute(&format!("INSERT INTO {columns} VALUES {}", members.join(", ")))?;
    }
    let measurement = OutboxMeasurement { name: kind.name(), database: &database, sizes };
    let alone = measurement.measure_inserts()?;
    let hub = hubs.start_with(&database.settings())?;
    measurement.wait_for_sequencer(&hub)?;
    let inserts = InsertReport { rate: sizes.commit_rate * 2, alone, beside: measurement.measure_inserts()? };
    let live = measurement.measure_live(&hub)?;
    let viewers = measurement.measure_viewers(&hub)?;
    let tailed = measurement.measure_throughput(&hub)?;
    Ok(OutboxReport { database: kind.name(), inserts, live, viewers, tailed })
}

struct OutboxMeasurement<'a> {
    name: &'static str,
    database: &'a Database,
    sizes: &'a Sizes,
}

impl OutboxMeasurement<'_> {
    /// Waits until a row is delivered: the sequencer starts only when the lease of the previous hub, which was killed,
    /// has ended.
    fn wait_for_sequencer(&self, hub: &Server) -> Result<()> {
        progress(&format!("outbox: {}, waiting for the first delivered row", self.name));
        let mut generator = self.open_viewers(hub, 1, 1)?;
        let plan = WriterPlan { window: self.sizes.warm_up, rate: Some(1), ..self.plan(1, 1) };
        self.run_writers(&mut generator, plan).map(drop)
    }

    /// Measures the latency of a commit with one row.
    fn measure_inserts(&self) -> Result<Latency> {
        progress(&format!("outbox: {}, latency of commits", self.name));
        let plan = WriterPlan { rate: Some(self.sizes.commit_rate * 2), ..self.plan(1, 1) };
        let mut writers = Writers::start(&self.database.address(), plan, Clock::start());
        Ok(writers.join()?.latency.summary())
    }

    /// Measures the time from the start of a commit to the arrival of its row at each viewer.
    fn measure_live(&self, hub: &Server) -> Result<LiveReport> {
        let (viewers, rate) = (self.sizes.viewers[1], self.sizes.commit_rate);
        progress(&format!("outbox: {}, {viewers} viewers, {rate} commits per second", self.name));
        let mut generator = self.open_viewers(hub, viewers, 1)?;
        self.run_writers(
            &mut generator,
            WriterPlan { window: self.sizes.warm_up, rate: Some(rate), ..self.plan(1, 1) },
        )?;
        let outcome = self.run_writers(&mut generator, WriterPlan { rate: Some(rate), ..self.plan(1, 1) })?;
        Ok(LiveReport { viewers, rate, outcome })
    }

    /// Measures the work of the database per second while rows are committed. Empty for SQLite, which does not count
    /// it.
    fn measure_viewers(&self, hub: &Server) -> Result<Vec<ViewersReport>> {
        let mut rows = Vec::new();
        for viewers in self.sizes.viewers {
            progress(&format!("outbox: {}, database work for {viewers} viewers", self.name));
            let mut generator = self.open_viewers(hub, viewers, 1)?;
            generator.read_for(self.sizes.stats_delay)?;
            let Some(before) = self.database.processed_work()? else { return Ok(rows) };
            let window = self.sizes.idle_window;
            let plan = WriterPlan { window, rate: Some(self.sizes.commit_rate), ..self.plan(1, 1) };
            let outcome = self.run_writers(&mut generator, plan)?;
            generator.read_for(self.sizes.stats_delay)?;
            let work = self.database.processed_work()?.unwrap_or(before).saturating_sub(before);
            let time = window + self.sizes.stats_delay;
            let per_second = rounded(work as f64 / time.as_secs_f64(), 1);
            rows.push(ViewersReport {
                viewers,
                unit: self.database.work_unit(),
                per_second,
                missing: outcome.missing,
            });
        }
        Ok(rows)
    }

    /// Measures the throughput: writers commit without a pause, and each event has one viewer.
    fn measure_throughput(&self, hub: &Server) -> Result<TailedReport> {
        progress(&format!("outbox: {}, throughput", self.name));
        let mut generator = self.open_viewers(hub, EVENT_COUNT as usize, EVENT_COUNT)?;
        let outcome = self.run_writers(&mut generator, self.plan(ROWS_PER_TRANSACTION, EVENT_COUNT))?;
        Ok(TailedReport { rows: ROWS_PER_TRANSACTION, writers: self.sizes.writers, outcome })
    }

    fn open_viewers(&self, hub: &Server, viewers: usize, events: u32) -> Result<Generator> {
        let mut generator = Generator::new(hub.target())?;
        generator.open_streams(viewers, StreamKind::Events(events))?;
        generator.read_for(self.sizes.settle_time)?;
        Ok(generator)
    }

    fn run_writers(&self, generator: &mut Generator, plan: WriterPlan) -> Result<Outcome> {
        let load = Load {
            pace: Pace::ClosedLoop,
            window: plan.window,
            subjects: plan.subjects,
            drain: self.sizes.drain,
        };
        let mut writers = Writers::start(&self.database.address(), plan, generator.clock());
        generator.receive_rows(&load, || writers.try_join())
    }

    fn plan(&self, rows: u32, subjects: u32) -> WriterPlan {
        WriterPlan { writers: self.sizes.writers, rows, rate: None, window: self.window(), subjects }
    }

    fn window(&self) -> Duration {
        self.sizes.inbox_window
    }
}
