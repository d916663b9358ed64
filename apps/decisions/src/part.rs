//! Decisions as an application beside the hub.

use bongsu_kernel::settings::{Bad, Values};
use bongsu_part::{Assembly, Boxed, Failure, Part, ROLES};
use bongsu_sql::{Migration, Query};

use crate::store::{MIGRATIONS, PART, QUERIES};
use crate::{Decisions, routes};

/// People propose, vote and comment on what is to be decided.
pub struct DecisionsPart;

impl Part for DecisionsPart {
    fn name(&self) -> &'static str {
        PART
    }

    fn is_application(&self) -> bool {
        true
    }

    fn migrations(&self) -> &'static [Migration] {
        MIGRATIONS
    }

    fn queries(&self) -> &'static [&'static Query] {
        QUERIES
    }

    fn check(&self, values: &Values) -> Result<(), Bad> {
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

    fn start<'a>(&'a self, assembly: &'a mut Assembly) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(async {
            let engines = &assembly.engines;
            // Without records its routes say so.
            let records = engines.records.clone();
            let decisions = records.map(|records| Decisions::new(records, engines.clock.clone()));
            let identity = engines.identity.clone();
            assembly.routes(routes::router(decisions, identity));
            Ok(())
        })
    }
}
