//! The engines of a run: every row of `bongsu_engines::ENGINES`, started once, side by side, and ended with the run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;

use bongsu_engines::mortal::RemovedAfterwards;
use bongsu_engines::{ENGINES, Engine, Instance, programs, sql};

/// Running engines, and where tests find them.
#[derive(Default)]
pub(crate) struct Engines {
    environment: Vec<(String, OsString)>,
    // Before the folder, so that the processes are gone when it goes.
    instances: Vec<Instance>,
    _folder: Option<RemovedAfterwards>,
}

impl Engines {
    /// Starts all whose programs are there; an engine whose program is missing was named when programs were looked for.
    pub(crate) fn start() -> Result<Self, String> {
        // Below the system's temporary folder, because PostgreSQL has a user of its own, who must get there.
        let folder = tempfile::Builder::new().prefix("bongsu-engines-").tempdir();
        let folder = folder.map_err(|error| format!("cannot make a folder for engines: {error}"))?.keep();
        let removed = RemovedAfterwards::new(std::slice::from_ref(&folder));
        enter_by_all(&folder)?;
        let present = |engine: &&Engine| engine.programs.iter().all(|name| programs::find(name).is_some());
        let started: Vec<Result<(&Engine, Instance), String>> = thread::scope(|scope| {
            let starting: Vec<_> = ENGINES
                .iter()
                .filter(present)
                .map(|engine| {
                    let own = folder.join(engine.name);
                    scope.spawn(move || {
                        fs::create_dir(&own)
                            .map_err(|error| format!("cannot make {}: {error}", own.display()))?;
                        enter_by_all(&own)?;
                        Ok((engine, (engine.start)(&own).wait_ready(engine)?))
                    })
                })
                .collect();
            starting
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| Err("an engine could not be started".to_owned()))
                })
                .collect()
        });
        let mut engines = Self { _folder: Some(removed), ..Self::default() };
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

    /// Whether the engine of this name runs.
    pub(crate) fn have(&self, name: &str) -> bool {
        let variable = bongsu_engines::engine(name).variable;
        self.environment.iter().any(|(is, _)| is == variable)
    }

    /// The variables by which tests find them.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (String, OsString)> {
        self.environment.iter().cloned()
    }
}

fn enter_by_all(folder: &Path) -> Result<(), String> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("cannot open {} to all: {error}", folder.display()))
}
