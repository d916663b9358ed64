//! The data folder: everything that must survive a crash, for one process at a time.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use bongsu_kernel::settings::Setting;
use rustix::fs::{FlockOperation, flock};

use crate::Error;

pub const DATA_DIR: Setting = Setting::text(
    "storage",
    "DATA_DIR",
    "./bongsu-data",
    "The embedded engine's folder: everything that must survive a crash is in it. One process at a time.",
);

/// A folder that this process holds until it is dropped. The lock goes with the process, however it ends.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder when it is missing, and takes it.
    pub fn take(path: &Path) -> Result<Self, Error> {
        let unusable = |error: std::io::Error| Error::Unusable(path.to_owned(), error.to_string());
        if path.exists() && !path.is_dir() {
            return Err(Error::Unusable(path.to_owned(), "it is not a folder".to_owned()));
        }
        // Everything that was ever published is in it: nobody else's business.
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        // The folder itself is locked: a file in it could be removed by hand, and the lock with it.
        let lock = File::open(path).map_err(unusable)?;
        let holder = path.join("lock");
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Who holds it is a help, not a need.
            let pid = std::fs::read_to_string(&holder).unwrap_or_default();
            let pid = if pid.is_empty() { pid } else { format!(" (pid {})", pid.trim()) };
            return Err(Error::InUse(path.to_owned(), pid));
        }
        match std::fs::write(&holder, std::process::id().to_string()) {
            // On a full disk the folder can still be held.
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => Err(unusable(error)),
            _ => Ok(Self { path: path.to_owned(), _lock: lock }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file within.
    pub fn database(&self) -> PathBuf {
        Self::database_in(&self.path)
    }

    pub fn database_in(folder: &Path) -> PathBuf {
        folder.join("bongsu.db")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(dir.path()).unwrap();
        let second = DataFolder::take(dir.path()).unwrap_err();
        assert!(matches!(&second, Error::InUse(_, who) if who.contains(&std::process::id().to_string())));
        drop(folder);
        DataFolder::take(dir.path()).unwrap();
    }
}
