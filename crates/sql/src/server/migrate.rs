//! Migrations on a server: one hub at a time; a server with a newer schema is refused.
//!
//! A start migrates in two steps, so that a refused start changes nothing. [`lock_and_plan`] keeps other hubs from
//! migrating and runs all checks; [`apply`] runs the migrations, on PostgreSQL in one transaction. MariaDB and MySQL
//! commit every DDL statement by itself, so their migrations can run again after a crash, and begin with checks that
//! end at [`END_OF_CHECKS`]. `lock_and_plan` runs the checks of all migrations before the first table is created.

use bongsu_kernel::random;

use super::connection::{ServerConnection, ServerError};
use super::unusable;
use crate::migrate::AppliedMigrations;
use crate::query::render_arguments;
use crate::{DatabaseAddress, Dialect, Error, Migration, Migrations, Result, Row, Value};

/// A line in migrations for MariaDB and MySQL. The statements before it change nothing.
const END_OF_CHECKS: &str = "-- End of checks.\n";

/// Waits up to 60 seconds for another hub that is migrating.
const LOCK_POSTGRES: &str = "BEGIN; SET LOCAL lock_timeout = 60000; \
     SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock(4922349082318)";
/// Waits up to 60 seconds as well. All databases of a server share the lock names, so the name contains a hash of the
/// database name.
const LOCK_MYSQL: &str = "SELECT GET_LOCK(CONCAT('bongsu:', SHA1(DATABASE())), 60)";
const UNLOCK_MYSQL: &str = "DO RELEASE_LOCK(CONCAT('bongsu:', SHA1(DATABASE())))";

/// Lists which of the tables below exist.
const EXISTING_TABLES_POSTGRES: &str = "SELECT name FROM \
     unnest(ARRAY['bongsu_migrations', 'bongsu_migration_names', 'bongsu_identity']) AS name \
     WHERE to_regclass(name) IS NOT NULL";
const EXISTING_TABLES_MYSQL: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() \
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

/// The result of [`lock_and_plan`]: the migrations to apply, and the id of the database.
pub(super) struct MigrationPlan {
    pending: Vec<Migration>,
    /// The id of this database, stored or new.
    pub(super) identity: String,
    has_stored_identity: bool,
}

/// Takes the migration lock, which keeps other hubs from migrating until [`apply`] or the end of the connection, and
/// refuses a database that cannot be migrated. Changes nothing.
pub(super) async fn lock_and_plan(
    connection: &mut ServerConnection,
    migrations: &Migrations,
    address: &DatabaseAddress,
) -> Result<MigrationPlan> {
    let dialect = connection.dialect();
    let to_error = |error: ServerError| unusable(address, &error);
    if dialect == Dialect::Postgres {
        let encoding = connection.query_raw("SHOW server_encoding").await.map_err(to_error)?;
        let encoding = encoding.first().map(|row| row.text(0)).transpose()?.unwrap_or_default();
        if encoding != "UTF8" {
            // Other encodings may hold text that PostgreSQL neither checks nor converts to UTF-8.
            let text = format!("its encoding is {encoding}, but must be UTF8");
            return Err(to_error(ServerError::Broken(text)));
        }
        connection.execute_raw(LOCK_POSTGRES).await.map_err(to_error)?;
    } else if !is_one(&connection.query_raw(LOCK_MYSQL).await.map_err(to_error)?) {
        return Err(to_error(ServerError::Broken("another hub has been migrating for a minute".to_owned())));
    }
    let DatabaseState { applied, identity } = read_state(connection, address).await?;
    let pending = migrations.pending(migrations.for_servers(), &applied, address)?;
    for (setting, query) in migrations.names().probes(dialect) {
        let null = Value::Text(None);
        let nulls = vec![&null; query.arguments.len()];
        let invalid = |error: ServerError| {
            let text = format!("{setting} is not a query that this database accepts: {error}");
            schema_error(address, &error, text)
        };
        connection.rows(&query, &nulls).await.map_err(invalid)?;
    }
    for migration in &pending {
        let text = migrations.text(migration, dialect);
        if let Some((checks, _)) = text.split_once(END_OF_CHECKS) {
            let checked = connection.execute_raw(checks).await;
            checked.map_err(|error| migration_error(address, migration, &error))?;
        }
    }
    let has_stored_identity = identity.is_some();
    Ok(MigrationPlan { pending, identity: identity.unwrap_or_else(new_identity), has_stored_identity })
}

