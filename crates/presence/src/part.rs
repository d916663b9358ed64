//! Presence as a part of the hub.

use std::sync::Arc;

use bongsu_kernel::settings::{Bad, Setting, Values};
use bongsu_part::{Assembly, Boxed, Failure, Fleet, Part};

use crate::{Options, Presence, SETTINGS};

/// Who is in a room.
pub struct PresencePart;

impl Part for PresencePart {
    fn name(&self) -> &'static str {
        "presence"
    }

    fn settings(&self) -> &'static [&'static Setting] {
        SETTINGS
    }

    fn check(&self, values: &Values) -> Result<(), Bad> {
        Options::from_settings(values).map(drop)
    }

    fn start<'a>(&'a self, assembly: &'a mut Assembly) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(async {
            let engines = &assembly.engines;
            let options = Options::from_settings(&engines.values)?;
            let (sink, supervisor) = (Arc::new(engines.hub.clone()), &engines.supervisor);
            let presence = engines.choose(
                || Presence::embedded(options, engines.clock.clone(), sink.clone(), supervisor),
                |Fleet { redis, instances }| {
                    Presence::on_redis(options, redis.clone(), instances.clone(), sink.clone(), supervisor)
                },
            );
            assembly.share(presence);
            Ok(())
        })
    }
}
