//! Decisions: what people propose, vote and say is recorded with the event that tells of it, on every database.
//!
//! Every test brings its own database. What was recorded is looked at by SQL, as another program would.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod at_once;
mod crash;
mod lists;
mod refused;
mod roles;
mod source_basic;
mod told;

use std::time::Duration;

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Answer, Api, Hub};
use serde_json::{Value, json};

use crate::outbox::{self, follow, open};

const SOON: Duration = Duration::from_secs(60);
/// Who creates events.
const CREATOR: u64 = 1;
/// How much of everything is recorded.
const RECORDED: &str = "SELECT (SELECT count(*) FROM decision_events), \
    (SELECT count(*) FROM decision_proposals WHERE status = 'PENDING'), \
    (SELECT count(*) FROM decision_proposals WHERE status = 'APPROVED'), \
    (SELECT count(*) FROM decision_proposals WHERE status = 'REJECTED'), \
    (SELECT count(*) FROM decision_votes), (SELECT count(*) FROM decision_comments), \
    (SELECT count(*) FROM memberships WHERE status = 'PENDING'), \
    (SELECT count(*) FROM memberships WHERE status = 'ACCEPTED'), \
    (SELECT count(*) FROM memberships WHERE status = 'REJECTED'), (SELECT count(*) FROM outbox_events)";

/// A hub with the application, alone with its database; none where that cannot be had.
async fn start(flavour: Option<Flavour>) -> Option<outbox::Scene> {
    outbox::Scene::start_with(flavour, |builder| builder.env("ROLES", "hub,decisions")).await
}

/// An event at a hub.
struct Event {
    api: Api,
    id: u64,
}

impl Event {
    /// With these members beside its creator.
    async fn create(hub: &Hub, percent: u64, members: &[u64]) -> Self {
        let api = Api::at(&hub.url("")).anonymous().with_header("accept-language", "en");
        let body = json!({"title": "Where to go", "auto_approve_percent": percent});
        let created = as_person(&api, CREATOR).post("/events", body).await.expect(200);
        let event = Self { id: created.result()["event_id"].as_u64().unwrap(), api };
        for member in members {
            event.admit(*member, "ACCEPTED").await.expect(200);
        }
        event
    }

    async fn post(&self, person: u64, path: &str, body: Value) -> Answer {
        as_person(&self.api, person).post(&self.path(path), body).await
    }

    async fn call(&self, method: &str, person: u64, path: &str) -> Answer {
        as_person(&self.api, person).call(method, &self.path(path), "").await
    }

    async fn admit(&self, person: u64, status: &str) -> Answer {
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

    /// `approve` or `reject`.
    async fn decide(&self, person: u64, proposal: u64, word: &str) -> Answer {
        self.call("POST", person, &format!("/proposals/{proposal}/{word}")).await
    }

    async fn comment(&self, person: u64, criterion: u64) -> Answer {
        self.post(person, &format!("/criteria/{criterion}/comments"), json!({"content": "Three?"})).await
    }

    /// A proposal as somebody sees it.
    async fn look(&self, person: u64, proposal: u64) -> Value {
        let path = format!("/proposals?limit=1&cursor={}", proposal + 1);
        let page = self.call("GET", person, &path).await.expect(200);
        assert_eq!(page.result()["items"][0]["proposal_id"], proposal);
        page.result()["items"][0].clone()
    }

    /// Everything that was ever told.
    async fn follow(&self, hub: &Hub, person: u64) -> Stream {
        open(follow(hub, &self.id.to_string(), person).last_event_id("0")).await
    }

    fn path(&self, path: &str) -> String {
        format!("/events/{}{path}", self.id)
    }
}

fn as_person(api: &Api, person: u64) -> Api {
    api.person(person).with_header("accept-language", "en")
}

/// The next thing that a stream tells: its type and its payload.
async fn next(stream: &mut Stream) -> (String, Value) {
    let event = stream.take_events(1, SOON).await.remove(0);
    let data = event.json();
    assert_eq!(event.own_id, Some(data["id"].to_string()), "{data}");
    assert_eq!(data.as_object().unwrap().len(), 4, "{data}");
    (data["event_type"].as_str().unwrap().to_owned(), data["payload"].clone())
}

fn of_proposal(event_type: &str, proposal: u64, proposal_type: &str) -> (String, Value) {
    (event_type.to_owned(), json!({"proposal_id": proposal, "proposal_type": proposal_type}))
}

fn of_decision(event_type: &str, proposal: u64, proposal_type: &str, status: &str) -> (String, Value) {
    let payload = json!({"proposal_id": proposal, "proposal_type": proposal_type, "status": status});
    (event_type.to_owned(), payload)
}

/// One test for every promise, on every database.
macro_rules! contract {
    ($($file:ident: $($promise:ident)*;)*) => {
        contract!(embedded, None, $($($file $promise)*)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($($file $promise)*)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($($file $promise)*)*);
    };
    ($name:ident, $flavour:expr, $($file:ident $promise:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $promise() {
                    super::$file::$promise($flavour).await;
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
    told:
        every_change_is_told_once_with_the_smallest_payload
        what_is_repeated_changes_nothing_and_tells_nothing
        enough_votes_approve_and_what_is_decided_stays_decided
        a_membership_that_ends_ends_votes_and_streams;
    lists:
        an_event_is_shown_with_its_counts
        proposals_and_comments_come_in_pages
        text_is_kept_as_it_was_written
        ids_that_other_programs_use_are_passed_over;
    refused:
        only_accepted_members_take_part
        only_the_creator_decides_and_admits
        what_is_not_there_is_not_found
        bodies_and_pages_that_are_wrong_name_their_field;
    at_once:
        thirty_people_who_vote_at_once_approve_exactly_once
        a_proposal_is_decided_once_however_many_decide
        who_is_removed_meanwhile_votes_before_it_or_not_at_all;
    crash:
        a_hub_that_dies_between_a_change_and_its_event_keeps_neither;
}
