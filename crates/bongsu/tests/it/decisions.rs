//! The decisions application: proposals, votes and comments are recorded together with their outbox rows, on every
//! database.
//!
//! Every test uses its own database, and reads the recorded rows by SQL, as another program would.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod changes;
mod concurrency;
mod crash;
mod lists;
mod refused;
mod roles;
mod source_basic;

use std::time::Duration;

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Answer, Api, Hub};
use serde_json::{Value, json};

use crate::outbox::{self, open, stream_request};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The person who creates events.
const CREATOR: u64 = 1;
/// Counts the rows of every table, grouped by status.
const RECORDED_COUNTS: &str = "SELECT (SELECT count(*) FROM decision_events), \
    (SELECT count(*) FROM decision_proposals WHERE status = 'PENDING'), \
    (SELECT count(*) FROM decision_proposals WHERE status = 'APPROVED'), \
    (SELECT count(*) FROM decision_proposals WHERE status = 'REJECTED'), \
    (SELECT count(*) FROM decision_votes), (SELECT count(*) FROM decision_comments), \
    (SELECT count(*) FROM memberships WHERE status = 'PENDING'), \
    (SELECT count(*) FROM memberships WHERE status = 'ACCEPTED'), \
    (SELECT count(*) FROM memberships WHERE status = 'REJECTED'), (SELECT count(*) FROM outbox_events)";

/// A hub that runs the application on its own database; None where the database engine is not available.
async fn start(flavour: Option<Flavour>) -> Option<outbox::OutboxTest> {
    outbox::OutboxTest::start_with(flavour, |builder| builder.env("ROLES", "hub,decisions")).await
}

/// An event of the application, and the hub that serves it.
struct Event {
    api: Api,
    id: u64,
}

impl Event {
    /// Creates an event with these accepted members besides its creator.
    async fn create(hub: &Hub, percent: u64, members: &[u64]) -> Self {
        let api = Api::at(&hub.url("")).anonymous().with_header("accept-language", "en");
        let body = json!({"title": "Where to go", "auto_approve_percent": percent});
        let created = as_person(&api, CREATOR).post("/events", body).await.expect(200);
        let event = Self { id: created.result()["event_id"].as_u64().unwrap(), api };
        for member in members {
            event.set_member_status(*member, "ACCEPTED").await.expect(200);
        }
        event
    }

    async fn post(&self, person: u64, path: &str, body: Value) -> Answer {
        as_person(&self.api, person).post(&self.path(path), body).await
    }

    async fn call(&self, method: &str, person: u64, path: &str) -> Answer {
        as_person(&self.api, person).call(method, &self.path(path), "").await
    }

    async fn set_member_status(&self, person: u64, status: &str) -> Answer {
        let body = json!({"status": status}).to_string();
        let path = self.path(&format!("/members/{person}"));
        as_person(&self.api, CREATOR).call("PUT", &path, body).await
    }

    async fn propose(&self, person: u64, proposal_type: &str) -> u64 {
        let body = json!({"proposal_type": proposal_type, "content": "Two hours at most"});
        let proposed = self.post(person, "/proposals", body).await.expect(200);
        proposed.result()["proposal_id"].as_u64().unwrap()
    }

    async fn vote(&self, person: u64, proposal: u64) -> Answer {
        self.call("POST", person, &format!("/proposals/{proposal}/votes")).await
    }

    async fn withdraw(&self, person: u64, proposal: u64) -> Answer {
        self.call("DELETE", person, &format!("/proposals/{proposal}/votes")).await
    }

    /// `word` is `approve` or `reject`.
    async fn decide(&self, person: u64, proposal: u64, word: &str) -> Answer {
        self.call("POST", person, &format!("/proposals/{proposal}/{word}")).await
    }

    async fn comment(&self, person: u64, criterion: u64) -> Answer {
        self.post(person, &format!("/criteria/{criterion}/comments"), json!({"content": "Three?"})).await
    }

    /// The proposal as this person sees it in the list.
    async fn get_proposal(&self, person: u64, proposal: u64) -> Value {
        let path = format!("/proposals?limit=1&cursor={}", proposal + 1);
        let page = self.call("GET", person, &path).await.expect(200);
        assert_eq!(page.result()["items"][0]["proposal_id"], proposal);
        page.result()["items"][0].clone()
    }

    /// A stream of the event from its first row.
    async fn stream_from_start(&self, hub: &Hub, person: u64) -> Stream {
        open(stream_request(hub, &self.id.to_string(), person).last_event_id("0")).await
    }

    fn path(&self, path: &str) -> String {
        format!("/events/{}{path}", self.id)
    }
}

fn as_person(api: &Api, person: u64) -> Api {
    api.person(person).with_header("accept-language", "en")
}

/// The type and payload of the next event of a stream.
async fn next(stream: &mut Stream) -> (String, Value) {
    let event = stream.take_events(1, WAIT_TIMEOUT).await.remove(0);
    let data = event.json();
    assert_eq!(event.own_id, Some(data["id"].to_string()), "{data}");
    assert_eq!(data.as_object().unwrap().len(), 4, "{data}");
    (data["event_type"].as_str().unwrap().to_owned(), data["payload"].clone())
}

fn proposal_event(event_type: &str, proposal: u64, proposal_type: &str) -> (String, Value) {
    (event_type.to_owned(), json!({"proposal_id": proposal, "proposal_type": proposal_type}))
}

fn decision_event(event_type: &str, proposal: u64, proposal_type: &str, status: &str) -> (String, Value) {
    let payload = json!({"proposal_id": proposal, "proposal_type": proposal_type, "status": status});
    (event_type.to_owned(), payload)
}

/// Declares one test for each contract function and database.
macro_rules! contract {
    ($($file:ident: $($test:ident)*;)*) => {
        contract!(embedded, None, $($($file $test)*)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($($file $test)*)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($($file $test)*)*);
    };
    ($name:ident, $flavour:expr, $($file:ident $test:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$file::$test($flavour).await;
                }
            )*
        }
    };
}

contract! {
    source_basic:
        source_1_a_stream_connects_and_works
        source_2_a_new_proposal_is_recorded_in_the_outbox_and_streamed
        source_3_votes_added_and_removed_are_recorded_in_the_outbox_and_streamed
        source_4_an_approved_proposal_is_recorded_in_the_outbox_and_streamed
        source_5_a_new_comment_is_recorded_in_the_outbox_and_streamed;
    changes:
        every_change_records_one_event_with_a_minimal_payload
        repeated_requests_change_nothing_and_record_no_event
        enough_votes_approve_a_proposal_and_decisions_are_final
        an_ended_membership_removes_the_vote_and_closes_the_stream;
    lists:
        an_event_is_shown_with_its_counts
        proposals_and_comments_come_in_pages
        text_is_stored_unchanged
        event_ids_of_other_programs_are_skipped;
    refused:
        only_accepted_members_take_part
        only_the_creator_decides_proposals_and_sets_memberships
        unknown_events_and_proposals_are_not_found
        bodies_and_pages_that_are_wrong_name_their_field;
    concurrency:
        thirty_people_who_vote_at_once_approve_exactly_once
        a_proposal_is_decided_once_however_many_decide
        a_concurrently_removed_member_votes_before_the_removal_or_not_at_all;
    crash:
        a_hub_that_dies_between_a_change_and_its_event_keeps_neither;
}
