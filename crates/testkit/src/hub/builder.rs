//! Builds a hub: its environment, an optional wrapper command, and on a shared engine the engine's address and a second
//! process.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;

use super::run::HubProcess;
use super::{Hub, Port};
use crate::child_process;
use crate::engine::{Engine, engine};

/// Environment variables that the hub inherits. All others are removed, so that a developer's own settings do not
/// affect tests.
const INHERITED_VARIABLES: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE"];

/// Prepares a hub.
pub struct Builder {
    settings: LaunchSettings,
    data_dir: Option<PathBuf>,
    engine: Engine,
    is_alone: bool,
    has_records: bool,
}

/// How one process of a hub is started.
#[derive(Clone)]
pub(super) struct LaunchSettings {
    bin: PathBuf,
    args: Vec<String>,
    wrapper: Vec<String>,
    /// The variables with the address of the shared engine, if any.
    engine: Vec<(&'static str, String)>,
    /// Variables that the test sets, or removes (None).
    env: Vec<(String, Option<String>)>,
    /// This is a second process: it keeps its own port and folder even if the test sets them.
    is_second: bool,
    /// The value of `ROLES` that the profile sets; None if the profile does not set it.
    roles: Option<&'static str>,
    has_movable_clock: bool,
}

impl Builder {
    pub(super) fn new(bin: &Path) -> Self {
        let bin = bin.canonicalize().unwrap_or_else(|error| panic!("no hub at {}: {error}", bin.display()));
        let settings = LaunchSettings {
            bin,
            args: vec!["serve".to_owned()],
            wrapper: Vec::new(),
            engine: Vec::new(),
            env: Vec::new(),
            is_second: false,
            roles: None,
            has_movable_clock: false,
        };
        Self { settings, data_dir: None, engine: engine(), is_alone: false, has_records: false }
    }

    /// Sets an environment variable. The defaults are `SERVER_HOST=127.0.0.1`, `SERVER_PORT` (a free one), `DATA_DIR`
    /// and `RUST_LOG=info`.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.env.push((name.to_owned(), Some(value.to_string())));
        self
    }

    /// Removes an environment variable that is set by default.
    pub fn without_env(mut self, name: &str) -> Self {
        self.settings.env.push((name.to_owned(), None));
        self
    }

    /// Uses this engine instead of that of the run's profile. On a shared engine the hub has a second process, unless
    /// the test sets or removes `REDIS_URL`.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Lets the test move the clock of the hub ([`Hub::move_clock`]).
    pub fn movable_clock(mut self) -> Self {
        self.settings.has_movable_clock = true;
        self
    }

    /// Starts no second process on a shared engine; the hub keeps its records in its own folder.
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    /// Enables records: on a shared engine in a database that the hub shares with its second process.
    pub fn records(mut self) -> Self {
        self.has_records = true;
        self
    }

    /// Adds an argument after `serve`.
    pub fn arg(mut self, argument: impl ToString) -> Self {
        self.settings.args.push(argument.to_string());
        self
    }

