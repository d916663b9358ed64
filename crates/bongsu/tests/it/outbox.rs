//! The outbox: rows that programs commit are sent to the members of their target, once and in one order, on every
//! database.
//!
//! Every test uses its own database, and writes to it by SQL as any program would.

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

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A hub on its own database; on the profile `split` with Redis and a worker process as well.
pub(crate) struct OutboxTest {
    pub(crate) hub: Hub,
    database: Option<(Flavour, String)>,
}

impl OutboxTest {
    async fn start(flavour: Option<Flavour>) -> Option<Self> {
        Self::start_with(flavour, |builder| builder).await
    }

    /// None where the database engine is not available.
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

    /// Runs SQL as another program does.
    pub(crate) async fn sql(&self, sql: &str) {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.hub.data_dir().join("bongsu.db")).unwrap();
                file.busy_timeout(WAIT_TIMEOUT).unwrap();
                file.execute_batch(sql).unwrap();
            }
            Some((flavour, url)) => drop(flavour.shared().await.execute(Server::database_name(url), sql)),
        }
    }

    /// The first row of a query's result, whose columns are all numbers.
    pub(crate) async fn numbers(&self, sql: &str) -> Vec<i64> {
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.hub.data_dir().join("bongsu.db")).unwrap();
                file.busy_timeout(WAIT_TIMEOUT).unwrap();
                let columns = file.prepare(sql).unwrap().column_count();
                file.query_row(sql, [], |row| (0..columns).map(|at| row.get(at)).collect()).unwrap()
            }
            Some((flavour, url)) => {
                let said = flavour.shared().await.execute(Server::database_name(url), sql);
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

    /// Inserts rows with these numbers in one transaction.
    async fn write(&self, event: &str, numbers: impl IntoIterator<Item = u64>) {
        self.sql(&rows(event, numbers)).await;
    }

    fn stream_request(&self, event: &str, person: u64) -> Request {
        stream_request(&self.hub, event, person)
    }
}

/// Whether `api` and `worker` are separate processes that share Redis and PostgreSQL.
fn is_split(flavour: Option<Flavour>) -> bool {
    engine() == Engine::Split && flavour == Some(Flavour::Postgres)
}

fn rows(event: &str, numbers: impl IntoIterator<Item = u64>) -> String {
    let row = |number| format!("('proposal.created.v1', '{{\"proposal_id\": {number}}}', '{event}')");
    let rows: Vec<String> = numbers.into_iter().map(row).collect();
    format!("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES {}", rows.join(", "))
}

pub(crate) fn stream_request(hub: &Hub, event: &str, person: u64) -> Request {
    Stream::request(hub, &format!("/events/{event}/stream")).person(person)
}

pub(crate) async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

/// The numbers of events, after checking that each has the same id in its frame and in its data.
fn numbers(events: &[Event]) -> Vec<u64> {
    let number = |event: &Event| {
        let data = event.json();
        assert_eq!((event.event.as_str(), event.own_id.clone()), ("message", Some(data["id"].to_string())));
        data["payload"]["proposal_id"].as_u64().unwrap()
    };
    events.iter().map(number).collect()
}

/// Declares one test for each contract function and database.
macro_rules! contract {
    ($($file:ident: $($test:ident)*;)*) => {
        contract!(embedded, None, $($file: $($test)*;)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($file: $($test)*;)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($file: $($test)*;)*);
    };
    ($name:ident, $flavour:expr, $($file:ident: $($test:ident)*;)*) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $test() {
                    super::$file::$test($flavour).await;
                }
            )*)*
        }
    };
}

contract! {
    stream: committed_rows_arrive_live_and_by_catch_up
        malformed_and_unknown_positions_are_reported
        more_rows_than_a_page_are_delivered_in_order
        a_withdrawal_closes_the_stream_at_its_position
        only_accepted_members_may_follow
        a_silent_stream_pings;
    source_stability: resuming_with_the_last_id_loses_and_repeats_no_row
        rows_with_equal_times_are_delivered_in_the_order_of_their_ids
        cleanup_keeps_the_retention_window_and_finished_rows_stay_readable
        a_withdrawn_member_receives_nothing_more_and_is_refused
        two_instances_deliver_the_same_rows
        an_idle_stream_sends_keepalives
        more_than_a_batch_arrives_in_order_and_a_slow_client_costs_little
        streams_continue_after_a_database_outage_and_clients_get_a_retry_delay;
    foreign: tables_of_another_program_are_not_changed
        tables_of_another_program_are_used_under_their_own_names;
    explain: explain_reports_the_state_of_a_row;
    relay: failing_rows_become_dead_letters_and_can_be_redriven
        a_row_with_an_id_past_2_to_the_53_is_named_by_text
        a_row_appended_before_a_crash_is_one_event_of_its_room;
}
