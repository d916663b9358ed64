//! The embedded engine: one SQLite file in one data folder, used by one process.
//!
//! [`DataFolder`] locks the folder, [`PreparedFile`] is a file that was checked before its migration, [`Database`] is
//! the open file. Only the thread of its [`Writer`] writes (each group of jobs is one synced transaction); its
//! [`Readers`] read at the same time. The logs of rooms use these types directly; data that may also be on a server
//! goes through `Records`. [`open_read_only()`] and [`copy()`] work while another process holds the folder.

mod copy;
mod database;
mod folder;
mod read_only;
mod readers;
mod store;
mod writer;

pub use copy::{CopyError, copy};
pub(crate) use database::{APPLICATION_ID, open};
pub use database::{Database, PreparedFile, check_integrity, inspect};
pub use folder::{DATA_DIR, DataFolder};
pub use read_only::open_read_only;
pub use readers::Readers;
pub use store::Store;
pub use writer::{Job, Writer, WriterThread};
