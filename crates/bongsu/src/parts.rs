//! The parts of the hub and its applications, in the order in which they start. A new part is added to this list.

use bongsu_part::Parts;

pub const PARTS: Parts = Parts(&[
    &bongsu_presence::PRESENCE_PART,
    &bongsu_rooms::ROOMS_PART,
    &bongsu_outbox::OUTBOX_PART,
    &bongsu_inbox::INBOX_PART,
    &bongsu_members::MEMBERS_PART,
    &bongsu_topics::TOPICS_PART,
    &bongsu_decisions::DECISIONS_PART,
]);

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;

    fn check(settings: &[(&str, &str)]) -> Result<bongsu_part::Roles, String> {
        let environment =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let values = load(&PARTS.settings(), &Input { environment, ..Input::default() });
        values.and_then(|values| PARTS.check(&values)).map_err(|bad| bad.to_string())
    }

    fn roles(roles: &str) -> Result<bongsu_part::Roles, String> {
        check(&[("ROLES", roles)])
    }

    #[test]
    fn every_default_is_allowed_and_names_are_unique() {
        let settings = PARTS.settings();
        let defaults = settings
            .iter()
            .filter(|setting| !setting.default.is_empty())
            .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
            .collect();
        load(&settings, &Input { environment: defaults, ..Input::default() }).unwrap();
        let mut names: Vec<_> = settings.iter().map(|setting| setting.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), settings.len());
    }

    #[test]
    fn applications_run_if_roles_names_them() {
        assert!(!roles("hub").unwrap().runs("decisions"));
        for given in
            ["all", "hub,decisions", " decisions , hub ", "hub,all", "api,worker,decisions,decisions"]
        {
            let roles = roles(given).unwrap();
            assert!(roles.runs("decisions") && roles.api && roles.worker, "{given}");
        }
    }

    #[test]
    fn separate_api_and_worker_need_redis_and_a_database() {
        let shared = [("REDIS_URL", "redis://127.0.0.1"), ("DATABASE_URL", "postgres://a@127.0.0.1/a")];
        let with_shared = |roles| check(&[&shared[..], &[("ROLES", roles)]].concat());
        let (api, worker) = (with_shared("api").unwrap(), with_shared("worker").unwrap());
        assert_eq!([api.api, api.worker, worker.api, worker.worker], [true, false, false, true]);
        assert!(with_shared("api,decisions").unwrap().runs("decisions"));
        for given in ["api", "worker"] {
            for engines in [&shared[..0], &shared[..1], &shared[1..]] {
                let refused = check(&[engines, &[("ROLES", given)]].concat()).unwrap_err();
                assert!(refused.contains("unless REDIS_URL and DATABASE_URL are set"), "{refused}");
            }
        }
        let without_records = |given| check(&[shared[0], ("RECORDS", "off"), ("ROLES", given)]);
        assert!(without_records("api").is_ok());
        assert!(without_records("worker").unwrap_err().contains("there is no work to do"));
    }

    #[test]
    fn invalid_roles_are_named_with_the_allowed_ones() {
        for (given, named) in [
            ("hub,chess", "chess"),
            ("decisions", "decisions"),
            ("Hub", "Hub"),
            ("worker,decisions", "worker,decisions"),
        ] {
            let refused = roles(given).unwrap_err();
            assert!(
                refused.starts_with(&format!("ROLES={named:?} is not allowed: hub, all, api,")),
                "{refused}"
            );
        }
        for given in ["hub decisions", ","] {
            assert!(roles(given).unwrap_err().starts_with("ROLES="), "{given}");
        }
        assert!(check(&[("ROLES", "all"), ("OUTBOX", "off")]).unwrap_err().contains("OUTBOX"));
        assert!(check(&[("ROLES", "hub"), ("OUTBOX", "off")]).is_ok());
        let query = ("OUTBOX_MEMBERSHIP_QUERY", "SELECT :event_id, :user_id");
        assert!(check(&[("ROLES", "all"), query]).unwrap_err().contains("OUTBOX_MEMBERSHIP_QUERY"));
    }
}
