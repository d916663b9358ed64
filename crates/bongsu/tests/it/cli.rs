//! The command line: its output, its exit codes, and its errors, each of one line.

mod backup;
mod config;
mod explain;
mod tail;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bongsu_testkit::{Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The program with these arguments and only this environment, so that the developer's own environment has no
/// influence.
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

/// The standard output of a run, which must have succeeded.
#[track_caller]
fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// The single error line of a run, which must have ended with this exit code.
#[track_caller]
fn error_line(output: &Output, exit_code: i32) -> String {
    let (out, line) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(exit_code), "{out}{line}");
    assert_eq!((line.lines().count(), out.as_str()), (1, ""), "more than one line: {out}{line}");
    line
}

#[test]
fn migrate_prints_the_outbox_tables_with_the_configured_names() {
    // No server listens at this address: printing needs no connection.
    let database = ("DATABASE_URL", "postgres://someone@127.0.0.1:9/app");
    let names = [database, ("OUTBOX_TABLE", "app.events"), ("OUTBOX_MEMBERSHIP_TABLE", "members")];
    let statements = stdout_of(&run(&["migrate", "--print"], &names));
    for made in
        ["CREATE TABLE IF NOT EXISTS \"app\".\"events\"", "\"events_order\"", "AFTER DELETE ON \"members\""]
    {
        assert!(statements.contains(made), "{made} is missing: {statements}");
    }
    assert!(!statements.contains("outbox_events"), "{statements}");
    let bad = run(&["migrate", "--print"], &[database, ("OUTBOX_TABLE", "app events")]);
    assert!(error_line(&bad, 2).contains("OUTBOX_TABLE=\"app events\" is not allowed"));
}