/// Applies a plan, and releases the migration lock.
pub(super) async fn apply(
    connection: &mut ServerConnection,
    plan: &MigrationPlan,
    migrations: &Migrations,
    address: &DatabaseAddress,
) -> Result<()> {
    let dialect = connection.dialect();
    let to_error = |error: ServerError| unusable(address, &error);
    let tables = if dialect == Dialect::Postgres { TABLES_POSTGRES } else { TABLES_MYSQL };
    connection.execute_raw(tables).await.map_err(to_error)?;
    for migration in &plan.pending {
        let text = migrations.text(migration, dialect);
        connection.execute_raw(&text).await.map_err(|error| migration_error(address, migration, &error))?;
        record_migration(connection, migration, migrations).await.map_err(to_error)?;
    }
    if !plan.has_stored_identity {
        let identity = [1_i64.into(), plan.identity.as_str().into()];
        insert(connection, "bongsu_identity (one, id)", identity).await.map_err(to_error)?;
    }
    let end = if dialect == Dialect::Postgres { "COMMIT" } else { UNLOCK_MYSQL };
    connection.execute_raw(end).await.map_err(to_error)?;
    for Migration { part, number, .. } in &plan.pending {
        tracing::info!(part, number, "applied a migration to the database");
    }
    Ok(())
}

/// Refuses a server with a migration that this program does not know, or with tables under other names than the
/// settings say. Changes nothing.
pub(super) async fn check(
    connection: &mut ServerConnection,
    migrations: &Migrations,
    address: &DatabaseAddress,
) -> Result<()> {
    let state = read_state(connection, address).await?;
    migrations.pending(migrations.for_servers(), &state.applied, address).map(drop)
}

/// Refuses a server whose migrations are not exactly those of this program. Changes nothing.
pub(super) async fn check_complete(
    connection: &mut ServerConnection,
    migrations: &Migrations,
    address: &DatabaseAddress,
) -> Result<()> {
    let state = read_state(connection, address).await?;
    migrations.require_complete(migrations.for_servers(), &state.applied, address)
}

fn migration_error(address: &DatabaseAddress, migration: &Migration, error: &ServerError) -> Error {
    schema_error(address, error, format!("{} migration {}: {error}", migration.part, migration.number))
}

/// The error of a statement of this program. A restart may help after an outage, but not after a rejected statement.
fn schema_error(address: &DatabaseAddress, error: &ServerError, text: String) -> Error {
    match error {
        ServerError::Rejected(_) => Error::SchemaRejected(address.to_string(), text),
        _ => Error::ServerUnusable(address.to_string(), text),
    }
}

fn new_identity() -> String {
    random::secret().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Records an applied migration, and the table and column names that are configured for its part.
async fn record_migration(
    connection: &mut ServerConnection,
    migration: &Migration,
    migrations: &Migrations,
) -> Result<(), ServerError> {
    let (part, number) = (migration.part, Value::from(u64::from(migration.number)));
    let delete = "DELETE FROM bongsu_migrations WHERE part = :part AND number = :number";
    run(connection, delete, &[&part.into(), &number]).await?;
    insert(connection, "bongsu_migrations (part, number)", [part.into(), number]).await?;
    if let Some((names, _)) = migrations.names().part_names(part) {
        run(connection, "DELETE FROM bongsu_migration_names WHERE part = :part", &[&part.into()]).await?;
        insert(connection, "bongsu_migration_names (part, names)", [part.into(), names.into()]).await?;
    }
    Ok(())
}

/// The migrations and the id that a server has recorded.
#[derive(Default)]
struct DatabaseState {
    applied: AppliedMigrations,
    identity: Option<String>,
}

async fn read_state(connection: &mut ServerConnection, address: &DatabaseAddress) -> Result<DatabaseState> {
    let to_error = |error: ServerError| unusable(address, &error);
    let is_postgres = connection.dialect() == Dialect::Postgres;
    let tables = if is_postgres { EXISTING_TABLES_POSTGRES } else { EXISTING_TABLES_MYSQL };
    let mut state = DatabaseState::default();
    for table in connection.query_raw(tables).await.map_err(to_error)? {
        match table.text(0)? {
            "bongsu_migrations" => {
                let steps = connection.query_raw("SELECT part, number FROM bongsu_migrations").await;
                for row in steps.map_err(to_error)? {
                    let number = u32::try_from(row.count(1)?).unwrap_or(u32::MAX);
                    state.applied.steps.push((row.text(0)?.to_owned(), number));
                }
            }
            "bongsu_migration_names" => {
                let names = connection.query_raw("SELECT part, names FROM bongsu_migration_names").await;
                for row in names.map_err(to_error)? {
                    state.applied.names.push((row.text(0)?.to_owned(), row.text(1)?.to_owned()));
                }
            }
            _ => {
                let identity = connection.query_raw(IDENTITY).await.map_err(to_error)?;
                state.identity = identity.first().map(|row| row.text(0).map(str::to_owned)).transpose()?;
            }
        }
    }
    Ok(state)
}

async fn insert(
    connection: &mut ServerConnection,
    table: &str,
    [one, other]: [Value; 2],
) -> Result<(), ServerError> {
    run(connection, &format!("INSERT INTO {table} VALUES (:one, :other)"), &[&one, &other]).await
}

/// Runs a statement with values in the order of its arguments.
async fn run(connection: &mut ServerConnection, text: &str, values: &[&Value]) -> Result<(), ServerError> {
    let query = render_arguments(text, connection.dialect());
    connection.run(&query, values).await.map(drop)
}

fn is_one(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| row.maybe_int(0).is_ok_and(|number| number == Some(1)))
}
