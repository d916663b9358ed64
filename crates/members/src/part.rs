//! Personal streams as a part of the hub.

use std::sync::Arc;

use bongsu_inbox::Inbox;
use bongsu_kernel::settings::Setting;
use bongsu_part::{Assembly, Boxed, Failure, Fleet, Part};

use crate::connections::redis::RedisConnections;
use crate::{Connections, EmbeddedConnections, Members, Options, SETTINGS, routes};

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
            let (options, supervisor) = (Options::from_settings(&engines.values), &engines.supervisor);
            let members = assembly.shared::<Inbox>().map(|_| {
                let connections: Arc<dyn Connections> = engines.choose(
                    || Arc::new(EmbeddedConnections::new(&options)) as Arc<dyn Connections>,
                    |Fleet { redis, instances }| {
                        let (redis, instances) = (redis.clone(), instances.clone());
                        Arc::new(RedisConnections::start(redis, instances, &options, supervisor))
                    },
                );
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
