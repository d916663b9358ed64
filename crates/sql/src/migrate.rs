//! Migrations: numbered per part, applied once, never undone. Here those of the embedded file, in one transaction;
//! `server/migrate.rs` has the servers'.
//!
//! A file that has one this program does not know was written by a newer version, and is left alone. So is one whose
//! tables were made under other names than the settings say.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::embedded::{APPLICATION_ID, open};
use crate::{Dialect, Error, Names};

/// One step of a part's schema. Its text never changes once it was released.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub part: &'static str,
    pub number: u32,
    pub sqlite: &'static str,
    /// For PostgreSQL, and for MariaDB and MySQL. None for what is only ever kept in the process.
    pub servers: Option<[&'static str; 2]>,
}

/// Declares a migration by the name of its files, the same for each dialect: `migration!("inbox", 1, "0001_inbox")` takes
/// `migrations/sqlite/0001_inbox.sql` and those beside it.
#[macro_export]
macro_rules! migration {
    ($part:expr, $number:expr, $file:literal) => {
        $crate::Migration {
            part: $part,
            number: $number,
            sqlite: $crate::migration!(@ "sqlite", $file),
            servers: Some([$crate::migration!(@ "postgres", $file), $crate::migration!(@ "mysql", $file)]),
        }
    };
    (@ $dialect:literal, $file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $dialect, "/", $file, ".sql"))
    };
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
    /// Parts, or single steps of them, that are not used: they are known, and not made.
    unused: Vec<(&'static str, Option<u32>)>,
    names: Arc<Names>,
}

/// What a database says of its migrations.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) steps: Vec<(String, u32)>,
    /// The names under which the tables of parts were made, where these were noted.
    pub(crate) names: Vec<(String, String)>,
}

impl Applied {
    fn has(&self, migration: &Migration) -> bool {
        self.steps.iter().any(|(part, number)| part == migration.part && *number == migration.number)
    }

    fn names_of(&self, part: &str) -> Option<&str> {
        self.names.iter().find(|(of, _)| of == part).map(|(_, names)| names.as_str())
    }
}

impl Migrations {
    pub fn new(parts: impl IntoIterator<Item = &'static [Migration]>) -> Self {
        Self { steps: parts.into_iter().flatten().copied().collect(), ..Self::default() }
    }

    /// Leaves the tables of a part alone, whether they are there or not.
    #[must_use]
    pub fn without(mut self, part: &'static str) -> Self {
        self.unused.push((part, None));
        self
    }

    /// Leaves the tables of one step alone, whether they are there or not.
    #[must_use]
    pub fn without_step(mut self, part: &'static str, number: u32) -> Self {
        self.unused.push((part, Some(number)));
        self
    }

    /// Makes tables under these names, and refuses a database that has them under others.
    #[must_use]
    pub fn named(mut self, names: Arc<Names>) -> Self {
        self.names = names;
        self
    }

    pub fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// Refuses a file that may not be migrated: it is of a newer version, was made under other names, or does not understand a
    /// query of the settings. Changes nothing.
    pub fn check(&self, path: &Path) -> Result<(), Error> {
        let connection = if path.exists() {
            open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?
        } else {
            Connection::open_in_memory()?
        };
        self.pending(self.steps.iter(), &applied(&connection)?, path.display())?;
        for (setting, query) in self.names.probes(Dialect::Sqlite) {
            connection
                .prepare(&query.text)
                .map_err(|error| Error::Failed(format!("{setting} is no query here: {error}")))?;
        }
        Ok(())
    }

    /// Refuses a file that has not exactly the migrations of this program.
    pub(crate) fn check_complete(&self, connection: &Connection, path: &Path) -> Result<(), Error> {
        self.must_be_complete(self.steps.iter(), &applied(connection)?, path.display())
    }

    /// Those that a server has, in order.
    pub(crate) fn on_servers(&self) -> impl Iterator<Item = &Migration> + Clone {
        self.steps.iter().filter(|migration| migration.servers.is_some())
    }

