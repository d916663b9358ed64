//! The data folder: everything that must survive a crash, for one process at a time, and for one user: everything that
//! was ever published is in it.

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
        "The embedded engine's folder: everything that must survive a crash is in it. One process at a time.";
}

const FOLDER_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
/// Any access of users who are neither the owner nor in the group.
const OTHER_USERS: u32 = 0o007;
const OTHER_USERS_WRITE: u32 = 0o002;
/// The file that says which process holds the folder.
const SIGNATURE: &str = "lock";

/// A folder that this process holds until it is dropped. The lock goes with the process, however it ends.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// The folders that were made for it, the innermost first. Those that are still empty in the end go again.
    made: Vec<PathBuf>,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder when it is missing, and takes it.
    pub fn take(path: &Path) -> Result<Self, Error> {
        let unusable = |error: io::Error| Error::Unusable(path.to_owned(), error.to_string());
        if path.exists() && !path.is_dir() {
            return Err(Error::Unusable(path.to_owned(), "it is not a folder".to_owned()));
        }
        let made = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let made = made.map(Path::to_owned).collect();
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(unusable)?;
        // The folder itself is locked: a file in it could be removed by hand, and the lock with it.
        let lock = File::open(path).map_err(unusable)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Who holds it is a help, not a need.
            let pid = std::fs::read_to_string(path.join(SIGNATURE)).unwrap_or_default();
            let pid = if pid.is_empty() { pid } else { format!(" (pid {})", pid.trim()) };
            return Err(Error::InUse(path.to_owned(), pid));
        }
        Ok(Self { path: path.to_owned(), made, _lock: lock })
    }

    /// Writes down who holds the folder.
    pub(crate) fn sign(&self) -> Result<(), Error> {
        match std::fs::write(self.path.join(SIGNATURE), std::process::id().to_string()) {
            // On a full disk the folder can still be held.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => {
                Err(Error::Unusable(self.path.clone(), error.to_string()))
            }
            _ => Ok(()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a folder that [`make_private`](Self::make_private) could not make private. Changes nothing.
    pub(super) fn check_private(&self) -> Result<(), Error> {
        let unusable = |error: io::Error| Error::Unusable(self.path.clone(), error.to_string());
        let about = self.path.metadata().map_err(unusable)?;
        if about.permissions().mode() & OTHER_USERS_WRITE == 0 {
            return Ok(());
        }
        let me = geteuid();
        let is_mine = me.is_root() || about.uid() == me.as_raw();
        let mut has_foreign_files = false;
        for entry in std::fs::read_dir(&self.path).map_err(unusable)? {
            has_foreign_files |= is_foreign(&entry.map_err(unusable)?.file_name());
        }
        if is_mine && !has_foreign_files {
            return Ok(());
        }
        let why = "other users can write to it. Set its mode to 0700, or name a folder of its own";
        Err(Error::Unusable(self.path.clone(), why.to_owned()))
    }

    /// Takes access to the hub's files away from other users, and to the folder if it holds nothing else: a folder that
    /// was made by hand mostly gives it. Access of the group alone was meant (a program of the group may write the
    /// outbox), and stays.
    pub(super) fn make_private(&self) -> Result<(), Error> {
        let unusable = |why: String| Error::Unusable(self.path.clone(), why);
        let (mut was_open, mut has_foreign_files) = (false, false);
        for entry in std::fs::read_dir(&self.path).map_err(|error| unusable(error.to_string()))? {
            let entry = entry.map_err(|error| unusable(error.to_string()))?;
            if is_own(&entry.file_name()) {
                was_open |= restrict(&entry.path(), FILE_MODE).map_err(|error| {
                    let name = entry.file_name();
                    unusable(format!("other users can read {}, and its mode stays: {error}", name.display()))
                })?;
            }
            has_foreign_files |= is_foreign(&entry.file_name());
        }
        let restricted = if has_foreign_files && is_exposed(&self.path, OTHER_USERS) {
            Err(io::Error::other("it has files of other programs in it"))
        } else {
            restrict(&self.path, FOLDER_MODE)
        };
        let folder = self.path.display();
        match restricted {
            Ok(changed) => was_open |= changed,
            Err(error) if is_exposed(&self.path, OTHER_USERS_WRITE) => {
                return Err(unusable(format!(
                    "other users can write to it, and its mode stays: {error}. Set it to 0700, or name a folder of its own"
                )));
            }
            Err(error) => {
                tracing::warn!(%folder, %error, "other users can list the data folder; they cannot read its files");
            }
        }
        if was_open {
            tracing::warn!(%folder, "other users had access to the data folder; it is 0700 and its files are 0600 now");
        }
        Ok(())
    }

    /// Whether other users have access to a data folder or to the database in it.
    pub fn is_open_to_others(folder: &Path) -> bool {
        is_exposed(folder, OTHER_USERS) || is_exposed(&Self::database_in(folder), OTHER_USERS)
    }

    /// The database file within.
    pub fn database(&self) -> PathBuf {
        Self::database_in(&self.path)
    }

    pub fn database_in(folder: &Path) -> PathBuf {
        folder.join("bongsu.db")
    }
}

/// What the hub itself puts into the folder.
fn is_own(name: &OsStr) -> bool {
    name == SIGNATURE || name.as_bytes().starts_with(b"bongsu.db")
}

fn is_foreign(name: &OsStr) -> bool {
    !is_own(name) && name != "lost+found"
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(path.metadata()?.permissions().mode())
}

fn is_exposed(path: &Path, to: u32) -> bool {
    mode(path).is_ok_and(|mode| mode & to != 0)
}

/// Sets a mode that gives other users access to one that gives it to the owner only. False when it was private.
fn restrict(path: &Path, private: u32) -> io::Result<bool> {
    if mode(path)? & OTHER_USERS == 0 {
        return Ok(false);
    }
    std::fs::set_permissions(path, Permissions::from_mode(private)).map(|()| true)
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        for folder in &self.made {
            // One that holds something stays.
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these modes: its own, and of files in it.
    fn folder(own: u32, files: &[(&str, u32)]) -> (tempfile::TempDir, DataFolder) {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in files {
            std::fs::write(dir.path().join(name), "x").unwrap();
            std::fs::set_permissions(dir.path().join(name), Permissions::from_mode(*mode)).unwrap();
        }
        std::fs::set_permissions(dir.path(), Permissions::from_mode(own)).unwrap();
        let held = DataFolder::take(dir.path()).unwrap();
        (dir, held)
    }

    fn modes(dir: &Path, names: &[&str]) -> Vec<u32> {
        let of = |path: &Path| mode(path).unwrap() & 0o777;
        std::iter::once(of(dir)).chain(names.iter().map(|name| of(&dir.join(name)))).collect()
    }

    #[test]
    fn access_of_other_users_is_taken_away_and_that_of_the_group_stays() {
        let (dir, held) = folder(0o755, &[("bongsu.db", 0o644), ("bongsu.db-wal", 0o604), ("lock", 0o644)]);
        assert!(DataFolder::is_open_to_others(dir.path()));
        held.make_private().unwrap();
        assert_eq!(modes(dir.path(), &["bongsu.db", "bongsu.db-wal", "lock"]), [0o700, 0o600, 0o600, 0o600]);
        assert!(!DataFolder::is_open_to_others(dir.path()));
        let (dir, held) = folder(0o770, &[("bongsu.db", 0o660)]);
        held.make_private().unwrap();
        assert_eq!(modes(dir.path(), &["bongsu.db"]), [0o770, 0o660]);
    }

    #[test]
    fn a_folder_with_files_of_other_programs_keeps_its_mode() {
        let (dir, held) = folder(0o755, &[("bongsu.db", 0o644), ("notes.txt", 0o644)]);
        held.make_private().unwrap();
        assert_eq!(modes(dir.path(), &["bongsu.db", "notes.txt"]), [0o755, 0o600, 0o644]);
        let (dir, held) = folder(0o777, &[("notes.txt", 0o644)]);
        let error = held.make_private().unwrap_err().to_string();
        assert!(error.contains("other users can write to it") && error.contains("0700"), "{error}");
        assert_eq!(modes(dir.path(), &["notes.txt"]), [0o777, 0o644]);
    }

    #[test]
    fn a_folder_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::take(dir.path()).unwrap();
        folder.sign().unwrap();
        let second = DataFolder::take(dir.path()).unwrap_err();
        assert!(matches!(&second, Error::InUse(_, who) if who.contains(&std::process::id().to_string())));
        drop(folder);
        DataFolder::take(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_that_was_made_for_nothing_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        drop(DataFolder::take(&path).unwrap());
        assert!(!dir.path().join("a").exists() && dir.path().exists());
        let folder = DataFolder::take(&path).unwrap();
        folder.sign().unwrap();
        drop(folder);
        assert!(path.join(SIGNATURE).exists());
        // One that was there before is nobody's to remove.
        let empty = dir.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        drop(DataFolder::take(&empty).unwrap());
        assert!(empty.exists());
    }
}
