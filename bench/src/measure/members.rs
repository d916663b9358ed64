//! Measures durable publishes per second to a registered room with many members and to an open room, both without
//! readers: the ratio shows the cost of registered members. On Redis and PostgreSQL; rounds alternate, and the
//! medians are compared.

use super::database::{Database, DatabaseKind};
use super::progress;
use super::server::HubStarter;
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{FIRST_ROOM, Generator, Load, Pace, Request};
use crate::stats::{median, rounded};
use bongsu_testkit::sql::Flavour;
use serde::Serialize;

const PUBLISHERS: usize = 16;
const MEMBERS: u32 = 1_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MembersReport {
    pub(crate) members: u32,
    pub(crate) publishers: usize,
    /// Medians of the rounds.
    pub(crate) open_per_second: f64,
    pub(crate) registered_per_second: f64,
    /// `open_per_second` divided by `registered_per_second`.
    pub(crate) ratio: f64,
    pub(crate) refused: u64,
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<MembersReport> {
    progress(&format!(
        "members: {PUBLISHERS} publishers, a room with {MEMBERS} members and an open room in turn"
    ));
    let mut setups = Vec::new();
    // Hubs with different room modes cannot share engines.
    for mode in ["open", "registered"] {
        let database = Database::start(DatabaseKind::Server(Flavour::Postgres))?;
        let mut settings = database.settings();
        settings.push(("ROOMS_MODE", mode.to_owned()));
        let hub = hubs.start_with(&settings)?;
        if mode == "registered" {
            database.execute(&insert_members())?;
        }
        let mut generator = Generator::new(hub.target())?;
        generator.open_callers(PUBLISHERS, Request::PublishWithoutRecipients)?;
        setups.push((generator, Vec::new(), hub, database));
    }
    let load = |window| Load { pace: Pace::ClosedLoop, window, subjects: 1, drain: sizes.drain };
    let mut refused = 0;
    for (generator, ..) in &mut setups {
        refused += generator.run(&load(sizes.warm_up))?.refused;
    }
    for _ in 0..sizes.member_rounds {
        for (generator, rates, ..) in &mut setups {
            let outcome = generator.run(&load(sizes.member_window))?;
            refused += outcome.refused;
            rates.push(outcome.published_per_second);
        }
    }
    let medians: Vec<f64> = setups.iter().map(|(_, rates, ..)| median(rates)).collect();
    let (open_per_second, registered_per_second) = (medians[0], medians[1]);
    let ratio = rounded(open_per_second / registered_per_second.max(1.0), 3);
    let (members, publishers) = (MEMBERS, PUBLISHERS);
    Ok(MembersReport { members, publishers, open_per_second, registered_per_second, ratio, refused })
}

fn insert_members() -> String {
    format!(
        "INSERT INTO bongsu_rooms (room) VALUES ('{FIRST_ROOM}'); \
         INSERT INTO bongsu_members SELECT id, n::text FROM bongsu_rooms, generate_series(1, {MEMBERS}) n"
    )
}

impl MembersReport {
    pub(crate) fn print(&self) {
        println!(
            "members   {} publishers, open room {:.0}/s, registered room of {} members {:.0}/s",
            self.publishers, self.open_per_second, self.members, self.registered_per_second
        );
    }
}
