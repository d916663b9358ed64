//! The application runs only in processes whose roles name it.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, tier};
use serde_json::json;

use super::Event;
use crate::BONGSU;
use crate::outbox::OutboxTest;

#[tokio::test]
async fn without_its_role_the_application_is_not_served() {
    let hub = Hub::builder(BONGSU).without_env("REDIS_URL").start().await;
    let api = Api::at(&hub.url(""));
    api.person(1).post("/events", json!({"title": "x"})).await.expect_error(404, "COMMON404");
    let document = api.get("/openapi.json").await.expect(200).body;
    assert!(document["paths"]["/events"].is_null());
    hub.restart_with(&[("ROLES", "hub,decisions")]).await;
    let document = api.get("/openapi.json").await.expect(200).body;
    assert!(document["paths"]["/events/{event_id}/proposals/{proposal_id}/votes"]["delete"].is_object());
}

/// Changes the roles of a hub: the tables are created when the application first runs, and stay afterwards.
async fn application_tables_exist_where_the_role_runs(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start_with(flavour, |builder| builder).await else { return };
    let tables = match flavour {
        None => {
            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE 'decision%'".to_owned()
        }
        Some(flavour) => {
            let schema = if flavour == Flavour::MariaDb { "DATABASE()" } else { "current_schema()" };
            format!(
                "SELECT count(*) FROM information_schema.tables \
                 WHERE table_schema = {schema} AND table_name LIKE 'decision%'"
            )
        }
    };
    assert_eq!(test.numbers(&tables).await, [0], "a hub without the application created its tables");
    test.hub.restart_with(&[("ROLES", "hub,decisions")]).await;
    assert_eq!(test.numbers(&tables).await, [4]);
    let event = Event::create(&test.hub, 50, &[2]).await;
    test.hub.restart().await;
    event.call("GET", 2, "").await.expect_error(404, "COMMON404");
    assert_eq!(test.numbers(&tables).await, [4], "the tables must stay");
    test.hub.restart_with(&[("ROLES", "all")]).await;
    event.call("GET", 2, "").await.expect(200);
}

#[tokio::test]
async fn application_tables_exist_where_the_role_runs_on_the_embedded_file() {
    application_tables_exist_where_the_role_runs(None).await;
}

#[tokio::test]
async fn application_tables_exist_where_the_role_runs_on_postgres() {
    application_tables_exist_where_the_role_runs(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn application_tables_exist_where_the_role_runs_on_mariadb() {
    application_tables_exist_where_the_role_runs(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn an_unknown_role_stops_the_start() {
    for (roles, named) in [("hub,chess", "chess"), ("decisions", "decisions"), ("Hub", "Hub")] {
        let hub = Hub::builder(BONGSU).without_env("REDIS_URL").arg("--roles").arg(roles);
        let (status, said) = hub.start_expecting_failure().await;
        let told = said.trim().lines().collect::<Vec<_>>();
        assert!(!status.success() && told.len() == 1, "{said}");
        assert!(told[0].contains(&format!("ROLES=\"{named}\"")) && told[0].contains("hub, all"), "{said}");
    }
}

#[tokio::test]
async fn without_records_the_application_answers_503() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("RECORDS", "off").env("ROLES", "all");
    let hub = hub.start().await;
    let api = Api::at(&hub.url("")).person(1).with_header("accept-language", "en");
    let body = json!({"title": "x", "status": "ACCEPTED", "proposal_type": "criteria", "content": "x"});
    for (method, path) in [
        ("POST", "/events"),
        ("GET", "/events/1"),
        ("PUT", "/events/1/members/2"),
        ("GET", "/events/1/proposals"),
        ("POST", "/events/1/proposals"),
        ("POST", "/events/1/proposals/1/votes"),
        ("DELETE", "/events/1/proposals/1/votes"),
        ("POST", "/events/1/proposals/1/approve"),
        ("POST", "/events/1/proposals/1/reject"),
        ("GET", "/events/1/criteria/1/comments"),
        ("POST", "/events/1/criteria/1/comments"),
    ] {
        let refused = api.call(method, path, body.to_string()).await.expect_error(503, "COMMON503");
        assert!(refused.message().contains("RECORDS is off"), "{method} {path}: {}", refused.message());
    }
}
