//! Every query of every part is valid on every database with the schema of this version.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::process::Command;

use bongsu_kernel::settings::{Input, load};
use bongsu_outbox::TableNames;
use bongsu_sql::{Dialect, Names};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;

use crate::BONGSU;

/// Names of tables and columns that must be quoted in SQL.
const QUOTED_NAMES: [(&str, &str); 3] = [
    ("OUTBOX_TABLE", "Order"),
    ("OUTBOX_MEMBERSHIP_TABLE", "group"),
    ("OUTBOX_MEMBERSHIP_COLUMNS", "event,user,select"),
];
const DEFAULT_NAMES: [(&str, &str); 0] = [];

/// Creates the tables as an operator does, and returns their names.
fn migrate(dialect: Dialect, settings: &[(&'static str, &str)]) -> Names {
    let mut command = Command::new(BONGSU);
    command.arg("migrate").env_clear().env("ROLES", "all").envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let environment =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let values = load(bongsu_outbox::SETTINGS, &Input { environment, ..Input::default() }).unwrap();
    TableNames::from_settings(&values, dialect).unwrap().on(dialect)
}

#[test]
fn the_embedded_file_understands_every_query() {
    for names in [&DEFAULT_NAMES[..], &QUOTED_NAMES] {
        let folder = tempfile::tempdir().unwrap();
        let names =
            migrate(Dialect::Sqlite, &[&[("DATA_DIR", folder.path().to_str().unwrap())], names].concat());
        let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
        for query in bongsu::PARTS.queries() {
            let prepared = file.prepare(&query.render(Dialect::Sqlite, &names).text);
            assert!(prepared.is_ok(), "{}: {:?}", query.name(), prepared.err());
        }
    }
}

async fn expect_prepared(flavour: Flavour, dialect: Dialect) {
    if !tier::needs_engine(flavour.name()) {
        return;
    }
    for names in [&DEFAULT_NAMES[..], &QUOTED_NAMES] {
        let (folder, url) = (tempfile::tempdir().unwrap(), flavour.database().await);
        let server = flavour.shared().await;
        let places = [("DATA_DIR", folder.path().to_str().unwrap()), ("DATABASE_URL", url.as_str())];
        let names = migrate(dialect, &[&places, names].concat());
        for query in bongsu::PARTS.queries() {
            let text = &query.render(dialect, &names).text;
            let prepare = match flavour {
                Flavour::Postgres => format!("PREPARE asked AS {text}"),
                Flavour::MariaDb => {
                    format!("PREPARE asked FROM '{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
                }
            };
            let prepared = server.try_execute(Server::database_name(&url), &prepare);
            assert!(prepared.is_ok(), "{}: {:?}", query.name(), prepared.err());
        }
    }
}

#[tokio::test]
async fn postgres_understands_every_query() {
    expect_prepared(Flavour::Postgres, Dialect::Postgres).await;
}

#[tokio::test]
async fn mariadb_understands_every_query() {
    expect_prepared(Flavour::MariaDb, Dialect::Mysql).await;
}
