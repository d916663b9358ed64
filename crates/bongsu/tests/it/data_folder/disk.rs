//! A small disk of its own: a tmpfs in a mount namespace that lives until it is dropped. Needs root, or a system
//! that lets people make user namespaces.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bongsu_testkit::tier;
use tempfile::TempDir;

pub(super) struct Disk {
    /// Holds the namespace.
    keeper: Child,
    folder: TempDir,
}

impl Disk {
    /// Makes a disk with these mount options (`size=8m`); none when this system cannot, which is said.
    pub(super) fn mount(options: &str) -> Option<Self> {
        if !tier::needs_engine("unshare") || !tier::needs_engine("nsenter") {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("bongsu-disk-").tempdir().unwrap();
        let script = r#"mount -t tmpfs -o "$2" tmpfs "$1" && echo ready && exec sleep 3600"#;
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(folder.path()).arg(options);
        let mut keeper = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "this system lets nobody mount a disk: run as root");
        Some(Self { keeper, folder })
    }

    /// Where processes in front of which [`Disk::wrapper`] stands find it.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where everybody else finds it.
    pub(super) fn outside(&self) -> PathBuf {
        let path = self.folder.path().strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.keeper.id())).join(path)
    }

    /// The words that let a process see the disk.
    pub(super) fn wrapper(&self) -> Vec<String> {
        let target = self.keeper.id().to_string();
        let mut words = vec!["nsenter", "--target", &target, "--mount"];
        if !rustix::process::geteuid().is_root() {
            words.extend(["--user", "--preserve-credentials"]);
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
