//! Storage of records: in the embedded SQLite file, or on a server that a fleet shares (PostgreSQL, MariaDB, MySQL).
//!
//! [`Records`] has the same interface for all of them. A [`Query`] is a file with named arguments, a [`Change`] is a
//! function of a [`Transaction`] that may run again after a conflict, and an [`Error`] says whether a retry can help.
//! `embedded` is the engine in the process, which also stores the logs of rooms.

mod address;
pub mod embedded;
mod error;
mod migrate;
mod names;
mod once;
mod options;
mod query;
mod records;
mod server;
mod transaction;
mod value;

pub use address::DatabaseAddress;
pub use bongsu_kernel::BoxFuture;
pub use embedded::{
    CopyError, DATA_DIR, DataFolder, Database, Job, PreparedFile, Readers, Store, Writer, WriterThread,
    check_integrity, copy, inspect, open_read_only,
};
pub use error::{Error, Result};
pub use migrate::{Migration, Migrations};
pub use names::{Identifier, Names, TableName};
pub use once::{MAX_ONCE_KEY_LEN, delete_once_keys_before, record_once};
pub use options::{DATABASE_URL, Options, SETTINGS};
pub use query::{Dialect, Query, replace_arguments};
pub use records::{Change, DatabaseLock, Records};
pub use rusqlite;
pub use server::{PreparedServer, inspect_server};
pub use transaction::{Arguments, Transaction};
pub use value::{Row, Value};

/// The migrations of this crate's own tables.
pub const MIGRATIONS: &[Migration] = &[
    crate::migration!("sql", 1, "0001_once"),
    crate::migration!("sql", 2, "0002_work"),
    crate::migration!("sql", 3, "0003_drop_work"),
];

/// This crate's queries, for the test that prepares every query on every database.
pub fn queries() -> impl Iterator<Item = &'static Query> {
    once::QUERIES.iter().copied()
}
