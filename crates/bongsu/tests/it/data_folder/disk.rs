//! A small disk for one test: a tmpfs in a mount namespace that exists until the value is dropped. Needs root, or a
//! system on which unprivileged users can create user namespaces.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bongsu_testkit::tier;
use tempfile::TempDir;

pub(super) struct Disk {
    /// The process that keeps the mount namespace alive.
    namespace_process: Child,
    folder: TempDir,
}

impl Disk {
    /// Mounts a disk with these mount options (`size=8m`). Returns None, after reporting the missing tool, when this
    /// system has no `unshare` or `nsenter`.
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
        let mut namespace_process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufReader::new(namespace_process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "cannot mount a tmpfs: run as root");
        Some(Self { namespace_process, folder })
    }

    /// The path of the disk for processes started through [`Disk::wrapper`].
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the disk for all other processes.
    pub(super) fn outside(&self) -> PathBuf {
        let path = self.folder.path().strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.namespace_process.id())).join(path)
    }

    /// The command prefix that runs a process inside the mount namespace.
    pub(super) fn wrapper(&self) -> Vec<String> {
        let target = self.namespace_process.id().to_string();
        let mut words = vec!["nsenter", "--target", &target, "--mount"];
        if !rustix::process::geteuid().is_root() {
            words.extend(["--user", "--preserve-credentials"]);
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.namespace_process.kill();
        let _ = self.namespace_process.wait();
    }
}
