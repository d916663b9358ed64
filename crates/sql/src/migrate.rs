//! Migrations: numbered per part, applied once, never undone. Here those of the embedded file, in one transaction;
//! `server/migrate.rs` has the servers'.
//!
//! A file that has one this program does not know was written by a newer version, and is left alone.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::embedded::{APPLICATION_ID, open};
use crate::{Dialect, Error};

/// One step of a part's schema. Its text never changes once it was released.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub part: &'static str,
    pub number: u32,
    pub sqlite: &'static str,
    /// For PostgreSQL, and for MariaDB and MySQL. None for what is only ever kept in the process.
    pub servers: Option<[&'static str; 2]>,
}

impl Migration {
    pub(crate) fn is_missing_in(&self, place: impl std::fmt::Display) -> Error {
        Error::Older(place.to_string(), format!("{} migration {}", self.part, self.number))
    }
}

/// The steps of all parts.
#[derive(Clone, Debug, Default)]
pub struct Migrations {
    steps: Vec<Migration>,
    /// Parts that are not used: their steps are known, and not made.
    unused: Vec<&'static str>,
}

impl Migrations {
    pub fn new(parts: impl IntoIterator<Item = &'static [Migration]>) -> Self {
        Self { steps: parts.into_iter().flatten().copied().collect(), unused: Vec::new() }
    }

    /// Leaves the tables of a part alone, whether they are there or not.
    #[must_use]
    pub fn without(mut self, part: &'static str) -> Self {
        self.unused.push(part);
        self
    }

    /// Whether a step is to be made where it is missing.
    pub(crate) fn wants(&self, migration: &Migration) -> bool {
        !self.unused.contains(&migration.part)
    }

    /// Refuses a file that has a migration this program does not know.
    pub fn check(&self, path: &Path) -> Result<(), Error> {
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        self.applied(&connection, path).map(drop)
    }

    /// Refuses a file that has not exactly the migrations of this program.
    pub(crate) fn check_complete(&self, connection: &Connection, path: &Path) -> Result<(), Error> {
        let applied = self.applied(connection, path)?;
        let is_missing =
            |m: &&Migration| !applied.iter().any(|(part, number)| part == m.part && *number == m.number);
        let mut wanted = self.steps.iter().filter(|migration| self.wants(migration));
        wanted.find(is_missing).map_or(Ok(()), |missing| Err(missing.is_missing_in(path.display())))
    }

    /// Those that a server has, in order, each as its dialect wants it.
    pub(crate) fn on_servers(&self, dialect: Dialect) -> impl Iterator<Item = (&Migration, &'static str)> {
        self.steps.iter().filter_map(move |migration| {
            let [postgres, mysql] = migration.servers?;
            Some((migration, if dialect == Dialect::Postgres { postgres } else { mysql }))
        })
    }

    /// What was applied already.
    fn applied(&self, connection: &Connection, path: &Path) -> Result<Vec<(String, u32)>, Error> {
        if !connection.table_exists(None, "migrations")? {
            return Ok(Vec::new());
        }
        let applied: Vec<(String, u32)> = connection
            .prepare("SELECT part, number FROM migrations")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let known = |part: &str, number| self.steps.iter().any(|m| m.part == part && m.number == number);
        match applied.iter().find(|(part, number)| !known(part, *number)) {
            Some((part, number)) => {
                Err(Error::Newer(path.display().to_string(), format!("{part} migration {number}")))
            }
            None => Ok(applied),
        }
    }

    /// Applies what is missing.
    pub(crate) fn run(&self, connection: &mut Connection, path: &Path) -> Result<(), Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let applied = self.applied(&transaction, path)?;
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (part TEXT NOT NULL, number INTEGER NOT NULL,
             PRIMARY KEY (part, number)) WITHOUT ROWID, STRICT",
        )?;
        // Within the transaction: a file has our mark and our tables, or neither.
        if transaction.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0))?
            != APPLICATION_ID
        {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        for migration in self.steps.iter().filter(|migration| self.wants(migration)) {
            if !applied.iter().any(|(part, number)| part == migration.part && *number == migration.number) {
                transaction.execute_batch(migration.sqlite)?;
                transaction
                    .execute("INSERT INTO migrations VALUES (?1, ?2)", (migration.part, migration.number))?;
                tracing::info!(part = migration.part, number = migration.number, "migrated");
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
