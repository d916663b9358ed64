//! Personal streams as a part of the hub.

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
            let members = assembly.shared::<Inbox>().map(|inbox| {
                Members::new(engines.hub.clone(), inbox, engines.connections(options.limit()), options)
            });
            let identity = engines.identity.clone();
            assembly.routes(routes::router(members, identity));
            Ok(())
        })
    }
}
