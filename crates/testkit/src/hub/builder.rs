//! What a hub is started with: its environment, a wrapper before it, and on an engine that hubs share where that is
//! and a second process.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;

use super::run::Run;
use super::{Hub, Port};
use crate::engine::{Engine, engine};
use crate::mortal;

/// Inherited by the hub; everything else in the environment is hidden from it, so that a developer's own settings
/// change no test.
const INHERITED: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE"];

/// Prepares a hub.
pub struct Builder {
    setup: Setup,
    data_dir: Option<PathBuf>,
    engine: Engine,
    alone: bool,
    records: bool,
}

#[derive(Clone)]
pub(super) struct Setup {
    bin: PathBuf,
    args: Vec<String>,
    wrapper: Vec<String>,
    /// Where the engine is, for a hub that shares one.
    engine: Vec<(&'static str, String)>,
    env: Vec<(String, Option<String>)>,
    /// A second process keeps its own port and folder, whatever the first one is told.
    is_second: bool,
    /// `ROLES`, where the profile and not the test says it.
    roles: Option<&'static str>,
    has_movable_clock: bool,
}

impl Builder {
    pub(super) fn new(bin: &Path) -> Self {
        let bin = bin.canonicalize().unwrap_or_else(|error| panic!("no hub at {}: {error}", bin.display()));
        let setup = Setup {
            bin,
            args: vec!["serve".to_owned()],
            wrapper: Vec::new(),
            engine: Vec::new(),
            env: Vec::new(),
            is_second: false,
            roles: None,
            has_movable_clock: false,
        };
        Self { setup, data_dir: None, engine: engine(), alone: false, records: false }
    }

    /// Sets a variable, over the defaults: `SERVER_HOST=127.0.0.1`, `SERVER_PORT` (a free one), `DATA_DIR`,
    /// `RUST_LOG=info`.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.setup.env.push((name.to_owned(), Some(value.to_string())));
        self
    }

    /// Leaves out a variable that is set otherwise.
    pub fn without_env(mut self, name: &str) -> Self {
        self.setup.env.push((name.to_owned(), None));
        self
    }

    /// Runs on this engine, whatever the run's profile is. On one that hubs share there are two of them, unless the
    /// test itself says something about `REDIS_URL`.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Lets the test move the hub's time forward ([`Hub::move_clock`]).
    pub fn movable_clock(mut self) -> Self {
        self.setup.has_movable_clock = true;
        self
    }

    /// Has no second process on a shared engine, and keeps records in its own folder.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Keeps records: on a shared engine in a database that it shares with its second process.
    pub fn records(mut self) -> Self {
        self.records = true;
        self
    }

    /// One more argument after `serve`.
    pub fn arg(mut self, argument: impl ToString) -> Self {
        self.setup.args.push(argument.to_string());
        self
    }

    /// Uses this folder, which outlives the hub, instead of one of its own.
    pub fn data_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.data_dir = Some(std::path::absolute(path).expect("an absolute path"));
        self
    }

    /// Puts a command in front, for example `strace -f -o file` or `prlimit --fsize=1000000`. A second process has none.
    pub fn wrapper(mut self, words: Vec<String>) -> Self {
        self.setup.wrapper = words;
        self
    }

    /// Starts the hub and waits until it is ready; panics with the end of its log when that fails.
    pub async fn start(self) -> Hub {
        let hub = self.prepare().await;
        hub.launch(&[]).await;
        hub
    }

    /// Starts the hub expecting that it refuses: its exit status and all it wrote.
    pub async fn start_expecting_failure(self) -> (ExitStatus, String) {
        self.prepare().await.restart_expecting_failure(&[]).await
    }

    async fn prepare(self) -> Hub {
        let mut setup = self.setup;
        let mut has_second = false;
        // A test that brings an engine of its own, or wants none, has its own idea of who uses it.
        if !setup.mentions("REDIS_URL")
            && let Some(url) = self.engine.shared_url().await
        {
            let number = getrandom::u64().expect("the system gives random bytes");
            setup.engine = vec![("REDIS_URL", url), ("REDIS_KEY_PREFIX", format!("t{number:x}:"))];
            has_second = !self.alone;
            if has_second && !setup.mentions("DATABASE_URL") {
                // Without a database of their own, two hubs cannot both keep records.
                setup.engine.push(match self.engine.records().filter(|_| self.records) {
                    Some(flavour) => ("DATABASE_URL", flavour.database().await),
                    None => ("RECORDS", "off".to_owned()),
                });
            }
        }
        let mut second = Setup { wrapper: Vec::new(), is_second: true, ..setup.clone() };
        if self.engine == Engine::Split && !self.alone && setup.can_be_split() {
            has_second = true;
            (setup.roles, second.roles) = (Some("api"), Some("worker"));
        }
        let second = has_second.then(|| Box::new(hub(second, None, None)));
        hub(setup, self.data_dir, second)
    }
}

/// The file by which a hub's time is moved, in the folder that it runs in.
pub(super) fn clock_file(folder: &Path) -> PathBuf {
    folder.join("clock")
}

fn hub(setup: Setup, data_dir: Option<PathBuf>, second: Option<Box<Hub>>) -> Hub {
    let folder = tempfile::Builder::new().prefix("bongsu-hub-").tempdir().expect("a temporary folder");
    let data_dir = data_dir.unwrap_or_else(|| folder.path().join("data"));
    Hub { setup, second, port: Port::pick(), data_dir, run: Mutex::new(Run::default()), folder }
}

impl Setup {
    /// Whether the test sets or leaves out a variable.
    fn mentions(&self, name: &str) -> bool {
        self.env.iter().any(|(is, _)| is == name)
    }

    /// Whether `api` and `worker` can be processes of their own: they share Redis and a database, and the test says nothing
    /// about roles.
    fn can_be_split(&self) -> bool {
        let has = |name: &str| {
            let given = self.env.iter().rev().find(|(is, _)| is == name);
            given.map_or(self.engine.iter().any(|(is, _)| *is == name), |(_, value)| value.is_some())
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
                let mut command = mortal::command(program);
                command.args(rest).arg(&self.bin);
                command
            }
            None => mortal::command(&self.bin),
        };
        // A folder of its own to run in: a core file or a configuration file lying about stays out of the way.
        command.args(&self.args).current_dir(cwd).env_clear();
        for name in INHERITED {
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
