//! Migrations: numbered per part, applied once, never reverted. This module applies those of the embedded file, in one
//! transaction; `server/migrate.rs` applies those of servers.
//!
//! A file with a migration that this program does not know was written by a newer version and is refused. So is a file
//! whose tables were created under other names than the settings say.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::embedded::{APPLICATION_ID, open};
use crate::{Dialect, Error, Names};

/// One step of a part's schema. Its text never changes after its release.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub part: &'static str,
    pub number: u32,
    pub sqlite: &'static str,
    /// The texts for PostgreSQL, and for MariaDB and MySQL. None for tables that exist only in the embedded file.
    pub servers: Option<[&'static str; 2]>,
}

/// Declares a migration by its part, its number and the name of its files in `migrations/<dialect>/`.
#[macro_export]
macro_rules! migration {
    (@ $dialect:literal, $file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $dialect, "/", $file, ".sql"))
    };
    ($part:expr, $number:expr, $file:literal) => {
        $crate::Migration {
            part: $part,
            number: $number,
            sqlite: $crate::migration!(@ "sqlite", $file),
            servers: Some([$crate::migration!(@ "postgres", $file), $crate::migration!(@ "mysql", $file)]),
        }
    };
}

impl Migration {
    /// The error for a database without this migration.
    pub(crate) fn missing_error(&self, location: impl std::fmt::Display) -> Error {
        Error::Older(location.to_string(), format!("{} migration {}", self.part, self.number))
    }
}

/// The migrations of all parts.
#[derive(Clone, Debug, Default)]
pub struct Migrations {
    steps: Vec<Migration>,
    /// Parts, or single steps of them, that are known but not applied.
    unused: Vec<(&'static str, Option<u32>)>,
    names: Arc<Names>,
}

/// The migrations that a database has recorded.
#[derive(Debug, Default)]
pub(crate) struct AppliedMigrations {
    pub(crate) steps: Vec<(String, u32)>,
    /// By part, the names under which its tables were created. Only parts with names from settings.
    pub(crate) names: Vec<(String, String)>,
}

impl AppliedMigrations {
    fn has(&self, migration: &Migration) -> bool {
        self.steps.iter().any(|(part, number)| part == migration.part && *number == migration.number)
    }

    fn names_of(&self, part: &str) -> Option<&str> {
        self.names.iter().find(|(known, _)| known == part).map(|(_, names)| names.as_str())
    }
}

impl Migrations {
    pub fn new(parts: impl IntoIterator<Item = &'static [Migration]>) -> Self {
        Self { steps: parts.into_iter().flatten().copied().collect(), ..Self::default() }
    }

    /// Does not apply the migrations of a part. A database that already has the part's tables is accepted.
    #[must_use]
    pub fn without(mut self, part: &'static str) -> Self {
        self.unused.push((part, None));
        self
    }

    /// Does not apply one step. A database that already has this step is accepted.
    #[must_use]
    pub fn without_step(mut self, part: &'static str, number: u32) -> Self {
        self.unused.push((part, Some(number)));
        self
    }

    /// Creates tables under these names, and refuses a database that has them under other names.
    #[must_use]
    pub fn with_names(mut self, names: Arc<Names>) -> Self {
        self.names = names;
        self
    }

    pub fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// Refuses a file that cannot be migrated: it has a newer schema or tables under other names, or does not accept a
    /// query from the settings. Changes nothing.
    pub fn check(&self, path: &Path) -> Result<(), Error> {
        let connection = if path.exists() {
            open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?
        } else {
            Connection::open_in_memory()?
        };
        self.pending(self.steps.iter(), &applied(&connection)?, path.display())?;
        for (setting, query) in self.names.probes(Dialect::Sqlite) {
            connection.prepare(&query.text).map_err(|error| {
                Error::Failed(format!("{setting} is not a query that this database accepts: {error}"))
            })?;
        }
        Ok(())
    }

    /// Refuses a file whose migrations are not exactly those of this program.
    pub(crate) fn check_complete(&self, connection: &Connection, path: &Path) -> Result<(), Error> {
        self.require_complete(self.steps.iter(), &applied(connection)?, path.display())
    }

    /// The migrations for servers, in order.
    pub(crate) fn for_servers(&self) -> impl Iterator<Item = &Migration> + Clone {
        self.steps.iter().filter(|migration| migration.servers.is_some())
    }

    /// The text of a step for a dialect, with the names filled in.
    pub(crate) fn text(&self, step: &Migration, dialect: Dialect) -> Cow<'static, str> {
        let [postgres, mysql] = step.servers.unwrap_or_default();
        self.names.fill(match dialect {
            Dialect::Sqlite => step.sqlite,
            Dialect::Postgres => postgres,
            Dialect::Mysql => mysql,
        })
    }

