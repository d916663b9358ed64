//! The API checked against its own description: schemathesis generates valid and invalid requests from
//! `/openapi.json`, with valid credentials, and compares every answer with the description.
//!
//! The statuses that were really sent are read from the hub's own counters, not from the tool's output.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use bongsu_testkit::api::{ADMIN_KEY, INTERNAL_KEY};
use bongsu_testkit::{Api, Hub, proof, tier, tokens};
use serde_json::{Value, json};

use crate::BONGSU;

/// A fixed seed, so that a failure can be reproduced.
const SEED: u64 = 20_260_216;
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,ignored_auth";

/// The person who makes the requests; no example names this id.
const PERSON: u64 = 4_000_017;

/// A method and a path.
type Operation = (String, String);

#[tokio::test]
async fn every_answer_matches_the_openapi_document() {
    if !tier::needs_engine("schemathesis") {
        return;
    }
    // Short stream lifetimes, and no limit on the number of streams.
    let hub = Hub::builder(BONGSU)
        .env("SSE_LIFETIME_SECS", 1)
        .env("MEMBER_STREAM_LIFETIME_SECS", 1)
        .env("SSE_MAX_CONNECTIONS_PER_USER", 0)
        .env("ROLES", "all")
        .start()
        .await;
    let document = Api::new(&hub).anonymous().get("/openapi.json").await.expect(200).body;
    for n in 1..=20 {
        let told = json!({"eventId": format!("e{n}"), "type": "POST_LIKE", "targetIds": [PERSON]});
        Api::new(&hub).call("POST", "/api/v1/members/notify", told.to_string()).await.expect(202);
    }
    // The events, proposals and criteria that the examples name.
    let person = Api::new(&hub).person(PERSON);
    for n in 1..=42 {
        person.post("/events", json!({"title": format!("event {n}")})).await.expect(200);
    }
    for n in 1..=3 {
        let proposal = json!({"proposal_type": "criteria", "content": format!("criterion {n}")});
        person.post("/events/42/proposals", proposal).await.expect(200);
    }
    let described = described(&document);
    let examples = tier::size(12, 300);
    // Every stream takes a second, so streams are requested concurrently with the rest.
    let (streams, rest) = tokio::join!(
        run_schemathesis(&hub, examples, ["--include-path-regex", "/stream$"]),
        run_schemathesis(&hub, examples, ["--exclude-path-regex", "/stream$|^/api/admin/"]),
    );
    // Last, because these requests disconnect people, and the tool reuses the ids of earlier answers.
    let admin = run_schemathesis(&hub, examples, ["--include-path-regex", "^/api/admin/"]).await;
    let (passed, said) = (streams.0 && rest.0 && admin.0, [streams.1, rest.1, admin.1].concat());

    let answered = answered(&hub).await;
    let requests: u64 = answered.values().flat_map(BTreeMap::values).sum();
    let failed: Vec<_> =
        answered.iter().filter(|(_, by)| by.keys().any(|status| status.starts_with('5'))).collect();
    let undescribed: Vec<String> = answered
        .iter()
        .filter_map(|(operation, by)| Some((operation, described.get(operation)?, by)))
        .flat_map(|(operation, known, by)| {
            by.keys()
                .filter(|status| !known.contains(*status))
                .map(move |status| format!("{operation:?}: {status}"))
        })
        .collect();
    let succeeded = |operation: &Operation| {
        answered.get(operation).is_some_and(|by| by.keys().any(|status| status.starts_with('2')))
    };
    let (good, bad): (Vec<_>, Vec<_>) = described.keys().partition(|operation| succeeded(operation));
    let facts = json!({"seed": SEED, "examples": examples, "requests": requests, "operations": described.len(),
        "operationsAnswered2xx": good.len(), "serverErrors": failed.len(), "undescribed": undescribed.len()});

    assert!(
        !said.contains("Unresolvable references"),
        "the description has unresolvable references:\n{said}"
    );
    assert!(passed, "schemathesis found an answer that the description does not name:\n{said}");
    assert!(failed.is_empty(), "a request made the hub fail: {failed:?}\n{said}");
    assert!(undescribed.is_empty(), "{undescribed:?}");
    // Operations without input are requested a few times only.
    let least = with_input(&document) * examples;
    assert!(requests as usize >= least, "too few requests were sent: {facts}\n{said}");
    assert!(good.len() * 100 >= described.len() * 80, "operations never answered 2xx: {bad:?}\n{said}");
    proof::record("rooms", "every_answer_matches_the_openapi_document", facts);
}

/// Runs schemathesis: whether it found no fault, and its output.
async fn run_schemathesis(hub: &Hub, examples: usize, which: [&str; 2]) -> (bool, String) {
    let mut command = Command::new(tier::program("schemathesis"));
    command.args(["run", &hub.url("/openapi.json"), "--no-color", "--continue-on-failure", "--no-shrink"]);
    command.args(which);
    command.args(["--checks", CHECKS, "--seed", &SEED.to_string(), "--max-examples", &examples.to_string()]);
    // One worker: CPython up to 3.11 parses source on one thread at a time, and hypothesis parses its own source.
    command.args(["--workers", "1", "--request-timeout", "20", "--suppress-health-check", "all"]);
    // No examples are kept from one run to the next.
    command.args(["--generation-database", "none"]);
    command.args(["--header", &format!("Authorization: Bearer {}", tokens::token(PERSON))]);
    command.args(["--header", &format!("X-Internal-Key: {INTERNAL_KEY}")]);
    command.args(["--header", &format!("X-Admin-Key: {ADMIN_KEY}")]);
    let folder = tempfile::tempdir().unwrap();
    command.current_dir(folder.path());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.expect("schemathesis can be started");
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), said)
}

/// The statuses that each operation may answer with, by the description.
fn described(document: &Value) -> BTreeMap<Operation, BTreeSet<String>> {
    let mut described = BTreeMap::new();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for (verb, operation) in verbs.as_object().unwrap() {
            let statuses = operation["responses"].as_object().unwrap().keys().cloned().collect();
            described.insert((verb.to_uppercase(), path.clone()), statuses);
        }
    }
    described
}

/// How many operations take parameters or a body.
fn with_input(document: &Value) -> usize {
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|verbs| verbs.as_object().unwrap());
    operations.filter(|(_, it)| !it["parameters"].is_null() || !it["requestBody"].is_null()).count()
}

/// How often each operation was answered with each status, by the hub's counters.
async fn answered(hub: &Hub) -> BTreeMap<Operation, BTreeMap<String, u64>> {
    let mut answered: BTreeMap<Operation, BTreeMap<String, u64>> = BTreeMap::new();
    for sample in hub.metrics().await.samples() {
        if sample.name == "http_requests_total" {
            let label = |name: &str| sample.labels[name].clone();
            let operation = answered.entry((label("method"), label("path"))).or_default();
            operation.insert(label("status"), sample.value as u64);
        }
    }
    answered
}
