//! The data folder, which contains everything that must survive a crash. One process at a time uses it, and other users
//! have no access, because it contains every published event.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bongsu_kernel::settings::Scope;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use crate::Error;

bongsu_kernel::settings! { "storage":
    pub DATA_DIR = "./bongsu-data", scope(Scope::Instance):
        "The folder of the embedded engine, with everything that must survive a crash. One process at a time can use it.";
}

const FOLDER_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
/// Any access of users who are neither the owner nor in the group.
const OTHER_USERS: u32 = 0o007;
const OTHER_USERS_WRITE: u32 = 0o002;
/// The file with the id of the process that holds the folder.
const PID_FILE: &str = "lock";

/// A folder that is locked until this value is dropped. The lock also ends when the process ends or is killed.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// The folders that `take` created, the innermost first. Drop removes those that are still empty.
    created: Vec<PathBuf>,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder if it is missing, and locks it.
    pub fn take(path: &Path) -> Result<Self, Error> {
        let unusable = |error: io::Error| Error::Unusable(path.to_owned(), error.to_string());
        if path.exists() && !path.is_dir() {
            return Err(Error::Unusable(path.to_owned(), "it is not a folder".to_owned()));
        }
        let missing =
            path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let created = missing.map(Path::to_owned).collect();
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(unusable)?;
        // Locks the folder itself, because a lock file could be removed by hand.
        let lock = File::open(path).map_err(unusable)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            // The error names the process if its id can be read.
            let pid = std::fs::read_to_string(path.join(PID_FILE)).unwrap_or_default();
            let pid = if pid.is_empty() { pid } else { format!(" (pid {})", pid.trim()) };
            return Err(Error::InUse(path.to_owned(), pid));
        }
        Ok(Self { path: path.to_owned(), created, _lock: lock })
    }

    /// Writes the id of this process to the folder.
    pub(crate) fn write_pid(&self) -> Result<(), Error> {
        match std::fs::write(self.path.join(PID_FILE), std::process::id().to_string()) {
            // The id is only informative, so a full disk is no reason to refuse the folder.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => {
                Err(Error::Unusable(self.path.clone(), error.to_string()))
            }
            _ => Ok(()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a folder to which other users can write and whose mode [`make_private`](Self::make_private) would not
    /// change. Changes nothing.
    pub(super) fn check_private(&self) -> Result<(), Error> {
        let unusable = |error: io::Error| Error::Unusable(self.path.clone(), error.to_string());
        let metadata = self.path.metadata().map_err(unusable)?;
        if metadata.permissions().mode() & OTHER_USERS_WRITE == 0 {
            return Ok(());
        }
        let user = geteuid();
        let is_owner = user.is_root() || metadata.uid() == user.as_raw();
        let mut has_foreign_files = false;
        for entry in std::fs::read_dir(&self.path).map_err(unusable)? {
            has_foreign_files |= is_foreign(&entry.map_err(unusable)?.file_name());
        }
        if is_owner && !has_foreign_files {
            return Ok(());
        }
        let why = "other users can write to it. Set its mode to 0700, or set DATA_DIR to a separate folder";
        Err(Error::Unusable(self.path.clone(), why.to_owned()))
    }

    /// Removes the access of other users to the hub's files, and to the folder if it contains no other files: a folder
    /// that was created by hand usually gives that access. A mode that gives access only to the group stays, because a
    /// program of the group may write the outbox.
    pub(super) fn make_private(&self) -> Result<(), Error> {
        let unusable = |why: String| Error::Unusable(self.path.clone(), why);
        let (mut was_open, mut has_foreign_files) = (false, false);
        for entry in std::fs::read_dir(&self.path).map_err(|error| unusable(error.to_string()))? {
            let entry = entry.map_err(|error| unusable(error.to_string()))?;
            if is_own(&entry.file_name()) {
                was_open |= restrict(&entry.path(), FILE_MODE).map_err(|error| {
                    let name = entry.file_name();
                    unusable(format!(
                        "other users can read {}, and its mode cannot be changed: {error}",
                        name.display()
                    ))
                })?;
            }
            has_foreign_files |= is_foreign(&entry.file_name());
        }
        let restricted = if has_foreign_files && is_exposed(&self.path, OTHER_USERS) {
            Err(io::Error::other("it contains files of other programs"))
        } else {
            restrict(&self.path, FOLDER_MODE)
        };
        let folder = self.path.display();
        match restricted {
            Ok(changed) => was_open |= changed,
            Err(error) if is_exposed(&self.path, OTHER_USERS_WRITE) => {
                return Err(unusable(format!(
                    "other users can write to it, and its mode cannot be changed: {error}. Set it to 0700, or set DATA_DIR to a \
                     separate folder"
                )));
            }
            Err(error) => {
                tracing::warn!(
                    %folder,
                    %error,
                    "failed to set the mode of the data folder to 0700; other users may list it, but cannot read the hub's files"
                );
            }
        }
        if was_open {
            tracing::warn!(%folder, "other users had access to the data folder; changed its mode to 0700 and that of its files to 0600");
        }
        Ok(())
    }

    /// Whether other users have access to a data folder or to the database in it.
    pub fn is_open_to_others(folder: &Path) -> bool {
        is_exposed(folder, OTHER_USERS) || is_exposed(&Self::database_in(folder), OTHER_USERS)
    }

    /// The path of the database file.
    pub fn database(&self) -> PathBuf {
        Self::database_in(&self.path)
    }

    pub fn database_in(folder: &Path) -> PathBuf {
        folder.join("bongsu.db")
    }
}

/// Whether the hub itself creates a file with this name.
fn is_own(name: &OsStr) -> bool {
    name == PID_FILE || name.as_bytes().starts_with(b"bongsu.db")
}

fn is_foreign(name: &OsStr) -> bool {
    !is_own(name) && name != "lost+found"
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(path.metadata()?.permissions().mode())
}

/// Whether a path has any of these permission bits.
fn is_exposed(path: &Path, bits: u32) -> bool {
    mode(path).is_ok_and(|mode| mode & bits != 0)
}

/// Sets the private mode if other users have access. Returns whether they had access.
fn restrict(path: &Path, private_mode: u32) -> io::Result<bool> {
    if mode(path)? & OTHER_USERS == 0 {
        return Ok(false);
    }
    std::fs::set_permissions(path, Permissions::from_mode(private_mode)).map(|()| true)
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        for folder in &self.created {
            // Fails for a folder that is not empty.
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder and the files in it, each with its mode.
    fn folder(folder_mode: u32, files: &[(&str, u32)]) -> (tempfile::TempDir, DataFolder) {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in files {
            std::fs::write(dir.path().join(name), "x").unwrap();
            std::fs::set_permissions(dir.path().join(name), Permissions::from_mode(*mode)).unwrap();
        }
        std::fs::set_permissions(dir.path(), Permissions::from_mode(folder_mode)).unwrap();
        let folder = DataFolder::take(dir.path()).unwrap();
        (dir, folder)
    }

    fn modes(dir: &Path, names: &[&str]) -> Vec<u32> {
        let bits = |path: &Path| mode(path).unwrap() & 0o777;
        std::iter::once(bits(dir)).chain(names.iter().map(|name| bits(&dir.join(name)))).collect()
    }

    #[test]
    fn access_of_other_users_is_taken_away_and_that_of_the_group_stays() {
        let (dir, data_folder) =
            folder(0o755, &[("bongsu.db", 0o644), ("bongsu.db-wal", 0o604), ("lock", 0o644)]);
        assert!(DataFolder::is_open_to_others(dir.path()));
        data_folder.make_private().unwrap();
        assert_eq!(modes(dir.path(), &["bongsu.db", "bongsu.db-wal", "lock"]), [0o700, 0o600, 0o600, 0o600]);
        assert!(!DataFolder::is_open_to_others(dir.path()));
        let (dir, data_folder) = folder(0o770, &[("bongsu.db", 0o660)]);
        data_folder.make_private().unwrap();
        assert_eq!(modes(dir.path(), &["bongsu.db"]), [0o770, 0o660]);
    }

    #[test]
    fn a_folder_with_files_of_other_programs_keeps_its_mode() {
        let (dir, data_folder) = folder(0o755, &[("bongsu.db", 0o644), ("notes.txt", 0o644)]);
        data_folder.make_private().unwrap();
        assert_eq!(modes(dir.path(), &["bongsu.db", "notes.txt"]), [0o755, 0o600, 0o644]);
        let (dir, data_folder) = folder(0o777, &[("notes.txt", 0o644)]);
        let error = data_folder.make_private().unwrap_err().to_string();
        assert!(error.contains("other users can write to it") && error.contains("0700"), "{error}");
        assert_eq!(modes(dir.path(), &["notes.txt"]), [0o777, 0o644]);
    }

    #[test]
    fn a_folder_is_locked_by_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(dir.path()).unwrap();
        folder.write_pid().unwrap();
        let second = DataFolder::take(dir.path()).unwrap_err();
        assert!(matches!(&second, Error::InUse(_, pid) if pid.contains(&std::process::id().to_string())));
        drop(folder);
        DataFolder::take(dir.path()).unwrap();
    }

    #[test]
    fn a_created_folder_that_stays_empty_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        drop(DataFolder::take(&path).unwrap());
        assert!(!dir.path().join("a").exists() && dir.path().exists());
        let folder = DataFolder::take(&path).unwrap();
        folder.write_pid().unwrap();
        drop(folder);
        assert!(path.join(PID_FILE).exists());
        // A folder that `take` did not create stays.
        let empty = dir.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        drop(DataFolder::take(&empty).unwrap());
        assert!(empty.exists());
    }
}