    /// A script with the migrations of a part, for operators who create the tables by hand. On SQLite and
    /// PostgreSQL the script is one transaction, so an error leaves no change. On MariaDB and MySQL it stops
    /// at the first error.
    pub fn statements(&self, part: &str, dialect: Dialect) -> String {
        let steps = self.steps.iter().filter(|step| step.part == part && self.is_used(step));
        let steps = steps.map(|step| self.text(step, dialect)).collect::<Vec<_>>().join("\n");
        match dialect {
            Dialect::Sqlite => format!(".bail on\nBEGIN IMMEDIATE;\n{steps}\nCOMMIT;\n"),
            Dialect::Postgres => format!("BEGIN;\n{steps}\nCOMMIT;\n"),
            // MariaDB and MySQL commit every DDL statement by itself, and their client stops at the first error.
            Dialect::Mysql => steps,
        }
    }

    fn is_used(&self, step: &Migration) -> bool {
        !self.unused.contains(&(step.part, None)) && !self.unused.contains(&(step.part, Some(step.number)))
    }

    /// The steps that a database lacks, in order.
    pub(crate) fn pending<'a>(
        &'a self,
        steps: impl Iterator<Item = &'a Migration> + Clone,
        applied: &AppliedMigrations,
        location: impl std::fmt::Display,
    ) -> Result<Vec<Migration>, Error> {
        let is_known =
            |part: &str, number| steps.clone().any(|step| (step.part, step.number) == (part, number));
        if let Some((part, number)) = applied.steps.iter().find(|(part, number)| !is_known(part, *number)) {
            return Err(Error::Newer(location.to_string(), format!("{part} migration {number}")));
        }
        let mut pending = Vec::new();
        for step in steps.filter(|step| self.is_used(step)) {
            if !applied.has(step) {
                pending.push(*step);
            } else if let Some((configured, default)) = self.names.part_names(step.part) {
                let recorded = applied.names_of(step.part).unwrap_or(default);
                if recorded != configured {
                    let (recorded, configured) = (recorded.to_owned(), configured.to_owned());
                    return Err(Error::Renamed(location.to_string(), recorded, configured));
                }
            }
        }
        Ok(pending)
    }

    /// Refuses a database that lacks one of these steps, or that [`Migrations::pending`] refuses.
    pub(crate) fn require_complete<'a>(
        &'a self,
        steps: impl Iterator<Item = &'a Migration> + Clone,
        applied: &AppliedMigrations,
        location: impl std::fmt::Display,
    ) -> Result<(), Error> {
        let pending = self.pending(steps, applied, &location)?;
        pending.first().map_or(Ok(()), |missing| Err(missing.missing_error(location)))
    }

    /// Applies the steps that a file lacks.
    pub(crate) fn run(&self, connection: &mut Connection, path: &Path) -> Result<(), Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let pending = self.pending(self.steps.iter(), &applied(&transaction)?, path.display())?;
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (part TEXT NOT NULL, number INTEGER NOT NULL,
             PRIMARY KEY (part, number)) WITHOUT ROWID, STRICT;
             CREATE TABLE IF NOT EXISTS migration_names (part TEXT PRIMARY KEY, names TEXT NOT NULL)
             WITHOUT ROWID, STRICT",
        )?;
        // In the same transaction as the tables, so that a file with tables always has the application id.
        if transaction.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0))?
            != APPLICATION_ID
        {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        for step in pending {
            let (part, number) = (step.part, step.number);
            transaction.execute_batch(&self.text(&step, Dialect::Sqlite))?;
            transaction.execute("INSERT OR IGNORE INTO migrations VALUES (?1, ?2)", (part, number))?;
            if let Some((names, _)) = self.names.part_names(part) {
                transaction
                    .execute("INSERT OR REPLACE INTO migration_names VALUES (?1, ?2)", (part, names))?;
            }
            tracing::info!(part, number, "applied a migration to the data folder");
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Reads the migrations that a file has recorded.
fn applied(connection: &Connection) -> Result<AppliedMigrations, Error> {
    let mut applied = AppliedMigrations::default();
    if connection.table_exists(None, "migrations")? {
        let mut steps = connection.prepare("SELECT part, number FROM migrations")?;
        applied.steps =
            steps.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    }
    if connection.table_exists(None, "migration_names")? {
        let mut names = connection.prepare("SELECT part, names FROM migration_names")?;
        applied.names =
            names.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    }
    Ok(applied)
}
