//! The command line: what it prints, how it exits, and that one line says what is wrong.

mod backup;
mod config;
mod explain;
mod tail;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bongsu_testkit::{Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

const SOON: Duration = Duration::from_secs(60);

/// The program with these arguments and this environment, and nothing of the developer's own.
fn bongsu(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(BONGSU);
    command.args(arguments).env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    command.current_dir(std::env::temp_dir());
    command
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    bongsu(arguments, environment).output().unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it printed, after making sure that it went well.
#[track_caller]
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// The one line that says what is wrong.
#[track_caller]
fn complaint(output: &Output, exit_code: i32) -> String {
    let (out, line) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(exit_code), "{out}{line}");
    assert_eq!((line.lines().count(), out.as_str()), (1, ""), "more than one line: {out}{line}");
    line
}

#[test]
fn the_tables_of_the_outbox_are_printed_under_the_names_of_the_settings() {
    // Nobody listens there: printing asks nobody.
    let database = ("DATABASE_URL", "postgres://someone@127.0.0.1:9/app");
    let names = [database, ("OUTBOX_TABLE", "app.events"), ("OUTBOX_MEMBERSHIP_TABLE", "members")];
    let statements = printed(&run(&["migrate", "--print"], &names));
    for made in
        ["CREATE TABLE IF NOT EXISTS \"app\".\"events\"", "\"events_order\"", "AFTER DELETE ON \"members\""]
    {
        assert!(statements.contains(made), "{made} is missing: {statements}");
    }
    assert!(!statements.contains("outbox_events"), "{statements}");
    let bad = run(&["migrate", "--print"], &[database, ("OUTBOX_TABLE", "app events")]);
    assert!(complaint(&bad, 2).contains("OUTBOX_TABLE=\"app events\" is not allowed"));
}

#[test]
fn every_command_explains_itself() {
    let general = printed(&run(&["--help"], &[]));
    for command in
        ["serve", "token", "publish", "tail", "config", "migrate", "dlq", "doctor", "backup", "explain"]
    {
        assert!(general.lines().any(|line| line.trim().starts_with(command)), "{command}: {general}");
        let help = printed(&run(&[command, "--help"], &[]));
        assert!(help.contains(&format!("Usage: bongsu {command}")) && help.contains("--config"), "{help}");
    }
    let serve = printed(&run(&["serve", "--help"], &[]));
    assert!(serve.contains("--server-port") && serve.contains("--jwt-secret"), "{serve}");
    assert!(printed(&run(&["--version"], &[])).starts_with("bongsu "));
    for wrong in [&["serv"][..], &["serve", "--no-such-flag"], &["token"], &["publish", "--room", "a"]] {
        let output = run(wrong, &[]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[tokio::test]
async fn a_token_of_the_command_line_is_taken_by_the_hub() {
    let secret = "a secret of this test that is long enough";
    let hub = Hub::builder(BONGSU).env("JWT_SECRET", secret).start().await;
    let api = Api::new(&hub);
    let path = "/api/v1/rooms/a/events?since=0-0";
    let environment = [("JWT_SECRET", secret)];
    let token = printed(&run(&["token", "--user", "anna", "--role", "admin", "--ttl", "60"], &environment));
    assert_eq!(token.lines().count(), 1);
    api.bearer(token.trim()).get(path).await.expect(200);
    let by_flag = printed(&run(&["token", "-u", "7", "--jwt-secret", secret], &[]));
    api.bearer(by_flag.trim()).get(path).await.expect(200);
    let other = printed(&run(&["token", "--user", "7"], &[]));
    api.bearer(other.trim()).get(path).await.expect_error(401, "AUTH4001");
    for wrong in [
        &["--user", "a b"][..],
        &["--user", ""],
        &["--user", "7", "--ttl", "0"],
        &["--user", "7", "--ttl", "x"],
    ] {
        let arguments: Vec<&str> = ["token"].iter().chain(wrong).copied().collect();
        complaint(&run(&arguments, &environment), 2);
    }
    let elsewhere = complaint(&run(&["token", "--user", "7"], &[("JWKS_URL", "http://localhost/keys")]), 2);
    assert!(elsewhere.contains("JWKS_URL"), "{elsewhere}");
}

#[tokio::test]
async fn an_event_is_published_from_the_command_line() {
    let hub = Hub::builder(BONGSU).env("INTERNAL_API_KEY", "first-key,second-key").start().await;
    let (url, port) = (hub.url(""), hub.port().to_string());
    let event = ["publish", "--room", "42", "--type", "comment.created", "--data", r#"{"text":"안녕"}"#];
    let with = |more: &[&str], environment: &[(&str, &str)]| {
        let arguments: Vec<&str> = event.iter().chain(more).copied().collect();
        run(&arguments, environment)
    };
    let key = ("INTERNAL_API_KEY", "second-key");
    let told =
        printed(&with(&["--url", &url, "--publisher", "1", "--key", "k", "--to", "2", "--to", "3"], &[key]));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["duplicate"], told["streamId"].is_string()), (&json!(false), true));
    // Without an address: where this configuration would serve.
    let again =
        with(&["--publisher", "1", "--key", "k", "--to", "3", "--to", "2"], &[key, ("SERVER_PORT", &port)]);
    let again: Value = serde_json::from_str(&printed(&again)).unwrap();
    assert_eq!((&again["duplicate"], &again["streamId"]), (&json!(true), &told["streamId"]));
    let page = Api::new(&hub).person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"].as_array().unwrap().len(), 1);
    assert_eq!(page.result()["events"][0]["data"], json!({"text": "안녕"}));
    assert_eq!(page.result()["events"][0]["publisherId"], 1);
    // What goes wrong is one line.
    let refused = complaint(&with(&["--url", &url, "--key", ""], &[key]), 1);
    assert!(refused.contains("COMMON400") && refused.contains("idempotencyKey"), "{refused}");
    let wrong_key = complaint(&with(&["--url", &url], &[("INTERNAL_API_KEY", "third-key-secret")]), 1);
    assert!(wrong_key.contains("AUTH4001") && !wrong_key.contains("third-key-secret"), "{wrong_key}");
    complaint(&run(&["publish", "-r", "a", "-t", "a.b", "-d", "{", "--url", &url], &[key]), 2);
    hub.terminate().await;
    assert!(complaint(&with(&["--url", &url], &[key]), 1).contains("cannot be reached"));
}

#[test]
fn migrate_brings_a_folder_to_this_version() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let environment = [("DATA_DIR", data.to_str().unwrap()), ("RUST_LOG", "error")];
    for _ in 0..2 {
        let told = printed(&run(&["migrate"], &environment));
        assert!(told.contains("up to date") && told.contains(data.to_str().unwrap()), "{told}");
    }
    assert!(data.join("bongsu.db").is_file());
    let nowhere = run(&["migrate"], &[("DATA_DIR", "/proc/no/such/folder")]);
    complaint(&nowhere, 3);
}

#[tokio::test]
async fn doctor_tells_what_is_well_and_what_is_not() {
    let hub = Hub::builder(BONGSU).start().await;
    let data = hub.data_dir().to_str().unwrap().to_owned();
    let running = printed(&run(&["doctor", "--url", &hub.url("")], &[("DATA_DIR", &data)]));
    for finding in [
        "open files",
        "development or short",
        "is healthy",
        "without being buffered",
        "WebSockets pass",
        "MiB are free",
    ] {
        assert!(running.contains(finding), "{finding}: {running}");
    }
    assert!(running.lines().all(|line| line.starts_with("ok ") || line.starts_with("note ")), "{running}");
    // Another secret than the hub's: the stream cannot be opened.
    let environment = [("DATA_DIR", data.as_str()), ("JWT_SECRET", "another")];
    let output = run(&["doctor", "--url", &hub.url("")], &environment);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("BAD ") && text(&output.stderr).lines().count() == 1);
    hub.terminate().await;
    let stopped = printed(&run(&["doctor", "--url", &hub.url("")], &[("DATA_DIR", &data)]));
    assert!(stopped.contains("no hub answers") && stopped.contains("is whole"), "{stopped}");
}
