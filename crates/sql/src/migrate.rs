//! Migrations: numbered per part, applied once, in one transaction, never undone.
//!
//! A file that has one this program does not know was written by a newer version, and is left alone.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::Error;
use crate::database::APPLICATION_ID;

/// One step of a part's schema. Its text never changes once it was released.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub part: &'static str,
    pub number: u32,
    pub sql: &'static str,
}

/// The steps of all parts.
#[derive(Clone, Debug, Default)]
pub struct Migrations(Vec<Migration>);

impl Migrations {
    pub fn new(parts: impl IntoIterator<Item = &'static [Migration]>) -> Self {
        Self(parts.into_iter().flatten().copied().collect())
    }

    /// Applies what is missing.
    pub(crate) fn run(&self, connection: &mut Connection, path: &Path) -> Result<(), Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Leaves an existing file as it is.
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (part TEXT NOT NULL, number INTEGER NOT NULL,
             PRIMARY KEY (part, number)) WITHOUT ROWID, STRICT",
        )?;
        let applied: Vec<(String, u32)> = transaction
            .prepare("SELECT part, number FROM migrations")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        if let Some((part, number)) = applied
            .iter()
            .find(|(part, number)| !self.0.iter().any(|m| m.part == part && m.number == *number))
        {
            return Err(Error::Newer(path.to_owned(), format!("{part} migration {number}")));
        }
        // Within the transaction: a file has our mark and our tables, or neither.
        if transaction.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0))?
            != APPLICATION_ID
        {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        for migration in &self.0 {
            if !applied.iter().any(|(part, number)| part == migration.part && *number == migration.number) {
                transaction.execute_batch(migration.sql)?;
                transaction
                    .execute("INSERT INTO migrations VALUES (?1, ?2)", (migration.part, migration.number))?;
                tracing::info!(part = migration.part, number = migration.number, "migrated");
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
