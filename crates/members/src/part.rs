//! Personal streams as a part of the hub.

use std::sync::Arc;

use bongsu_inbox::Inbox;
use bongsu_kernel::settings::Setting;
use bongsu_part::{Assembly, Boxed, Failure, Part};

use crate::{Members, Options, SETTINGS, routes};

/// One personal stream per signed-in person.
pub struct MembersPart;

impl Part for MembersPart {
    fn name(&self) -> &'static str {
        "members"
    }

    fn settings(&self) -> &'static [&'static Setting] {
        SETTINGS
    }

    fn start<'a>(&'a self, assembly: &'a mut Assembly) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(async {
            let engines = &assembly.engines;
            let options = Options::from_settings(&engines.values);
            let members = assembly.shared::<Inbox>().map(|_| {
                let connections = engines.connections(options.limit());
                Members::new(engines.hub.clone(), engines.identity.clone(), connections, options)
            });
            if let Some(members) = &members {
                engines.hub.offer_personal(Arc::new(members.clone()));
            }
            let identity = engines.identity.clone();
            assembly.routes(routes::router(members, identity));
            Ok(())
        })
    }
}
