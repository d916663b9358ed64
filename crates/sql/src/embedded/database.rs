//! The SQLite file: opened with checked settings, known by its own mark, refused when it is not ours. A new one is there
//! whole, or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::folder::FILE_MODE;
use super::writer::OpenFile;
use crate::{DataFolder, Error, Migrations, Readers, Writer, WriterState};

/// `BONG` in ASCII, in the file's header: what tells our files from others.
pub(crate) const APPLICATION_ID: i32 = 0x424F_4E47;

/// Larger files are checked by `bongsu doctor` only: a start must not take minutes.
const CHECK_AT_START_UP_TO: u64 = 128 << 20;

/// An open database. Its folder stays held as long as it lives.
pub struct Database {
    folder: DataFolder,
    path: PathBuf,
}

/// A data folder whose file may be opened and migrated. Nothing in it was changed yet, and nothing is when this is dropped.
pub struct PreparedFile {
    folder: DataFolder,
    migrations: Migrations,
}

impl PreparedFile {
    /// Finds whatever is wrong with an existing file.
    pub fn prepare(folder: DataFolder, migrations: &Migrations) -> Result<Self, Error> {
        folder.check_private()?;
        let path = folder.database();
        if path.symlink_metadata().is_ok() {
            inspect(&path)?;
            if path.metadata().is_ok_and(|file| file.len() <= CHECK_AT_START_UP_TO) {
                check_integrity(&path)?;
            }
        } else if path.with_extension("db-wal").metadata().is_ok_and(|log| log.len() > 0) {
            let why = "it is missing, and the write-ahead log beside it has changes for it";
            return Err(Error::Damaged(path, why.to_owned()));
        }
        migrations.check(&path)?;
        Ok(Self { folder, migrations: migrations.clone() })
    }

    /// Opens the file, making and migrating it as needed.
    pub fn migrate(self) -> Result<Database, Error> {
        let path = self.folder.database();
        self.folder.make_private()?;
        self.folder.sign()?;
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
    /// Opens the file in a folder, making and migrating it as needed. Whatever is wrong with an existing file is found before
    /// anything is written to it.
    pub fn open(folder: DataFolder, migrations: &Migrations) -> Result<Self, Error> {
        PreparedFile::prepare(folder, migrations)?.migrate()
    }

    /// Starts the writer thread.
    pub fn writer(&self, died: impl FnOnce() + Send + 'static) -> Result<(Writer, WriterState), Error> {
        Writer::start(self.connect()?, OpenFile::of(&self.path)?, died)
    }

    /// Opens the connections that read beside the writer.
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

    /// A connection that syncs every commit. The settings are read back: kill -9 cannot show that one is missing.
    fn connect(&self) -> Result<Connection, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = open(&self.path, flags)?;
        let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // 16 MiB of pages in memory; the log before a checkpoint stays at about 16 MiB too.
        connection.pragma_update(None, "cache_size", -16_384)?;
        connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.set_prepared_statement_cache_capacity(64);
        let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        if mode != "wal" || synchronous != 2 {
            return Err(Error::Unusable(
                self.path.clone(),
                format!("journal mode {mode}, synchronous {synchronous} instead of wal and 2"),
            ));
        }
        Ok(connection)
    }
}

/// Makes a file that holds only our mark. It gets its name once it is durable: so one without content is never ours, and
/// a crash at any moment leaves all of it or none.
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
    // What is not finished is made anew: there is nothing to roll back.
    connection.execute_batch(&format!("PRAGMA journal_mode=OFF; PRAGMA application_id={APPLICATION_ID}"))?;
    drop(connection);
    file.sync_all().and_then(|()| std::fs::rename(&new, path)).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Closing must not change a file that is refused: by default the last connection moves the write-ahead log into it.
pub(crate) fn open(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

/// Says whether an existing file is one of ours, without changing it.
pub fn inspect(path: &Path) -> Result<(), Error> {
    let foreign = || Error::Foreign(path.to_owned());
    // The mark stands at a fixed place in the header, so that no engine need touch a foreign file.
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
        // Killed in its first moments, our file has its mark only in the log beside it, or is still empty.
        0 => {
            let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            let ours = ask("PRAGMA application_id").is_ok_and(|mark| mark == i64::from(APPLICATION_ID));
            let empty = ask("SELECT count(*) FROM sqlite_schema").is_ok_and(|tables| tables == 0);
            if ours || empty { Ok(()) } else { Err(foreign()) }
        }
        _ => Err(foreign()),
    }
}

/// Reads the whole file for damage.
pub fn check_integrity(path: &Path) -> Result<(), Error> {
    verify(path, "PRAGMA quick_check(1)")
}

/// The same by a question of SQLite's that gives `ok`, or what is wrong.
pub(super) fn verify(path: &Path, question: &str) -> Result<(), Error> {
    let damaged = |detail: String| Error::Damaged(path.to_owned(), detail);
    let check = || -> Result<String, rusqlite::Error> {
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.query_row(question, [], |row| row.get(0))
    };
    match check() {
        Ok(verdict) if verdict == "ok" => Ok(()),
        // The first line is a heading.
        Ok(verdict) => {
            Err(damaged(verdict.lines().find(|line| !line.starts_with("***")).unwrap_or(&verdict).to_owned()))
        }
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Err(damaged(error.to_string())),
            _ => Err(error.into()),
        },
    }
}