    /// A step as a database takes it.
    pub(crate) fn text(&self, step: &Migration, dialect: Dialect) -> Cow<'static, str> {
        let [postgres, mysql] = step.servers.unwrap_or_default();
        self.names.fill(match dialect {
            Dialect::Sqlite => step.sqlite,
            Dialect::Postgres => postgres,
            Dialect::Mysql => mysql,
        })
    }

    /// What makes the tables of a part, for whoever does that by hand: where a check fails, nothing is to be made.
    pub fn statements(&self, part: &str, dialect: Dialect) -> String {
        let steps = self.steps.iter().filter(|step| step.part == part && self.wants(step));
        let steps = steps.map(|step| self.text(step, dialect)).collect::<Vec<_>>().join("\n");
        match dialect {
            Dialect::Sqlite => format!(".bail on\nBEGIN IMMEDIATE;\n{steps}\nCOMMIT;\n"),
            Dialect::Postgres => format!("BEGIN;\n{steps}\nCOMMIT;\n"),
            // It commits every such statement by itself, and its client stops at the first that fails.
            Dialect::Mysql => steps,
        }
    }

    fn wants(&self, step: &Migration) -> bool {
        !self.unused.contains(&(step.part, None)) && !self.unused.contains(&(step.part, Some(step.number)))
    }

    /// Which of these steps are to be made in a database, in order.
    pub(crate) fn pending<'a>(
        &'a self,
        steps: impl Iterator<Item = &'a Migration> + Clone,
        applied: &Applied,
        place: impl std::fmt::Display,
    ) -> Result<Vec<Migration>, Error> {
        let is_known =
            |part: &str, number| steps.clone().any(|step| (step.part, step.number) == (part, number));
        if let Some((part, number)) = applied.steps.iter().find(|(part, number)| !is_known(part, *number)) {
            return Err(Error::Newer(place.to_string(), format!("{part} migration {number}")));
        }
        let mut pending = Vec::new();
        for step in steps.filter(|step| self.wants(step)) {
            if !applied.has(step) {
                pending.push(*step);
            } else if let Some((wanted, default)) = self.names.of_part(step.part) {
                let made_under = applied.names_of(step.part).unwrap_or(default);
                if made_under != wanted {
                    return Err(Error::Renamed(place.to_string(), made_under.to_owned(), wanted.to_owned()));
                }
            }
        }
        Ok(pending)
    }

    /// Refuses a database in which one of these steps is still to be made.
    pub(crate) fn must_be_complete<'a>(
        &'a self,
        steps: impl Iterator<Item = &'a Migration> + Clone,
        applied: &Applied,
        place: impl std::fmt::Display,
    ) -> Result<(), Error> {
        let pending = self.pending(steps, applied, &place)?;
        pending.first().map_or(Ok(()), |missing| Err(missing.is_missing_in(place)))
    }

    /// Applies what is missing.
    pub(crate) fn run(&self, connection: &mut Connection, path: &Path) -> Result<(), Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let pending = self.pending(self.steps.iter(), &applied(&transaction)?, path.display())?;
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (part TEXT NOT NULL, number INTEGER NOT NULL,
             PRIMARY KEY (part, number)) WITHOUT ROWID, STRICT;
             CREATE TABLE IF NOT EXISTS migration_names (part TEXT PRIMARY KEY, names TEXT NOT NULL)
             WITHOUT ROWID, STRICT",
        )?;
        // Within the transaction: a file has our mark and our tables, or neither.
        if transaction.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0))?
            != APPLICATION_ID
        {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        for step in pending {
            let (part, number) = (step.part, step.number);
            transaction.execute_batch(&self.text(&step, Dialect::Sqlite))?;
            transaction.execute("INSERT OR IGNORE INTO migrations VALUES (?1, ?2)", (part, number))?;
            if let Some((names, _)) = self.names.of_part(part) {
                transaction
                    .execute("INSERT OR REPLACE INTO migration_names VALUES (?1, ?2)", (part, names))?;
            }
            tracing::info!(part, number, "migrated");
        }
        transaction.commit()?;
        Ok(())
    }
}

/// What a file says of its migrations.
fn applied(connection: &Connection) -> Result<Applied, Error> {
    let mut applied = Applied::default();
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
