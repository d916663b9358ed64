//! Migrations on a server: one hub at a time, and a server of a newer version is left alone.
//!
//! PostgreSQL takes all of them in one transaction. MariaDB and MySQL commit every statement that changes a table by
//! itself, so there a migration is written so that it can run again: what is there already is left as it is.

use bongsu_kernel::random;

use super::link::{Fault, Link};
use super::unusable;
use crate::query::Written;
use crate::{Address, Dialect, Error, Migrations, Row, Value};

/// So long a hub waits for another one that is migrating.
const LOCK_POSTGRES: &str =
    "BEGIN; SET LOCAL lock_timeout = 60000; SELECT pg_advisory_xact_lock(4922349082318)";
/// Locks are the whole server's there, so its name has the database in it.
const LOCK_MYSQL: &str = "SELECT GET_LOCK(CONCAT('bongsu:', SHA1(DATABASE())), 60)";
const UNLOCK_MYSQL: &str = "DO RELEASE_LOCK(CONCAT('bongsu:', SHA1(DATABASE())))";

const IS_THERE_POSTGRES: &str = "SELECT 1 WHERE to_regclass('bongsu_migrations') IS NOT NULL";
const IS_THERE_MYSQL: &str = "SELECT 1 FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'bongsu_migrations'";

const TABLES_POSTGRES: &str = "CREATE TABLE IF NOT EXISTS bongsu_migrations \
     (part TEXT COLLATE \"C\" NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (part, number)); \
     CREATE TABLE IF NOT EXISTS bongsu_identity (one BIGINT PRIMARY KEY, id TEXT COLLATE \"C\" NOT NULL)";
const TABLES_MYSQL: &str = "CREATE TABLE IF NOT EXISTS bongsu_migrations \
     (part VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, number BIGINT NOT NULL, \
     PRIMARY KEY (part, number)) ENGINE = InnoDB; \
     CREATE TABLE IF NOT EXISTS bongsu_identity \
     (one BIGINT NOT NULL PRIMARY KEY, id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE = InnoDB";

const IDENTITY: &str = "SELECT id FROM bongsu_identity WHERE one = 1";

/// Applies what is missing, and gives what tells this database from others.
pub(super) async fn run(
    link: &mut Link,
    migrations: &Migrations,
    address: &Address,
) -> Result<String, Error> {
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
    let done = apply(link, migrations, address).await;
    // What failed is undone by PostgreSQL. The connection is not used any more then, and the lock goes with it.
    let identity = done?;
    link.say(if dialect == Dialect::Postgres { "COMMIT" } else { UNLOCK_MYSQL }).await.map_err(fails)?;
    Ok(identity)
}

/// Refuses a server that has a migration this program does not know. Changes nothing.
pub(super) async fn check(link: &mut Link, migrations: &Migrations, address: &Address) -> Result<(), Error> {
    applied(link, migrations, address).await.map(drop)
}

/// Refuses a server that has not exactly the migrations of this program, and gives what tells its database from others.
/// Changes nothing.
pub(super) async fn check_complete(
    link: &mut Link,
    migrations: &Migrations,
    address: &Address,
) -> Result<String, Error> {
    let applied = applied(link, migrations, address).await?;
    let is_there = |part, number| applied.iter().any(|known| (known.0.as_str(), known.1) == (part, number));
    let known = migrations.on_servers(link.dialect()).map(|(migration, _)| migration);
    let mut wanted = known.filter(|migration| migrations.wants(migration));
    if let Some(missing) = wanted.find(|migration| !is_there(migration.part, migration.number)) {
        return Err(missing.is_missing_in(address));
    }
    let known = link.ask(IDENTITY).await.map_err(|fault| unusable(address, &fault))?;
    Ok(known.first().map(|row| row.text(0)).transpose()?.unwrap_or_default().to_owned())
}

async fn apply(link: &mut Link, migrations: &Migrations, address: &Address) -> Result<String, Error> {
    let dialect = link.dialect();
    let fails = |fault: Fault| unusable(address, &fault);
    let applied = applied(link, migrations, address).await?;
    link.say(if dialect == Dialect::Postgres { TABLES_POSTGRES } else { TABLES_MYSQL })
        .await
        .map_err(fails)?;
    for (migration, text) in migrations.on_servers(dialect) {
        let (part, number) = (migration.part, migration.number);
        let is_there = applied.iter().any(|known| (known.0.as_str(), known.1) == (part, number));
        if is_there || !migrations.wants(migration) {
            continue;
        }
        let named = |fault: Fault| fails(Fault::Broken(format!("{part} migration {number}: {fault}")));
        link.say(text).await.map_err(named)?;
        let number = Value::from(u64::from(number));
        insert(link, "bongsu_migrations (part, number)", [part.into(), number]).await.map_err(fails)?;
        tracing::info!(part, number = migration.number, "migrated the database");
    }
    let known = link.ask(IDENTITY).await.map_err(fails)?;
    if let Some(row) = known.first() {
        return Ok(row.text(0)?.to_owned());
    }
    let id: String = random::secret().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    insert(link, "bongsu_identity (one, id)", [1_i64.into(), id.as_str().into()]).await.map_err(fails)?;
    Ok(id)
}

/// What was applied already.
async fn applied(
    link: &mut Link,
    migrations: &Migrations,
    address: &Address,
) -> Result<Vec<(String, u32)>, Error> {
    let dialect = link.dialect();
    let fails = |fault: Fault| unusable(address, &fault);
    let is_there = if dialect == Dialect::Postgres { IS_THERE_POSTGRES } else { IS_THERE_MYSQL };
    if link.ask(is_there).await.map_err(fails)?.is_empty() {
        return Ok(Vec::new());
    }
    let rows = link.ask("SELECT part, number FROM bongsu_migrations").await.map_err(fails)?;
    let one = |row: &Row| {
        let number = u32::try_from(row.count(1)?).unwrap_or(u32::MAX);
        Ok((row.text(0)?.to_owned(), number))
    };
    let applied = rows.iter().map(one).collect::<Result<Vec<_>, Error>>()?;
    let known = |part: &str, number| {
        migrations.on_servers(dialect).any(|(known, _)| known.part == part && known.number == number)
    };
    match applied.iter().find(|(part, number)| !known(part, *number)) {
        Some((part, number)) => Err(Error::Newer(address.to_string(), format!("{part} migration {number}"))),
        None => Ok(applied),
    }
}

async fn insert(link: &mut Link, into: &str, values: [Value; 2]) -> Result<(), Fault> {
    let places = if link.dialect() == Dialect::Postgres { "$1, $2" } else { "?, ?" };
    let text = format!("INSERT INTO {into} VALUES ({places})").into();
    let written = Written { text, arguments: Vec::new() };
    link.run(&written, &[&values[0], &values[1]]).await.map(drop)
}

fn is_one(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.maybe_int(0).is_ok_and(|taken| taken == Some(1)))
}
