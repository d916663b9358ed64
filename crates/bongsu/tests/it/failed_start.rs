//! A start that fails changes nothing: tables are created only after every check that may refuse the start.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Hub, tier};

use crate::BONGSU;

/// The names of the tables of a database.
async fn tables(flavour: Flavour, url: &str) -> String {
    let schema = if flavour == Flavour::MariaDb { "DATABASE()" } else { "current_schema()" };
    let names = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = {schema} ORDER BY table_name"
    );
    flavour.shared().await.execute(Server::database_name(url), &names)
}

/// Starts a hub that must be refused, on a data folder that does not exist and must not exist afterwards; returns the
/// log.
async fn refusal(hub: Builder) -> String {
    let parent = tempfile::tempdir().unwrap();
    let (status, log) = hub.data_dir(parent.path().join("bongsu/data")).start_expecting_failure().await;
    assert!(!status.success(), "{log}");
    let left: Vec<_> = std::fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "the start that failed left {left:?}: {log}");
    log
}

/// A hub without Redis, on every profile.
fn alone(url: &str) -> Builder {
    Hub::builder(BONGSU).without_env("REDIS_URL").env("DATABASE_URL", url)
}

async fn a_refused_start_leaves_the_database_as_it_was(flavour: Flavour) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    // Another hub uses the database.
    let url = flavour.database().await;
    let first = alone(&url).start().await;
    let before = tables(flavour, &url).await;
    let log = refusal(alone(&url).env("ROLES", "all")).await;
    assert!(log.contains("in use by another process"), "{log}");
    assert_eq!(tables(flavour, &url).await, before);
    drop(first);

    // The data folder cannot be made private.
    let url = flavour.database().await;
    let open = tempfile::tempdir().unwrap();
    std::fs::write(open.path().join("notes.txt"), "another program's").unwrap();
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
    let (_, log) = alone(&url).data_dir(open.path()).start_expecting_failure().await;
    assert!(log.contains("other users can write to it"), "{log}");
    assert_eq!(tables(flavour, &url).await, "");

    // Another program has a table of the same name.
    let url = flavour.database().await;
    let memberships = "CREATE TABLE memberships (person INTEGER, club INTEGER)";
    flavour.shared().await.execute(Server::database_name(&url), memberships);
    let log = refusal(alone(&url)).await;
    assert!(log.contains("memberships") && log.contains("OUTBOX"), "{log}");
    assert_eq!(tables(flavour, &url).await, "memberships");

    // The fleet uses another database.
    let (redis, other) = (Redis::start().await, flavour.database().await);
    let in_fleet = |url: &str| Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", url);
    let _fleet = in_fleet(&flavour.database().await).start().await;
    let log = refusal(in_fleet(&other)).await;
    assert!(log.contains("has records in a database"), "{log}");
    assert_eq!(tables(flavour, &other).await, "");
}

#[tokio::test]
async fn a_refused_start_leaves_postgres_as_it_was() {
    a_refused_start_leaves_the_database_as_it_was(Flavour::Postgres).await;
}

#[tokio::test]
async fn a_refused_start_leaves_mariadb_as_it_was() {
    a_refused_start_leaves_the_database_as_it_was(Flavour::MariaDb).await;
}

#[tokio::test]
async fn a_refused_start_leaves_no_data_folder_behind() {
    if !tier::needs_engine("redis") {
        return;
    }
    let embedded = || Hub::builder(BONGSU).without_env("REDIS_URL").without_env("DATABASE_URL");
    // Another process listens on the port.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let log = refusal(embedded().arg("--server-port").arg(port)).await;
    assert!(log.contains("cannot listen"), "{log}");
    // Another hub on the same Redis keeps its own records.
    let redis = Redis::start().await;
    let with_own_records = || embedded().env("REDIS_URL", redis.url());
    let _first = with_own_records().start().await;
    let log = refusal(with_own_records()).await;
    assert!(log.contains("keeps records in a file of its own"), "{log}");
    // The configured query is not valid on this database.
    let query = "SELECT 1 FROM nowhere WHERE a = :event_id AND b = :user_id";
    let log = refusal(embedded().env("OUTBOX_MEMBERSHIP_QUERY", query)).await;
    assert!(log.contains("OUTBOX_MEMBERSHIP_QUERY") && log.contains("nowhere"), "{log}");
}

#[tokio::test]
async fn a_refused_start_leaves_the_file_as_it_was() {
    let hub = Hub::builder(BONGSU).without_env("REDIS_URL").without_env("DATABASE_URL").env("OUTBOX", "off");
    let hub = hub.start().await;
    hub.kill9().await;
    let file = rusqlite::Connection::open(hub.data_dir().join("bongsu.db")).unwrap();
    file.execute_batch("CREATE TABLE memberships (person INTEGER, club INTEGER)").unwrap();
    let schema = || {
        let mut names = file.prepare("SELECT name FROM sqlite_schema ORDER BY name").unwrap();
        let names = names.query_map([], |row| row.get(0)).unwrap();
        names.collect::<Result<Vec<String>, _>>().unwrap()
    };
    let before = schema();
    let (status, log) = hub.restart_expecting_failure(&[("OUTBOX", "on"), ("ROLES", "all")]).await;
    assert!(!status.success(), "{log}");
    assert!(log.contains("status") || log.contains("event_id"), "the log must name a missing column: {log}");
    assert_eq!(schema(), before);
}
