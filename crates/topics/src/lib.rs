//! Topics: services publish domain events to topics over HTTP, and every queue that is bound to a topic gets a copy.
//!
//! The queues are declared by the parts that handle their messages, such as the inbox with `notification.*`.

mod routes;

use bongsu_part::Part;

/// The way in for domain events of services.
pub static TOPICS_PART: Part = Part::new("topics", |assembly| {
    Box::pin(async move {
        let (queues, identity) = (assembly.engines.queues.clone(), assembly.engines.identity.clone());
        assembly.add_routes(routes::router(queues, identity, assembly.engines.clock.clone()));
        Ok(())
    })
});
