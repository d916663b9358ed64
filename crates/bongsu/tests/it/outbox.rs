//! The outbox: what programs commit is told to those who may hear of it, once and in one order, on every database.
//!
//! Every test brings its own database, and writes to it as any program would: by SQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod away;
mod cleaning;
mod examples;
mod explain;
mod fleet;
mod follower;
mod foreign;
mod gaps;
mod ledger;
mod losses;
mod naive;
mod relay;
mod restored;
mod slow;
mod source_stability;
mod stream;
mod trouble;
mod viewers;
mod withdrawal;
mod writers;

use std::time::Duration;

use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::sse::{Event, Request, Stream};
use bongsu_testkit::{Engine, Hub, engine, hub::Builder, tier};

use crate::BONGSU;

const SOON: Duration = Duration::from_secs(60);

/// A hub that is alone with its database; on `split` with Redis and its worker, too.
pub(crate) struct Scene {
    pub(crate) hub: Hub,
    database: Option<(Flavour, String)>,
}

impl Scene {
    async fn start(flavour: Option<Flavour>) -> Option<Self> {
        Self::start_with(flavour, |builder| builder).await
    }

    /// None where the database cannot be had.
    pub(crate) async fn start_with(
        flavour: Option<Flavour>,
        with: impl FnOnce(Builder) -> Builder,
    ) -> Option<Self> {
        let mut builder = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0);
        if !is_split(flavour) {
            builder = builder.without_env("REDIS_URL");
        }
        let mut database = None;
        if let Some(flavour) = flavour {
            if !tier::needs_engine(flavour.name()) {
                return None;
            }
            let url = flavour.database().await;
            builder = builder.env("DATABASE_URL", &url);
            database = Some((flavour, url));
        }
        Some(Self { hub: with(builder).start().await, database })
    }

    /// As another program does it.
    pub(crate) async fn sql(&self, sql: &str) {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.hub.data_dir().join("bongsu.db")).unwrap();
                file.busy_timeout(SOON).unwrap();
                file.execute_batch(sql).unwrap();
            }
            Some((flavour, url)) => drop(flavour.shared().await.execute(Server::name_in(url), sql)),
        }
    }

    /// The first row of an answer, all numbers.
    pub(crate) async fn numbers(&self, sql: &str) -> Vec<i64> {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.hub.data_dir().join("bongsu.db")).unwrap();
                file.busy_timeout(SOON).unwrap();
                let columns = file.prepare(sql).unwrap().column_count();
                file.query_row(sql, [], |row| (0..columns).map(|at| row.get(at)).collect()).unwrap()
            }
            Some((flavour, url)) => {
                let said = flavour.shared().await.execute(Server::name_in(url), sql);
                said.split('\t').map(|number| number.parse().unwrap()).collect()
            }
        }
    }

    async fn accept(&self, event: &str, people: &[u64]) {
        let rows: Vec<String> =
            people.iter().map(|person| format!("('{event}', '{person}', 'ACCEPTED')")).collect();
        self.sql(&format!("INSERT INTO memberships (event_id, user_id, status) VALUES {}", rows.join(", ")))
            .await;
    }

    /// Rows with these numbers, in one transaction.
    async fn write(&self, event: &str, numbers: impl IntoIterator<Item = u64>) {
        self.sql(&rows(event, numbers)).await;
    }

    fn follow(&self, event: &str, person: u64) -> Request {
        follow(&self.hub, event, person)
    }
}

/// Whether `api` and `worker` are processes of their own, which share Redis and PostgreSQL.
fn is_split(flavour: Option<Flavour>) -> bool {
    engine() == Engine::Split && flavour == Some(Flavour::Postgres)
}

fn rows(event: &str, numbers: impl IntoIterator<Item = u64>) -> String {
    let row = |number| format!("('proposal.created.v1', '{{\"proposal_id\": {number}}}', '{event}')");
    let rows: Vec<String> = numbers.into_iter().map(row).collect();
    format!("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES {}", rows.join(", "))
}

pub(crate) fn follow(hub: &Hub, event: &str, person: u64) -> Request {
    Stream::request(hub, &format!("/events/{event}/stream")).person(person)
}

pub(crate) async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

/// The numbers of events, each of which has its id in both places.
fn numbers(events: &[Event]) -> Vec<u64> {
    let number = |event: &Event| {
        let data = event.json();
        assert_eq!((event.event.as_str(), event.own_id.clone()), ("message", Some(data["id"].to_string())));
        data["payload"]["proposal_id"].as_u64().unwrap()
    };
    events.iter().map(number).collect()
}

/// One test for every promise, on every database.
macro_rules! contract {
    ($($file:ident: $($promise:ident)*;)*) => {
        contract!(embedded, None, $($file: $($promise)*;)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($file: $($promise)*;)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($file: $($promise)*;)*);
    };
    ($name:ident, $flavour:expr, $($file:ident: $($promise:ident)*;)*) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $promise() {
                    super::$file::$promise($flavour).await;
                }
            )*)*
        }
    };
}

contract! {
    stream: what_is_committed_arrives_live_and_after_coming_back
        positions_that_are_wrong_or_unknown_are_told
        more_than_a_page_is_told_in_order
        a_withdrawal_ends_the_stream_in_its_place
        only_accepted_members_may_follow
        a_silent_stream_pings;
    source_stability: coming_back_with_the_last_id_loses_and_repeats_nothing
        rows_of_one_instant_are_all_told_in_the_order_of_their_ids
        clean_up_keeps_the_window_and_what_is_done_can_be_read
        a_membership_that_is_withdrawn_hears_nothing_more_and_is_refused
        two_instances_tell_the_same
        a_silent_stream_says_every_so_often_that_it_is_alive
        more_than_a_batch_arrives_in_order_and_a_slow_client_costs_little
        a_database_that_goes_away_is_waited_for_and_clients_know_when_to_return;
    foreign: another_programs_tables_are_left_alone
        another_programs_tables_are_used_under_their_own_names;
    explain: what_became_of_a_row_is_explained;
    relay: what_cannot_go_on_is_given_up_seen_and_tried_again
        a_row_with_an_id_past_2_to_the_53_is_named_by_text
        a_row_appended_before_a_crash_is_one_event_of_its_room;
}
