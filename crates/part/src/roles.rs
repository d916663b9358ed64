//! Which roles a process takes: it serves requests, does the work behind them, runs applications.

use bongsu_kernel::settings::{Bad, Kind, Scope, Values};

use crate::Parts;
use crate::settings::keeps_records;

bongsu_kernel::settings! { "server":
    pub ROLES = "hub", scope(Scope::Instance), kind(Kind::List):
        "What this process does: hub (api and worker), api (requests and streams), worker (the work behind them), all (hub and every application), or a list such as api,decisions. api and worker apart need REDIS_URL and DATABASE_URL.";
}

/// The roles of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// It serves requests and streams.
    pub api: bool,
    /// It does what one process of a fleet does for all.
    pub worker: bool,
    applications: Vec<&'static str>,
}

impl Roles {
    pub(crate) fn from_settings(values: &Values, parts: Parts) -> Result<Self, Bad> {
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
                    None => return Err(Bad::value(&ROLES, name, &allowed(&applications))),
                },
            }
        }
        // Applications are told by streams, which a process with the role api has.
        if !roles.api && (!roles.worker || !roles.applications.is_empty()) {
            return Err(Bad::value(&ROLES, values.text(&ROLES), &allowed(&applications)));
        }
        Ok(roles)
    }

    /// Refuses roles that need another process, where no other process can have them.
    pub(crate) fn check(&self, values: &Values, on_redis: bool, on_database: bool) -> Result<(), Bad> {
        let refuse = |allowed: &str| Err(Bad::value(&ROLES, values.text(&ROLES), allowed));
        if self.api && self.worker {
            return Ok(());
        }
        if !on_redis || (keeps_records(values) && !on_database) {
            return refuse(
                "hub unless REDIS_URL and DATABASE_URL are set: api and worker share everything through these",
            );
        }
        if !self.api && !keeps_records(values) {
            return refuse("without worker while RECORDS is off: there is no work to do");
        }
        Ok(())
    }

    /// Whether an application runs.
    pub fn runs(&self, application: &str) -> bool {
        self.applications.contains(&application)
    }
}

fn allowed(applications: &[&str]) -> String {
    let applications = applications.join(", ");
    format!("hub, all, api, worker, or api or hub with applications, separated by commas: {applications}")
}
