//! The roles of a process: serving requests (`api`), background work (`worker`), applications.

use bongsu_kernel::settings::{Kind, Scope, SettingError, Values};

use crate::Parts;
use crate::settings::keeps_records;

bongsu_kernel::settings! { "server":
    pub ROLES = "hub", scope(Scope::Instance), kind(Kind::List):
        "What this process does: hub (api and worker), api (requests and streams), worker (background work without clients), all (hub and every application), or a list such as api,decisions. api and worker in separate processes need REDIS_URL and DATABASE_URL.";
}

/// The roles of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The process serves requests and streams.
    pub api: bool,
    /// The process runs the loops of the role `worker`.
    pub worker: bool,
    applications: Vec<&'static str>,
}

impl Roles {
    pub(crate) fn from_settings(values: &Values, parts: Parts) -> Result<Self, SettingError> {
        let applications: Vec<&'static str> =
            parts.0.iter().filter(|part| part.is_application).map(|part| part.name).collect();
        let mut roles = Self::default();
        for name in values.list(&ROLES) {
            match name.as_str() {
                "hub" => (roles.api, roles.worker) = (true, true),
                "api" => roles.api = true,
                "worker" => roles.worker = true,
                "all" => roles = Self { api: true, worker: true, applications: applications.clone() },
                name => match applications.iter().find(|application| **application == name) {
                    Some(application) if roles.runs(application) => {}
                    Some(application) => roles.applications.push(application),
                    None => return Err(SettingError::invalid_value(&ROLES, name, &allowed(&applications))),
                },
            }
        }
        // An application serves routes, so it needs the role api.
        if !roles.api && (!roles.worker || !roles.applications.is_empty()) {
            return Err(values.not_allowed(&ROLES, &allowed(&applications)));
        }
        Ok(roles)
    }

    /// Refuses separate `api` and `worker` processes if the settings give them no shared Redis and database.
    pub(crate) fn check(
        &self,
        values: &Values,
        on_redis: bool,
        on_database: bool,
    ) -> Result<(), SettingError> {
        if self.api && self.worker {
            return Ok(());
        }
        if !on_redis || (keeps_records(values) && !on_database) {
            let allowed = "use hub unless REDIS_URL and DATABASE_URL are set, through which separate api and worker processes work together";
            return Err(values.not_allowed(&ROLES, allowed));
        }
        if !self.api && !keeps_records(values) {
            let allowed = "use hub or api while RECORDS is off: there is no work to do for a worker";
            return Err(values.not_allowed(&ROLES, allowed));
        }
        Ok(())
    }

    /// Whether an application runs in this process.
    pub fn runs(&self, application: &str) -> bool {
        self.applications.contains(&application)
    }
}

fn allowed(applications: &[&str]) -> String {
    let applications = applications.join(", ");
    format!("hub, all, api, worker, or api or hub with applications, separated by commas: {applications}")
}