#[test]
fn every_command_has_a_help_text() {
    let general = stdout_of(&run(&["--help"], &[]));
    for command in
        ["serve", "token", "publish", "tail", "config", "migrate", "dlq", "doctor", "backup", "explain"]
    {
        assert!(general.lines().any(|line| line.trim().starts_with(command)), "{command}: {general}");
        let help = stdout_of(&run(&[command, "--help"], &[]));
        assert!(help.contains(&format!("Usage: bongsu {command}")) && help.contains("--config"), "{help}");
    }
    let serve = stdout_of(&run(&["serve", "--help"], &[]));
    assert!(serve.contains("--server-port") && serve.contains("--jwt-secret"), "{serve}");
    for part in ["server", "rooms", "identity", "redis", "inbox", "outbox"] {
        assert!(serve.contains(&format!("Settings: {part}:")), "no heading for {part}: {serve}");
    }
    assert!(serve.contains("[default: 8083] [allowed: a whole number from 0 to 65535]"), "{serve}");
    let mistyped = text(&run(&["serve", "--server-prot", "1"], &[]).stderr);
    assert!(mistyped.contains("--server-port"), "no suggestion: {mistyped}");
    let mistyped = text(&run(&["serv"], &[]).stderr);
    assert!(mistyped.contains("'serve'"), "no suggestion: {mistyped}");
    assert!(stdout_of(&run(&["--version"], &[])).starts_with("bongsu "));
    for wrong in [&["serv"][..], &["serve", "--no-such-flag"], &["token"], &["publish", "--room", "a"]] {
        let output = run(wrong, &[]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[tokio::test]
async fn a_token_signed_by_the_command_line_is_accepted() {
    let secret = "a secret of this test that is long enough";
    let hub = Hub::builder(BONGSU).env("JWT_SECRET", secret).start().await;
    let api = Api::new(&hub);
    let path = "/api/v1/rooms/a/events?since=0-0";
    let environment = [("JWT_SECRET", secret)];
    let token = stdout_of(&run(&["token", "--user", "anna", "--role", "admin", "--ttl", "60"], &environment));
    assert_eq!(token.lines().count(), 1);
    api.bearer(token.trim()).get(path).await.expect(200);
    let by_flag = stdout_of(&run(&["token", "-u", "7", "--jwt-secret", secret], &[]));
    api.bearer(by_flag.trim()).get(path).await.expect(200);
    let other = stdout_of(&run(&["token", "--user", "7"], &[]));
    api.bearer(other.trim()).get(path).await.expect_error(401, "AUTH4001");
    for wrong in [
        &["--user", "a b"][..],
        &["--user", ""],
        &["--user", "7", "--ttl", "0"],
        &["--user", "7", "--ttl", "x"],
    ] {
        let arguments: Vec<&str> = ["token"].iter().chain(wrong).copied().collect();
        error_line(&run(&arguments, &environment), 2);
    }
    let elsewhere = error_line(&run(&["token", "--user", "7"], &[("JWKS_URL", "http://localhost/keys")]), 2);
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
    let told = stdout_of(&with(
        &["--url", &url, "--publisher", "1", "--key", "k", "--to", "2", "--to", "3"],
        &[key],
    ));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["duplicate"], told["streamId"].is_string()), (&json!(false), true));
    // Without `--url` the command uses the address at which this configuration would serve.
    let again =
        with(&["--publisher", "1", "--key", "k", "--to", "3", "--to", "2"], &[key, ("SERVER_PORT", &port)]);
    let again: Value = serde_json::from_str(&stdout_of(&again)).unwrap();
    assert_eq!((&again["duplicate"], &again["streamId"]), (&json!(true), &told["streamId"]));
    let page = Api::new(&hub).person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"].as_array().unwrap().len(), 1);
    assert_eq!(page.result()["events"][0]["data"], json!({"text": "안녕"}));
    assert_eq!(page.result()["events"][0]["publisherId"], 1);
    // Every failure is reported in one line.
    let refused = error_line(&with(&["--url", &url, "--key", ""], &[key]), 1);
    assert!(refused.contains("COMMON400") && refused.contains("idempotencyKey"), "{refused}");
    let wrong_key = error_line(&with(&["--url", &url], &[("INTERNAL_API_KEY", "third-key-secret")]), 1);
    assert!(wrong_key.contains("AUTH4001") && !wrong_key.contains("third-key-secret"), "{wrong_key}");
    error_line(&run(&["publish", "-r", "a", "-t", "a.b", "-d", "{", "--url", &url], &[key]), 2);
    hub.terminate().await;
    assert!(error_line(&with(&["--url", &url], &[key]), 1).contains("cannot be reached"));
}

#[test]
fn migrate_brings_a_folder_to_this_version() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let environment = [("DATA_DIR", data.to_str().unwrap()), ("RUST_LOG", "error")];
    for _ in 0..2 {
        let told = stdout_of(&run(&["migrate"], &environment));
        assert!(told.contains("up to date") && told.contains(data.to_str().unwrap()), "{told}");
    }
    assert!(data.join("bongsu.db").is_file());
    let nowhere = run(&["migrate"], &[("DATA_DIR", "/proc/no/such/folder")]);
    error_line(&nowhere, 3);
}

#[tokio::test]
async fn doctor_reports_what_works_and_what_does_not() {
    let hub = Hub::builder(BONGSU).start().await;
    let data = hub.data_dir().to_str().unwrap().to_owned();
    let running = stdout_of(&run(&["doctor", "--url", &hub.url("")], &[("DATA_DIR", &data)]));
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
    // With a secret other than the hub's, doctor cannot open the stream.
    let environment = [("DATA_DIR", data.as_str()), ("JWT_SECRET", "another")];
    let output = run(&["doctor", "--url", &hub.url("")], &environment);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("BAD ") && text(&output.stderr).lines().count() == 1);
    hub.terminate().await;
    let stopped = stdout_of(&run(&["doctor", "--url", &hub.url("")], &[("DATA_DIR", &data)]));
    assert!(stopped.contains("no hub answers") && stopped.contains("is intact"), "{stopped}");
}