    /// Uses this data folder, which is kept after the hub is dropped, instead of a temporary one.
    pub fn data_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.data_dir = Some(std::path::absolute(path).expect("cannot make the path absolute"));
        self
    }

    /// Starts the hub through another command, for example `strace -f -o file` or `prlimit --fsize=1000000`. The second
    /// process is started without it.
    pub fn wrapper(mut self, command: Vec<String>) -> Self {
        self.settings.wrapper = command;
        self
    }

    /// Starts the hub and waits until it is ready; panics with the end of its log if that fails.
    pub async fn start(self) -> Hub {
        let hub = self.prepare().await;
        hub.launch(&[]).await;
        hub
    }

    /// Starts the hub and expects that it ends by itself. Returns its exit status and its output.
    pub async fn start_expecting_failure(self) -> (ExitStatus, String) {
        self.prepare().await.restart_expecting_failure(&[]).await
    }

    async fn prepare(self) -> Hub {
        let mut settings = self.settings;
        let mut has_second = false;
        // A test that sets or removes REDIS_URL uses its own engine, or none, and decides itself which hubs share it.
        if !settings.mentions("REDIS_URL")
            && let Some(url) = self.engine.shared_url().await
        {
            let number = getrandom::u64().expect("cannot read random bytes from the system");
            settings.engine = vec![("REDIS_URL", url), ("REDIS_KEY_PREFIX", format!("t{number:x}:"))];
            has_second = !self.is_alone;
            if has_second && !settings.mentions("DATABASE_URL") {
                // Two hubs can only keep records if they share a database.
                settings.engine.push(match self.engine.records().filter(|_| self.has_records) {
                    Some(flavour) => ("DATABASE_URL", flavour.database().await),
                    None => ("RECORDS", "off".to_owned()),
                });
            }
        }
        let mut second = LaunchSettings { wrapper: Vec::new(), is_second: true, ..settings.clone() };
        if self.engine == Engine::Split && !self.is_alone && settings.can_be_split() {
            has_second = true;
            (settings.roles, second.roles) = (Some("api"), Some("worker"));
        }
        let second = has_second.then(|| Box::new(hub(second, None, None)));
        hub(settings, self.data_dir, second)
    }
}

/// The file in the hub's working directory that moves the hub's clock.
pub(super) fn clock_file(folder: &Path) -> PathBuf {
    folder.join("clock")
}

fn hub(settings: LaunchSettings, data_dir: Option<PathBuf>, second: Option<Box<Hub>>) -> Hub {
    let folder =
        tempfile::Builder::new().prefix("bongsu-hub-").tempdir().expect("cannot create a temporary folder");
    let data_dir = data_dir.unwrap_or_else(|| folder.path().join("data"));
    Hub { settings, second, port: Port::pick(), data_dir, process: Mutex::new(HubProcess::default()), folder }
}

impl LaunchSettings {
    /// Whether the test sets or removes a variable.
    fn mentions(&self, name: &str) -> bool {
        self.env.iter().any(|(variable, _)| variable == name)
    }

    /// Whether the roles `api` and `worker` can run in separate processes: both use Redis and a database server, and
    /// the test does not set `ROLES` or `RECORDS`.
    fn can_be_split(&self) -> bool {
        let has = |name: &str| {
            let from_test = self.env.iter().rev().find(|(variable, _)| variable == name);
            let from_engine = self.engine.iter().any(|(variable, _)| *variable == name);
            from_test.map_or(from_engine, |(_, value)| value.is_some())
        };
        has("REDIS_URL") && has("DATABASE_URL") && !self.mentions("ROLES") && !self.mentions("RECORDS")
    }

    pub(super) fn is_worker(&self) -> bool {
        self.roles == Some("worker")
    }

    pub(super) fn bin(&self) -> &Path {
        &self.bin
    }

    pub(super) fn command(&self, port: u16, data_dir: &Path, cwd: &Path, env: &[(&str, &str)]) -> Command {
        let mut command = match self.wrapper.split_first() {
            Some((program, rest)) => {
                let mut command = child_process::command(program);
                command.args(rest).arg(&self.bin);
                command
            }
            None => child_process::command(&self.bin),
        };
        // Each hub has its own working directory, so that a core dump stays in it and no stray configuration file is
        // read.
        command.args(&self.args).current_dir(cwd).env_clear();
        for name in INHERITED_VARIABLES {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        let own = [("SERVER_PORT", port.to_string().into()), ("DATA_DIR", data_dir.as_os_str().to_owned())];
        command.env("SERVER_HOST", "127.0.0.1").env("RUST_LOG", "info").envs(own.clone());
        if self.has_movable_clock {
            command.env("BONGSU_CLOCK_FILE", clock_file(cwd));
        }
        command.envs(self.engine.iter().cloned());
        command.envs(self.roles.map(|roles| ("ROLES", roles)));
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.envs(env.iter().copied());
        if self.is_second {
            command.envs(own);
        }
        command
    }
}
