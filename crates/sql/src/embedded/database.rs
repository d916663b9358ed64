//! The SQLite file: opened with verified settings, recognised by its application id, refused when it belongs to another
//! program. A new file is created atomically.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::folder::FILE_MODE;
use super::writer::OpenFile;
use crate::{DataFolder, Error, Migrations, Readers, Writer, WriterThread};

/// `BONG` in ASCII, stored in the file's header: marks the files of this program.
pub(crate) const APPLICATION_ID: i32 = 0x424F_4E47;

/// The size in bytes up to which a start checks the file for damage. Larger files would take minutes; only `bongsu
/// doctor` checks them.
const MAX_STARTUP_CHECK_SIZE: u64 = 128 << 20;

/// An open database. Its folder stays locked until this value is dropped.
pub struct Database {
    folder: DataFolder,
    path: PathBuf,
}

/// A data folder whose file may be opened and migrated. Neither making nor dropping this value changes the folder.
pub struct PreparedFile {
    folder: DataFolder,
    migrations: Migrations,
}

impl PreparedFile {
    /// Checks the folder and an existing file: permissions, damage, migrations.
    pub fn prepare(folder: DataFolder, migrations: &Migrations) -> Result<Self, Error> {
        folder.check_private()?;
        let path = folder.database();
        if path.symlink_metadata().is_ok() {
            inspect(&path)?;
            if path.metadata().is_ok_and(|file| file.len() <= MAX_STARTUP_CHECK_SIZE) {
                check_integrity(&path)?;
            }
        } else if path.with_extension("db-wal").metadata().is_ok_and(|log| log.len() > 0) {
            let why = "the file is missing, but the write-ahead log beside it contains changes";
            return Err(Error::Damaged(path, why.to_owned()));
        }
        migrations.check(&path)?;
        Ok(Self { folder, migrations: migrations.clone() })
    }

    /// Opens the file. Creates and migrates it as needed.
    pub fn migrate(self) -> Result<Database, Error> {
        let path = self.folder.database();
        self.folder.make_private()?;
        self.folder.write_pid()?;
        if path.symlink_metadata().is_err() {
            create(&path)?;
        }
        let database = Database { path, folder: self.folder };
        let mut connection = database.connect()?;
        self.migrations.run(&mut connection, &database.path)?;
        Ok(database)
    }
}

impl Database {
    /// Opens the file in a folder. Creates and migrates it as needed, after all checks of an existing file.
    pub fn open(folder: DataFolder, migrations: &Migrations) -> Result<Self, Error> {
        PreparedFile::prepare(folder, migrations)?.migrate()
    }

    /// Starts the writer thread, which calls `on_panic` when it ends by a panic.
    pub fn writer(&self, on_panic: impl FnOnce() + Send + 'static) -> Result<(Writer, WriterThread), Error> {
        Writer::start(self.connect()?, OpenFile::of(&self.path)?, on_panic)
    }

    /// Opens connections that only read.
    pub fn readers(&self, count: usize) -> Result<Readers, Error> {
        let connect = || {
            let connection = self.connect()?;
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        };
        Ok(Readers::new((0..count).map(|_| connect()).collect::<Result<_, Error>>()?))
    }

    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// Opens a connection that syncs every commit. Reads the settings back, because no test by `kill -9` would notice a
    /// missing sync.
    fn connect(&self) -> Result<Connection, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = open(&self.path, flags)?;
        let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // A page cache of 16 MiB, and a checkpoint when the write-ahead log has about 16 MiB.
        connection.pragma_update(None, "cache_size", -16_384)?;
        connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.set_prepared_statement_cache_capacity(64);
        let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        if mode != "wal" || synchronous != 2 {
            let why = format!(
                "SQLite reports journal_mode={mode} and synchronous={synchronous} instead of wal and 2"
            );
            return Err(Error::Unusable(self.path.clone(), why));
        }
        Ok(connection)
    }
}

/// Creates a file that contains only the application id. The file gets its name once it is synced, so a crash at any
/// moment leaves a complete file or none, but never an empty one.
fn create(path: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull => Error::Full,
        _ => Error::Unusable(path.to_owned(), error.to_string()),
    };
    let new = path.with_extension("db.new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new).map_err(failed)?;
    let connection = open(&new, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // An unfinished file is deleted by the next start, so it needs no journal.
    connection.execute_batch(&format!("PRAGMA journal_mode=OFF; PRAGMA application_id={APPLICATION_ID}"))?;
    drop(connection);
    file.sync_all().and_then(|()| std::fs::rename(&new, path)).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Opens a connection that does not move the write-ahead log into the file when it is closed, so that a refused file
/// stays unchanged.
pub(crate) fn open(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

/// Refuses an existing file that is not a database of this program. Does not change it.
pub fn inspect(path: &Path) -> Result<(), Error> {
    let foreign = || Error::Foreign(path.to_owned());
    // Read from the header at its fixed offset, without opening a foreign file in SQLite.
    let mut header = [0_u8; 100];
    let mut file = File::open(path).map_err(|error| Error::Unusable(path.to_owned(), error.to_string()))?;
    if file.metadata().is_ok_and(|file| file.len() == 0) {
        return Err(Error::Empty(path.to_owned()));
    }
    file.read_exact(&mut header).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => foreign(),
        _ => Error::Unusable(path.to_owned(), error.to_string()),
    })?;
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(foreign());
    }
    match i32::from_be_bytes([header[68], header[69], header[70], header[71]]) {
        APPLICATION_ID => Ok(()),
        // The header has no application id. The file is accepted if its write-ahead log contains the id, or
        // if it has no tables.
        0 => {
            let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            let query = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            let is_ours = query("PRAGMA application_id").is_ok_and(|id| id == i64::from(APPLICATION_ID));
            let is_empty = query("SELECT count(*) FROM sqlite_schema").is_ok_and(|tables| tables == 0);
            if is_ours || is_empty { Ok(()) } else { Err(foreign()) }
        }
        _ => Err(foreign()),
    }
}

/// Checks the whole file for damage.
pub fn check_integrity(path: &Path) -> Result<(), Error> {
    verify(path, "PRAGMA quick_check(1)")
}

/// Checks a file by a PRAGMA that returns `ok` or a description of the damage.
pub(super) fn verify(path: &Path, pragma: &str) -> Result<(), Error> {
    let damaged = |detail: String| Error::Damaged(path.to_owned(), detail);
    let check = || -> Result<String, rusqlite::Error> {
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.query_row(pragma, [], |row| row.get(0))
    };
    match check() {
        Ok(verdict) if verdict == "ok" => Ok(()),
        // Lines that begin with asterisks are headings.
        Ok(verdict) => {
            Err(damaged(verdict.lines().find(|line| !line.starts_with("***")).unwrap_or(&verdict).to_owned()))
        }
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Err(damaged(error.to_string())),
            _ => Err(error.into()),
        },
    }
}
