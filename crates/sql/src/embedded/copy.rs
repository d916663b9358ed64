//! Copies the database file, also while a hub writes to it. The copy is one snapshot.
//!
//! `VACUUM INTO` reads one snapshot, so it ends however much the hub writes meanwhile. SQLite's backup API restarts
//! after every commit of another process, and might never end. The copy is compact, contains no remains of deleted
//! rows, and gets its name only after it was checked and synced.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::OpenFlags;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::database::{inspect, open, verify};
use crate::Error;

/// Reads every row and every index.
const FULL_CHECK: &str = "PRAGMA integrity_check(1)";

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{0} exists already and is not overwritten")]
    Exists(PathBuf),
    #[error("{0} cannot be written: {1}")]
    Unwritable(PathBuf, String),
    #[error(transparent)]
    Database(#[from] Error),
}

/// Copies a database to a new file that only its owner can access. Returns the size of the copy in bytes.
pub fn copy(database: &Path, target: &Path) -> Result<u64, CopyError> {
    let unwritable = |error: io::Error| CopyError::Unwritable(target.to_owned(), error.to_string());
    if target.symlink_metadata().is_ok() {
        return Err(CopyError::Exists(target.to_owned()));
    }
    inspect(database)?;
    let partial = PartialCopy::create_beside(target).map_err(unwritable)?;
    let source = open(database, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(Error::from)?;
    let name = partial.0.to_str().ok_or_else(|| unwritable(io::Error::other("the name is not UTF-8")))?;
    source.execute("VACUUM INTO ?1", [name]).map_err(|error| match Error::from(error) {
        Error::Full => unwritable(io::ErrorKind::StorageFull.into()),
        other => CopyError::Database(other),
    })?;
    drop(source);
    inspect(&partial.0)?;
    verify(&partial.0, FULL_CHECK)?;
    let file = File::open(&partial.0).map_err(unwritable)?;
    file.sync_all().map_err(unwritable)?;
    let bytes = file.metadata().map_err(unwritable)?.len();
    partial.rename_to(target).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CopyError::Exists(target.to_owned()),
        _ => unwritable(error),
    })?;
    Ok(bytes)
}

/// An unfinished copy. Dropping it deletes the file, unless it was renamed.
struct PartialCopy(PathBuf);

impl PartialCopy {
    /// Creates an empty file, so that the copy is private from the start. SQLite takes an empty file for a
    /// new database.
    fn create_beside(target: &Path) -> io::Result<Self> {
        let mut name = target
            .file_name()
            .ok_or_else(|| io::Error::other("the path does not end in a file name"))?
            .to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self(path))
    }

    /// Gives the copy its final name, unless that file exists by now, and syncs the folder.
    fn rename_to(&self, target: &Path) -> io::Result<()> {
        match renameat_with(CWD, &self.0, CWD, target, RenameFlags::NOREPLACE) {
            // The file system does not support NOREPLACE. `copy` has checked that `target` did not exist.
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(&self.0, target)?,
            result => result?,
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        // Fails after `rename_to`, because the file has another name then.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{DataFolder, Database, Migrations};

    fn database(folder: &Path) -> (Database, PathBuf) {
        let folder = DataFolder::take(folder).unwrap();
        let path = folder.database();
        (Database::open(folder, &Migrations::new([crate::MIGRATIONS])).unwrap(), path)
    }

    #[test]
    fn a_copy_is_complete_and_private_and_never_overwrites_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (_database, path) = database(dir.path());
        let target = dir.path().join("copy.db");
        let bytes = copy(&path, &target).unwrap();
        let file = target.metadata().unwrap();
        assert_eq!((file.len(), file.permissions().mode() & 0o777), (bytes, 0o600));
        inspect(&target).unwrap();
        assert!(matches!(copy(&path, &target), Err(CopyError::Exists(_))));
        let missing_folder = dir.path().join("no/such/folder/copy.db");
        assert!(matches!(copy(&path, &missing_folder), Err(CopyError::Unwritable(..))));
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(left.iter().all(|path| path.extension().is_none_or(|end| end != "part")), "{left:?}");
    }

    #[test]
    fn a_damaged_file_gives_no_copy() {
        let dir = tempfile::tempdir().unwrap();
        let (open, path) = database(dir.path());
        drop(open);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let page: i64 = connection
            .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'bongsu_once_age'", [], |row| {
                row.get(0)
            })
            .unwrap();
        connection
            .execute_batch(
                "INSERT INTO bongsu_once (scope, once_key, at) VALUES ('a', 'b', 0);
                 PRAGMA wal_checkpoint(TRUNCATE)",
            )
            .unwrap();
        let size: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        drop(connection);
        let mut bytes = std::fs::read(&path).unwrap();
        let from = usize::try_from((page - 1) * size).unwrap();
        bytes[from..from + 200].fill(0xAA);
        std::fs::write(&path, bytes).unwrap();
        let target = dir.path().join("copy.db");
        let outcome = copy(&path, &target);
        assert!(
            outcome.is_err() || verify(&target, FULL_CHECK).is_ok(),
            "a copy that was reported as done is complete"
        );
    }
}
