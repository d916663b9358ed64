//! The engines of a test run: every engine of `bongsu_engines::ENGINES`, all started in parallel at the beginning and
//! stopped at the end of the run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;

use bongsu_engines::child_process::FolderCleanup;
use bongsu_engines::{ENGINES, Engine, Instance, programs, sql};

/// Running engines, and the variables from which tests learn their addresses.
#[derive(Default)]
pub(crate) struct Engines {
    environment: Vec<(String, OsString)>,
    // Declared before the folder, so that the processes have ended when the folder is removed.
    instances: Vec<Instance>,
    _folder: Option<FolderCleanup>,
}

impl Engines {
    /// Starts all engines whose programs are installed. The step that looks for programs reports missing ones.
    pub(crate) fn start() -> Result<Self, String> {
        // In the system's temporary folder, because the user that PostgreSQL runs as must be able to enter it.
        let folder = tempfile::Builder::new().prefix("bongsu-engines-").tempdir();
        let folder = folder.map_err(|error| format!("cannot create a folder for engines: {error}"))?.keep();
        let cleanup = FolderCleanup::new(std::slice::from_ref(&folder));
        make_enterable(&folder)?;
        let present = |engine: &&Engine| engine.programs.iter().all(|name| programs::find(name).is_some());
        let started: Vec<Result<(&Engine, Instance), String>> = thread::scope(|scope| {
            let starting: Vec<_> = ENGINES
                .iter()
                .filter(present)
                .map(|engine| {
                    let own = folder.join(engine.name);
                    scope.spawn(move || {
                        fs::create_dir(&own)
                            .map_err(|error| format!("cannot create {}: {error}", own.display()))?;
                        make_enterable(&own)?;
                        Ok((engine, (engine.start)(&own).wait_ready(engine)?))
                    })
                })
                .collect();
            starting
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err("the thread that starts an engine panicked".to_owned()))
                })
                .collect()
        });
        let mut engines = Self { _folder: Some(cleanup), ..Self::default() };
        for started in started {
            let (engine, instance) = started?;
            engines.environment.push((engine.variable.to_owned(), instance.address.clone().into()));
            engines.instances.push(instance);
        }
        for server in [&sql::POSTGRES, &sql::MARIADB] {
            let template = sql::template(&folder.join(server.name));
            if template.is_dir() {
                engines.environment.push((server.template_variable.to_owned(), template.into()));
            }
        }
        Ok(engines)
    }

    /// Whether the engine with this name runs.
    pub(crate) fn has(&self, name: &str) -> bool {
        let variable = bongsu_engines::engine(name).variable;
        self.environment.iter().any(|(name, _)| name == variable)
    }

    /// The environment variables from which tests learn the addresses of the engines.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (String, OsString)> {
        self.environment.iter().cloned()
    }
}

fn make_enterable(folder: &Path) -> Result<(), String> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("cannot make {} accessible to all users: {error}", folder.display()))
}
