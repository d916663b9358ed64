//! The embedded store: one SQLite file in one data folder, used by one process.
//!
//! [`DataFolder`] keeps a second process out, [`Database`] opens and migrates the file, its [`Writer`] is the one
//! thread that writes (every group of jobs is one synced transaction), its [`Readers`] read beside it.

mod database;
mod error;
mod folder;
mod migrate;
mod readers;
mod store;
mod writer;

pub use database::{Database, check_integrity, inspect};
pub use error::Error;
pub use folder::{DATA_DIR, DataFolder};
pub use migrate::{Migration, Migrations};
pub use readers::Readers;
pub use rusqlite;
pub use store::Store;
pub use writer::{Job, Writer, WriterState};
