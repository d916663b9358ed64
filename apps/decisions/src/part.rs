//! Registers this application as a part of the hub.

use bongsu_kernel::settings::{SettingError, Values};
use bongsu_part::{Assembly, Failure, Part, ROLES};

use crate::store::{MIGRATIONS, PART, QUERIES};
use crate::{Decisions, routes};

/// The application `decisions`.
pub static DECISIONS_PART: Part = Part {
    is_application: true,
    migrations: MIGRATIONS,
    queries: QUERIES,
    check,
    ..Part::new(PART, |assembly| Box::pin(start(assembly)))
};

fn check(values: &Values) -> Result<(), SettingError> {
    let refuse = |allowed| Err(values.not_allowed(&ROLES, allowed));
    if !bongsu_outbox::is_on(values) {
        return refuse("use OUTBOX=on with the role decisions, whose events are rows of the outbox");
    }
    if bongsu_outbox::has_membership_query(values) {
        return refuse(
            "leave OUTBOX_MEMBERSHIP_QUERY unset with the role decisions, which writes to the table of memberships",
        );
    }
    Ok(())
}

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let engines = &assembly.engines;
    // Without records, every route answers 503.
    let records = engines.records.clone();
    let decisions = records.map(|records| Decisions::new(records, engines.clock.clone()));
    let identity = engines.identity.clone();
    assembly.add_routes(routes::router(decisions, identity));
    Ok(())
}
