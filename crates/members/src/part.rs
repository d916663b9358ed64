//! Personal streams as a part of the hub.

use std::sync::Arc;

use bongsu_inbox::Inbox;
use bongsu_part::{Assembly, Failure, Part};

use crate::{Members, Options, SETTINGS, routes};

/// The personal streams of signed-in people.
pub static MEMBERS_PART: Part =
    Part { settings: SETTINGS, ..Part::new("members", |assembly| Box::pin(start(assembly))) };

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let engines = &assembly.engines;
    let options = Options::from_settings(&engines.values);
    let members = assembly.shared::<Inbox>().map(|_| {
        let connections = engines.connections(options.limit());
        Members::new(engines.hub.clone(), engines.identity.clone(), connections, options)
    });
    if let Some(members) = &members {
        engines.hub.set_personal_streams(Arc::new(members.clone()));
    }
    let identity = engines.identity.clone();
    assembly.add_routes(routes::router(members, identity));
    Ok(())
}
