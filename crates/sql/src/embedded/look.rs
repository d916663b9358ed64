//! Looking at the file from outside, also while a hub holds the folder: SQLite's write-ahead log lets others read what is
//! committed. Nothing is made, migrated or locked, so whoever looks changes nothing.

use std::path::Path;

use rusqlite::OpenFlags;

use super::database::{inspect, open};
use crate::{Error, Migrations, Readers};

/// Opens a file that is of this version's schema, for reading only.
pub fn look(path: &Path, migrations: &Migrations) -> Result<Readers, Error> {
    inspect(path)?;
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.pragma_update(None, "query_only", true)?;
    migrations.check_complete(&connection, path)?;
    Ok(Readers::new(vec![connection]))
}
