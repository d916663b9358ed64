//! Where records are kept: in the embedded SQLite file, or on a server that a fleet shares (PostgreSQL, MariaDB).
//!
//! [`Records`] is the same for all of them: a [`Query`] is a file with named arguments, a change is a function of a
//! [`Transaction`] that may run again, and an [`Error`] says whether repeating can help. `embedded` is the engine in
//! the process, which also carries the rooms' log.

pub mod embedded;
mod error;
mod migrate;
mod query;
mod records;
mod transaction;
mod value;

pub use embedded::{
    DATA_DIR, DataFolder, Database, Job, Readers, Store, Writer, WriterState, check_integrity, inspect,
};
pub use error::Error;
pub use migrate::{Migration, Migrations};
pub use query::{Dialect, Query};
pub use records::{Boxed, Change, Records};
pub use rusqlite;
pub use transaction::{Arguments, Transaction};
pub use value::{Row, Value};
