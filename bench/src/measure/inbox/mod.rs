//! The inbox on each database that can keep it: telling people, looking into inboxes that are full, hearing of what was
//! saved, and what streams cost on which nothing happens.
//!
//! `idle` is the measurement that needs a hub of its own, `report` what came out.

mod idle;
mod report;

pub(crate) use report::InboxReport;

use super::database::{Database, Kind};
use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{FIRST_PERSON, Follow, Generator, Load, Outcome, Pace, Request};
use crate::stats::rounded;
use bongsu_testkit::tokens;
use report::{LiveReport, NotifyReport, ReadingReport};
use std::rc::Rc;
use std::time::Instant;

/// More than are ever outstanding at the paces used: a request does not wait for a free one.
const PACED_CALLERS: usize = 64;
const MOST_TARGETS: u32 = 1_000;
/// How many are told at once, and by how many callers at the same time.
const NOTIFY: [(u32, usize); 2] = [(1, 16), (MOST_TARGETS, 4)];

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<Vec<InboxReport>> {
    Kind::ALL.into_iter().map(|kind| on(kind, hubs, sizes)).collect()
}

fn on(kind: Kind, hubs: &HubStarter, sizes: &Sizes) -> Result<InboxReport> {
    let people = u32::try_from(sizes.subscribers)?;
    let tokens: Rc<[String]> = (0..people).map(|number| tokens::token(FIRST_PERSON + number)).collect();
    let database = Database::start(kind)?;
    let run = Run { name: kind.name(), people, sizes };
    let hub = hubs.start_for(Rc::clone(&tokens), &database.settings())?;
    let mut rows = 0;
    let mut notify = Vec::new();
    for (targets, callers) in NOTIFY {
        notify.push(run.notify(&hub, targets, callers, &mut rows)?);
    }
    run.fill(&hub, &mut rows)?;
    let reading = run.reading(&hub, rows)?;
    let live = run.live(&hub)?;
    drop(hub);
    // A hub of its own: memory that was used and given back would hide what streams take.
    let hub = hubs.start_for(tokens, &database.settings())?;
    let idle = idle::measure(&database, &hub, sizes)?;
    Ok(InboxReport { database: kind.name(), notify, reading, live, idle })
}

struct Run<'a> {
    name: &'static str,
    people: u32,
    sizes: &'a Sizes,
}

impl Run<'_> {
    fn notify(&self, hub: &Server, targets: u32, callers: usize, rows: &mut u64) -> Result<NotifyReport> {
        progress(&format!("inbox: {}, {callers} callers tell {targets} each", self.name));
        let mut generator = Generator::new(hub.target())?;
        generator.open_callers(callers, Request::Notify { targets })?;
        let mut load = self.load(Pace::AsAnswered, self.groups(targets));
        let warm_up = generator.run(&load)?;
        load.window = self.sizes.inbox_window;
        let told = generator.run(&load)?;
        *rows += (warm_up.published + told.published) * u64::from(targets);
        Ok(NotifyReport {
            targets,
            callers,
            per_second: told.published_per_second,
            entries_per_second: rounded(told.published_per_second * f64::from(targets), 0),
            latency: told.publish_latency,
            refused: warm_up.refused + told.refused,
        })
    }

    /// Through the front door: what is read afterwards was written by the hub. A slow machine stops earlier, and the
    /// report says how many rows there were.
    fn fill(&self, hub: &Server, rows: &mut u64) -> Result<()> {
        let (targets, callers) = NOTIFY[NOTIFY.len() - 1];
        progress(&format!("inbox: {}, on to {} rows", self.name, self.sizes.inbox_rows));
        let mut generator = Generator::new(hub.target())?;
        generator.open_callers(callers, Request::Notify { targets })?;
        let load = self.load(Pace::AsAnswered, self.groups(targets));
        let begun = Instant::now();
        while *rows < self.sizes.inbox_rows && begun.elapsed() < self.sizes.fill_limit {
            *rows += generator.run(&load)?.published * u64::from(targets);
        }
        Ok(())
    }

    fn reading(&self, hub: &Server, rows: u64) -> Result<ReadingReport> {
        let (people, rate) = (self.people, self.sizes.reading_rate);
        let look = |path: &'static str| {
            progress(&format!("inbox: {}, {rate} x GET {path} a second, {rows} rows", self.name));
            let mut generator = Generator::new(hub.target())?;
            generator.open_callers(PACED_CALLERS, Request::Get(path))?;
            self.warm_and_run(&mut generator, rate, people)
        };
        let unread = look("/api/v1/notifications/unread")?;
        let list = look("/api/notifications?limit=20")?;
        Ok(ReadingReport {
            rows,
            people,
            rate,
            unread: unread.publish_latency,
            list: list.publish_latency,
            refused: unread.refused + list.refused,
        })
    }

    /// From the sending of a notice, so a little more than from its being saved, to its frame at the person it is for.
    fn live(&self, hub: &Server) -> Result<LiveReport> {
        let people = self.sizes.live_people.min(self.people);
        let rate = self.sizes.live_rate;
        progress(&format!("inbox: {}, {people} streams, {rate} notices a second", self.name));
        let mut generator = Generator::new(hub.target())?;
        generator.open_streams(people as usize, Follow::People)?;
        generator.stay_idle(self.sizes.settle)?;
        generator.open_callers(PACED_CALLERS, Request::Notify { targets: 1 })?;
        let outcome = self.warm_and_run(&mut generator, rate, people)?;
        Ok(LiveReport { people, rate, outcome })
    }

    fn warm_and_run(&self, generator: &mut Generator, rate: u32, subjects: u32) -> Result<Outcome> {
        let mut load = self.load(Pace::PerSecond(rate), subjects);
        generator.run(&load)?;
        load.window = self.sizes.inbox_window;
        generator.run(&load)
    }

    fn load(&self, pace: Pace, subjects: u32) -> Load {
        Load { pace, window: self.sizes.warm_up, subjects, drain: self.sizes.drain }
    }

    /// Everybody, by so many at once.
    fn groups(&self, targets: u32) -> u32 {
        (self.people / targets).max(1)
    }
}
