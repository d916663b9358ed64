//! Migrations on a server: one hub at a time, and a server of a newer version is left alone.
//!
//! They have two halves, so that a start that fails changes nothing. [`begin`] keeps other hubs from migrating and finds
//! whatever would refuse the migrations; [`finish`] makes them. PostgreSQL takes all of them in one transaction. MariaDB and
//! MySQL commit every statement that changes a table by itself, so there a migration is written so that it can run again, and
//! what it checks stands before [`END_OF_CHECKS`]: it is also run before the first table is made.

use bongsu_kernel::random;

use super::link::{Fault, Link};
use super::unusable;
use crate::migrate::Applied;
use crate::query::write;
use crate::{Address, Dialect, Error, Migration, Migrations, Row, Value};

/// A line of a migration for MariaDB and MySQL: nothing before it changes anything.
const END_OF_CHECKS: &str = "-- End of checks.\n";

/// So long a hub waits for another one that is migrating.
const LOCK_POSTGRES: &str = "BEGIN; SET LOCAL lock_timeout = 60000; \
     SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock(4922349082318)";
/// Locks are the whole server's there, so its name has the database in it.
const LOCK_MYSQL: &str = "SELECT GET_LOCK(CONCAT('bongsu:', SHA1(DATABASE())), 60)";
const UNLOCK_MYSQL: &str = "DO RELEASE_LOCK(CONCAT('bongsu:', SHA1(DATABASE())))";

/// Which of the tables below are there.
const TABLES_THERE_POSTGRES: &str = "SELECT name FROM \
     unnest(ARRAY['bongsu_migrations', 'bongsu_migration_names', 'bongsu_identity']) AS name \
     WHERE to_regclass(name) IS NOT NULL";
const TABLES_THERE_MYSQL: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() \
     AND table_name IN ('bongsu_migrations', 'bongsu_migration_names', 'bongsu_identity')";

const TABLES_POSTGRES: &str = "CREATE TABLE IF NOT EXISTS bongsu_migrations \
     (part TEXT COLLATE \"C\" NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (part, number)); \
     CREATE TABLE IF NOT EXISTS bongsu_migration_names (part TEXT COLLATE \"C\" PRIMARY KEY, names TEXT NOT NULL); \
     CREATE TABLE IF NOT EXISTS bongsu_identity (one BIGINT PRIMARY KEY, id TEXT COLLATE \"C\" NOT NULL)";
