//! The embedded engine: one SQLite file in one data folder, used by one process.
//!
//! [`DataFolder`] keeps a second process out, [`PreparedFile`] is checked before it is migrated, [`Database`] is the file. Its
//! [`Writer`] is the one thread that writes (every group of jobs is one synced transaction), its [`Readers`] read beside it.
//! The hot path, a room's log, uses these directly; what may also be kept on a server goes through `Records`. [`look()`] and
//! [`copy()`] are for other processes, beside the one that holds the folder.

mod copy;
mod database;
mod folder;
mod look;
mod readers;
mod store;
mod writer;

pub use copy::{CopyError, copy};
pub(crate) use database::{APPLICATION_ID, open};
pub use database::{Database, PreparedFile, check_integrity, inspect};
pub use folder::{DATA_DIR, DataFolder};
pub use look::look;
pub use readers::Readers;
pub use store::Store;
pub use writer::{Job, Writer, WriterState};
