//! Which of its roles a process takes: the hub, and the applications that show it in use.

use bongsu_decisions::Decisions;
use bongsu_http::Identity;
use bongsu_kernel::Clock;
use bongsu_kernel::settings::{Bad, Kind, Setting, Values};
use bongsu_sql::Records;
use utoipa_axum::router::OpenApiRouter;

pub(crate) const ROLES: Setting = Setting::text(
    "server",
    "ROLES",
    "hub",
    "What this process is: hub (everything but the applications), all (the applications, too), or a list such as hub,decisions.",
)
.kind(Kind::List);

const ALLOWED: &str = "hub, all, or hub with applications, separated by commas: decisions";

/// The applications that run beside the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Roles {
    decisions: bool,
}

impl Roles {
    pub(crate) fn from_settings(values: &Values) -> Result<Self, Bad> {
        let mut roles = Self { decisions: false };
        let mut hub = false;
        for name in values.list(&ROLES) {
            match name.as_str() {
                "hub" => hub = true,
                "all" => (hub, roles.decisions) = (true, true),
                "decisions" => roles.decisions = true,
                unknown => return Err(Bad::value(&ROLES, unknown, ALLOWED)),
            }
        }
        // They have no streams of their own.
        if !hub {
            return Err(Bad::value(&ROLES, values.text(&ROLES), ALLOWED));
        }
        if roles.decisions && !bongsu_outbox::is_on(values) {
            let allowed = "without decisions while OUTBOX is off: these are told by it";
            return Err(Bad::value(&ROLES, values.text(&ROLES), allowed));
        }
        if roles.decisions && bongsu_outbox::has_membership_query(values) {
            let allowed = "without decisions while OUTBOX_MEMBERSHIP_QUERY is set: these write to the table of memberships";
            return Err(Bad::value(&ROLES, values.text(&ROLES), allowed));
        }
        Ok(roles)
    }

    /// The applications that do not run: their tables are left alone, whether they are there or not.
    pub(crate) fn unused_parts(self) -> impl Iterator<Item = &'static str> {
        (!self.decisions).then_some(bongsu_decisions::store::PART).into_iter()
    }

    /// The routes of the applications. Without records these say so.
    pub(crate) fn routes(
        self,
        records: Option<&Records>,
        clock: &Clock,
        identity: &Identity,
    ) -> OpenApiRouter {
        let mut routes = OpenApiRouter::new();
        if self.decisions {
            let decisions = records.map(|records| Decisions::new(records.clone(), clock.clone()));
            routes = routes.merge(bongsu_decisions::routes::router(decisions, identity.clone()));
        }
        routes
    }
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;

    fn roles(given: &str) -> Result<Roles, String> {
        roles_with(given, "on")
    }

    fn roles_with(given: &str, outbox: &str) -> Result<Roles, String> {
        roles_of(&[("ROLES", given), ("OUTBOX", outbox)])
    }

    fn roles_of(given: &[(&str, &str)]) -> Result<Roles, String> {
        let environment =
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = [&[&ROLES], bongsu_outbox::SETTINGS].concat();
        let values =
            load(&settings, &Input { environment, ..Input::default() }).map_err(|bad| bad.to_string())?;
        Roles::from_settings(&values).map_err(|bad| bad.to_string())
    }

    #[test]
    fn applications_run_beside_the_hub_when_they_are_asked_for() {
        let (without, with) = (Ok(Roles { decisions: false }), Ok(Roles { decisions: true }));
        assert_eq!(roles("hub"), without);
        for given in ["all", "hub,decisions", " decisions , hub ", "hub,all"] {
            assert_eq!(roles(given), with, "{given}");
        }
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_allowed() {
        assert_eq!(roles("hub,chess").unwrap_err(), format!("ROLES=\"chess\" is not allowed: {ALLOWED}"));
        assert_eq!(roles("decisions").unwrap_err(), format!("ROLES=\"decisions\" is not allowed: {ALLOWED}"));
        assert_eq!(roles_with("hub", "off"), Ok(Roles { decisions: false }));
        assert!(roles_with("all", "off").unwrap_err().contains("OUTBOX"));
        let query = [("ROLES", "all"), ("OUTBOX_MEMBERSHIP_QUERY", "SELECT :event_id, :user_id")];
        assert!(roles_of(&query).unwrap_err().contains("OUTBOX_MEMBERSHIP_QUERY"));
        for given in ["Hub", "hub decisions", ","] {
            assert!(roles(given).unwrap_err().starts_with("ROLES="), "{given}");
        }
    }
}