const TABLES_MYSQL: &str = "CREATE TABLE IF NOT EXISTS bongsu_migrations \
     (part VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, number BIGINT NOT NULL, \
     PRIMARY KEY (part, number)) ENGINE = InnoDB; \
     CREATE TABLE IF NOT EXISTS bongsu_migration_names \
     (part VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
     names VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE = InnoDB; \
     CREATE TABLE IF NOT EXISTS bongsu_identity \
     (one BIGINT NOT NULL PRIMARY KEY, id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE = InnoDB";

const IDENTITY: &str = "SELECT id FROM bongsu_identity WHERE one = 1";

/// Migrations that may be made: other hubs wait, and nothing was changed yet.
pub(super) struct Begun {
    pending: Vec<Migration>,
    /// What tells this database from others.
    pub(super) identity: String,
    has_identity: bool,
}

/// Keeps other hubs from migrating, and refuses a database that cannot be migrated. Changes nothing. What is begun ends with the
/// connection.
pub(super) async fn begin(
    link: &mut Link,
    migrations: &Migrations,
    address: &Address,
) -> Result<Begun, Error> {
    let dialect = link.dialect();
    let fails = |fault: Fault| unusable(address, &fault);
    if dialect == Dialect::Postgres {
        let encoding = link.ask("SHOW server_encoding").await.map_err(fails)?;
        let encoding = encoding.first().map(|row| row.text(0)).transpose()?.unwrap_or_default();
        if encoding != "UTF8" {
            // What is not converted, and not checked, cannot be told to anybody as text.
            return Err(fails(Fault::Broken(format!("its encoding is {encoding}, and has to be UTF8"))));
        }
        link.say(LOCK_POSTGRES).await.map_err(fails)?;
    } else if !is_one(&link.ask(LOCK_MYSQL).await.map_err(fails)?) {
        return Err(fails(Fault::Broken("another hub has been migrating for a minute".to_owned())));
    }
    let Found { applied, identity } = look(link, address).await?;
    let pending = migrations.pending(migrations.on_servers(), &applied, address)?;
    for (setting, query) in migrations.names().probes(dialect) {
        let null = Value::Text(None);
        let nulls = vec![&null; query.arguments.len()];
        let named = |fault: Fault| fails(Fault::Broken(format!("{setting} is no query here: {fault}")));
        link.rows(&query, &nulls).await.map_err(named)?;
    }
    for migration in &pending {
        let text = migrations.text(migration, dialect);
        if let Some((checks, _)) = text.split_once(END_OF_CHECKS) {
            link.say(checks).await.map_err(|fault| fails(named(migration, &fault)))?;
        }
    }
    let has_identity = identity.is_some();
    Ok(Begun { pending, identity: identity.unwrap_or_else(new_identity), has_identity })
}

/// Makes what was begun.
pub(super) async fn finish(
    link: &mut Link,
    begun: &Begun,
    migrations: &Migrations,
    address: &Address,
) -> Result<(), Error> {
    let dialect = link.dialect();
    let fails = |fault: Fault| unusable(address, &fault);
    link.say(if dialect == Dialect::Postgres { TABLES_POSTGRES } else { TABLES_MYSQL })
        .await
        .map_err(fails)?;
    for migration in &begun.pending {
        let text = migrations.text(migration, dialect);
        link.say(&text).await.map_err(|fault| fails(named(migration, &fault)))?;
        note(link, migration, migrations).await.map_err(fails)?;
        tracing::info!(part = migration.part, number = migration.number, "migrated the database");
    }
    if !begun.has_identity {
        let identity = [1_i64.into(), begun.identity.as_str().into()];
        insert(link, "bongsu_identity (one, id)", identity).await.map_err(fails)?;
    }
    link.say(if dialect == Dialect::Postgres { "COMMIT" } else { UNLOCK_MYSQL }).await.map_err(fails)
}

/// Refuses a server that has a migration this program does not know, or tables under other names. Changes nothing.
pub(super) async fn check(link: &mut Link, migrations: &Migrations, address: &Address) -> Result<(), Error> {
    let found = look(link, address).await?;
    migrations.pending(migrations.on_servers(), &found.applied, address).map(drop)
}

/// Refuses a server that has not exactly the migrations of this program. Changes nothing.
pub(super) async fn check_complete(
    link: &mut Link,
    migrations: &Migrations,
    address: &Address,
) -> Result<(), Error> {
    let found = look(link, address).await?;
    migrations.must_be_complete(migrations.on_servers(), &found.applied, address)
}

fn named(migration: &Migration, fault: &Fault) -> Fault {
    Fault::Broken(format!("{} migration {}: {fault}", migration.part, migration.number))
}

fn new_identity() -> String {
    random::secret().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Notes a migration that was made, and under which names.
async fn note(link: &mut Link, migration: &Migration, migrations: &Migrations) -> Result<(), Fault> {
    let (part, number) = (migration.part, Value::from(u64::from(migration.number)));
    let known = "DELETE FROM bongsu_migrations WHERE part = :part AND number = :number";
    run(link, known, &[&part.into(), &number]).await?;
    insert(link, "bongsu_migrations (part, number)", [part.into(), number]).await?;
    if let Some((names, _)) = migrations.names().of_part(part) {
        run(link, "DELETE FROM bongsu_migration_names WHERE part = :part", &[&part.into()]).await?;
        insert(link, "bongsu_migration_names (part, names)", [part.into(), names.into()]).await?;
    }
    Ok(())
}

/// What a server says of itself.
#[derive(Default)]
struct Found {
    applied: Applied,
    identity: Option<String>,
}

async fn look(link: &mut Link, address: &Address) -> Result<Found, Error> {
    let fails = |fault: Fault| unusable(address, &fault);
    let there = if link.dialect() == Dialect::Postgres { TABLES_THERE_POSTGRES } else { TABLES_THERE_MYSQL };
    let mut found = Found::default();
    for table in link.ask(there).await.map_err(fails)? {
        match table.text(0)? {
            "bongsu_migrations" => {
                for row in link.ask("SELECT part, number FROM bongsu_migrations").await.map_err(fails)? {
                    let number = u32::try_from(row.count(1)?).unwrap_or(u32::MAX);
                    found.applied.steps.push((row.text(0)?.to_owned(), number));
                }
            }
            "bongsu_migration_names" => {
                for row in link.ask("SELECT part, names FROM bongsu_migration_names").await.map_err(fails)? {
                    found.applied.names.push((row.text(0)?.to_owned(), row.text(1)?.to_owned()));
                }
            }
            _ => {
                let identity = link.ask(IDENTITY).await.map_err(fails)?;
                found.identity = identity.first().map(|row| row.text(0).map(str::to_owned)).transpose()?;
            }
        }
    }
    Ok(found)
}

async fn insert(link: &mut Link, into: &str, [one, other]: [Value; 2]) -> Result<(), Fault> {
    run(link, &format!("INSERT INTO {into} VALUES (:one, :other)"), &[&one, &other]).await
}

/// Runs a statement with values in the order of its arguments.
async fn run(link: &mut Link, text: &str, values: &[&Value]) -> Result<(), Fault> {
    let written = write(text, link.dialect());
    link.run(&written, values).await.map(drop)
}

fn is_one(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.maybe_int(0).is_ok_and(|taken| taken == Some(1)))
}
