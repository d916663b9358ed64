//! Where records are kept: in the embedded SQLite file, or on a server that a fleet shares (PostgreSQL, MariaDB).
//!
//! [`Records`] is the same for all of them: a [`Query`] is a file with named arguments, a change is a function of a
//! [`Transaction`] that may run again, and an [`Error`] says whether repeating can help. `embedded` is the engine in
//! the process, which also carries the rooms' log.

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
pub mod work;

use bongsu_kernel::findings::Inspection;

pub use address::Address;
pub use embedded::{
    CopyError, DATA_DIR, DataFolder, Database, Job, PreparedFile, Readers, Store, Writer, WriterState,
    check_integrity, copy, inspect, look,
};
pub use error::Error;
pub use migrate::{Migration, Migrations};
pub use names::{Identifier, Names, TableName};
pub use once::{MOST_KEY, forget_before, once};
pub use options::{DATABASE_URL, Options, SETTINGS};
pub use query::{Dialect, Query, replace_arguments};
pub use records::{Boxed, Change, Claim, Records};
pub use rusqlite;
pub use server::PreparedServer;
pub use transaction::{Arguments, Transaction};
pub use value::{Row, Value};

/// The tables of this crate's own.
pub const MIGRATIONS: &[Migration] = &[migration!("sql", 1, "0001_once"), migration!("sql", 2, "0002_work")];

/// This crate's queries, for the test that every database understands them.
pub fn queries() -> impl Iterator<Item = &'static Query> {
    once::QUERIES.iter().chain(work::QUERIES).copied()
}

/// Looks at a server without changing anything: whether this program may use it, and what is unsafe about it.
pub async fn inspect_server(address: &Address, migrations: &Migrations) -> Result<Inspection, Error> {
    server::inspect(address, migrations).await
}
