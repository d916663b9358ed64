//! Decisions as an application beside the hub.

use bongsu_kernel::settings::{Bad, Values};
use bongsu_part::{Assembly, Failure, Part, ROLES};

use crate::store::{MIGRATIONS, PART, QUERIES};
use crate::{Decisions, routes};

/// People propose, vote and comment on what is to be decided.
pub static DECISIONS_PART: Part = Part {
    is_application: true,
    migrations: MIGRATIONS,
    queries: QUERIES,
    check,
    ..Part::new(PART, |assembly| Box::pin(start(assembly)))
};

fn check(values: &Values) -> Result<(), Bad> {
    let refuse = |allowed| Err(Bad::value(&ROLES, values.text(&ROLES), allowed));
    if !bongsu_outbox::is_on(values) {
        return refuse("without decisions while OUTBOX is off: these are told by it");
    }
    if bongsu_outbox::has_membership_query(values) {
        return refuse(
            "without decisions while OUTBOX_MEMBERSHIP_QUERY is set: these write to the table of memberships",
        );
    }
    Ok(())
}

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let engines = &assembly.engines;
    // Without records its routes say so.
    let records = engines.records.clone();
    let decisions = records.map(|records| Decisions::new(records, engines.clock.clone()));
    let identity = engines.identity.clone();
    assembly.routes(routes::router(decisions, identity));
    Ok(())
}
