//! Presence as a part of the hub.

use std::sync::Arc;

use bongsu_part::{Assembly, Failure, FleetEngines, Part};

use crate::{Options, Presence, SETTINGS};

/// Tracks who is in a room.
pub static PRESENCE_PART: Part = Part {
    settings: SETTINGS,
    check: |values| Options::from_settings(values).map(drop),
    ..Part::new("presence", |assembly| Box::pin(start(assembly)))
};

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let engines = &assembly.engines;
    let options = Options::from_settings(&engines.values)?;
    let (sink, supervisor) = (Arc::new(engines.hub.clone()), &engines.supervisor);
    let presence = engines.choose(
        || Presence::embedded(options, engines.clock.clone(), sink.clone(), supervisor),
        |FleetEngines { redis, instances }| {
            Presence::on_redis(options, redis.clone(), instances.clone(), sink.clone(), supervisor)
        },
    );
    assembly.share(presence);
    Ok(())
}
