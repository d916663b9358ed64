//! Opens the database file for reading only, also while a hub holds the folder: SQLite's write-ahead log lets other
//! processes read committed data. Does not create or migrate the file, and does not lock the folder.

use std::path::Path;

use rusqlite::OpenFlags;

use super::database::{inspect, open};
use crate::{Error, Migrations, Readers};

/// Opens a file for reading only. Refuses a schema that is not this version's.
pub fn open_read_only(path: &Path, migrations: &Migrations) -> Result<Readers, Error> {
    inspect(path)?;
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.pragma_update(None, "query_only", true)?;
    migrations.check_complete(&connection, path)?;
    Ok(Readers::new(vec![connection]))
}
