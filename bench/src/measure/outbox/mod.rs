//! The outbox on each database: how soon and how fast rows that programs commit are told, what a database is asked for one
//! viewer and for many, and whether programs that commit are slowed down by the one that gives positions.
//!
//! `writers` are those programs, `report` is what came out.

mod report;
mod writers;

pub(crate) use report::OutboxReport;

use super::database::{Database, Kind};
use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::clock::Clock;
use crate::generator::{FIRST_ROOM, Follow, Generator, Load, Outcome, Pace};
use crate::stats::{Latency, rounded};
use report::{InsertReport, LiveReport, TailedReport, ViewersReport};
use std::time::Duration;
use writers::{Plan, Writers};

/// Events that are followed where rows come as fast as they can, and rows of one transaction there.
const EVENTS: u32 = 10;
const ROWS: u32 = 20;

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes, users: usize) -> Result<Vec<OutboxReport>> {
    Kind::ALL.into_iter().map(|kind| on(kind, hubs, sizes, users)).collect()
}

fn on(kind: Kind, hubs: &HubStarter, sizes: &Sizes, users: usize) -> Result<OutboxReport> {
    let database = Database::start(kind)?;
    // Makes the tables.
    drop(hubs.start_with(&database.settings())?);
    for event in 0..EVENTS {
        let member = |user| format!("('{}', '{user}', 'ACCEPTED')", FIRST_ROOM + event);
        let members: Vec<String> = (1..=users.max(1)).map(member).collect();
        let columns = "memberships (event_id, user_id, status)";
        database.execute(&format!("INSERT INTO {columns} VALUES {}", members.join(", ")))?;
    }
    let run = Run { name: kind.name(), database: &database, sizes };
    let alone = run.inserts()?;
    let hub = hubs.start_with(&database.settings())?;
    run.begin(&hub)?;
    let inserts = InsertReport { rate: sizes.commit_rate * 2, alone, beside: run.inserts()? };
    let live = run.live(&hub)?;
    let viewers = run.viewers(&hub)?;
    let tailed = run.tailed(&hub)?;
    Ok(OutboxReport { database: kind.name(), inserts, live, viewers, tailed })
}

struct Run<'a> {
    name: &'static str,
    database: &'a Database,
    sizes: &'a Sizes,
}

impl Run<'_> {
    /// Until somebody gives positions: the lease of the hub before, which was killed, has to end first.
    fn begin(&self, hub: &Server) -> Result<()> {
        progress(&format!("outbox: {}, until the first row is told", self.name));
        let mut generator = self.viewed(hub, 1, 1)?;
        let plan = Plan { window: self.sizes.warm_up, rate: Some(1), ..self.plan(1, 1) };
        self.told(&mut generator, plan).map(drop)
    }

    /// How long it takes a program to commit a row.
    fn inserts(&self) -> Result<Latency> {
        progress(&format!("outbox: {}, programs commit", self.name));
        let plan = Plan { rate: Some(self.sizes.commit_rate * 2), ..self.plan(1, 1) };
        let mut writers = Writers::start(&self.database.place(), plan, Clock::start());
        Ok(writers.join()?.latency.summary())
    }

    /// From before a commit, so a little more than from after it, to each viewer.
    fn live(&self, hub: &Server) -> Result<LiveReport> {
        let (viewers, rate) = (self.sizes.viewers[1], self.sizes.commit_rate);
        progress(&format!("outbox: {}, {viewers} viewers, {rate} commits a second", self.name));
        let mut generator = self.viewed(hub, viewers, 1)?;
        self.told(&mut generator, Plan { window: self.sizes.warm_up, rate: Some(rate), ..self.plan(1, 1) })?;
        let outcome = self.told(&mut generator, Plan { rate: Some(rate), ..self.plan(1, 1) })?;
        Ok(LiveReport { viewers, rate, outcome })
    }

    /// What the database is asked in a second, while rows are committed; nothing where no server counts it.
    fn viewers(&self, hub: &Server) -> Result<Vec<ViewersReport>> {
        let mut all = Vec::new();
        for viewers in self.sizes.viewers {
            progress(&format!("outbox: {}, work for {viewers} viewers", self.name));
            let mut generator = self.viewed(hub, viewers, 1)?;
            generator.stay_idle(self.sizes.counted_after)?;
            let Some(before) = self.database.work()? else { return Ok(all) };
            let window = self.sizes.inbox_idle;
            let plan = Plan { window, rate: Some(self.sizes.commit_rate), ..self.plan(1, 1) };
            let outcome = self.told(&mut generator, plan)?;
            generator.stay_idle(self.sizes.counted_after)?;
            let work = self.database.work()?.unwrap_or(before).saturating_sub(before);
            let time = window + self.sizes.counted_after;
            let per_second = rounded(work as f64 / time.as_secs_f64(), 1);
            all.push(ViewersReport {
                viewers,
                unit: self.database.unit(),
                per_second,
                missing: outcome.missing,
            });
        }
        Ok(all)
    }

    /// As fast as programs can, to one viewer of each event.
    fn tailed(&self, hub: &Server) -> Result<TailedReport> {
        progress(&format!("outbox: {}, rows as fast as they come", self.name));
        let mut generator = self.viewed(hub, EVENTS as usize, EVENTS)?;
        let outcome = self.told(&mut generator, self.plan(ROWS, EVENTS))?;
        Ok(TailedReport { rows: ROWS, writers: self.sizes.writers, outcome })
    }

    fn viewed(&self, hub: &Server, viewers: usize, events: u32) -> Result<Generator> {
        let mut generator = Generator::new(hub.target())?;
        generator.open_streams(viewers, Follow::Events(events))?;
        generator.stay_idle(self.sizes.settle)?;
        Ok(generator)
    }

    fn told(&self, generator: &mut Generator, plan: Plan) -> Result<Outcome> {
        let load = Load {
            pace: Pace::AsAnswered,
            window: plan.window,
            subjects: plan.subjects,
            drain: self.sizes.drain,
        };
        let mut writers = Writers::start(&self.database.place(), plan, generator.clock());
        generator.listen(&load, || writers.written())
    }

    fn plan(&self, rows: u32, subjects: u32) -> Plan {
        Plan { writers: self.sizes.writers, rows, rate: None, window: self.window(), subjects }
    }

    fn window(&self) -> Duration {
        self.sizes.inbox_window
    }
}
