//! Every query of every part is understood by every database that has the schema of this version.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::process::Command;

use bongsu_sql::{Dialect, Query};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;

use crate::BONGSU;

/// A part that keeps records names its queries here.
fn queries() -> Vec<&'static Query> {
    let parts = [
        bongsu_coordination::orders::records::QUERIES,
        bongsu_rooms::store::sql::QUERIES,
        bongsu_inbox::store::QUERIES,
        bongsu_outbox::store::QUERIES,
        bongsu_decisions::store::QUERIES,
    ];
    bongsu_sql::queries().chain(parts.into_iter().flatten().copied()).collect()
}

/// Makes the tables as an operator does.
fn migrate(settings: &[(&str, &str)]) {
    let output =
        Command::new(BONGSU).arg("migrate").env_clear().envs(settings.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_embedded_file_understands_every_query() {
    let folder = tempfile::tempdir().unwrap();
    migrate(&[("DATA_DIR", folder.path().to_str().unwrap())]);
    let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
    for query in queries() {
        let prepared = file.prepare(&query.written(Dialect::Sqlite).text);
        assert!(prepared.is_ok(), "{}: {:?}", query.name(), prepared.err());
    }
}

async fn understood_by(flavour: Flavour, dialect: Dialect) {
    if !tier::needs_engine(flavour.name()) {
        return;
    }
    let (folder, url) = (tempfile::tempdir().unwrap(), flavour.database().await);
    let server = flavour.shared().await;
    migrate(&[("DATA_DIR", folder.path().to_str().unwrap()), ("DATABASE_URL", &url)]);
    for query in queries() {
        let text = &query.written(dialect).text;
        let prepare = match flavour {
            Flavour::Postgres => format!("PREPARE asked AS {text}"),
            Flavour::MariaDb => {
                format!("PREPARE asked FROM '{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
            }
        };
        let prepared = server.try_execute(Server::name_in(&url), &prepare);
        assert!(prepared.is_ok(), "{}: {:?}", query.name(), prepared.err());
    }
}

#[tokio::test]
async fn postgres_understands_every_query() {
    understood_by(Flavour::Postgres, Dialect::Postgres).await;
}

#[tokio::test]
async fn mariadb_understands_every_query() {
    understood_by(Flavour::MariaDb, Dialect::Mysql).await;
}
