//! Members: one personal stream per signed-in person, on every device they have.
//!
//! What is on it is the inbox's ([`bongsu_inbox`]); here are the stream's own rules: what it says and in which language,
//! how long it lives, and that a fourth device is let in and the oldest one asked to stay away.

mod dress;
mod options;
mod part;
pub mod routes;

use std::sync::Arc;

use bongsu_inbox::Inbox;
use bongsu_limits::Connections;
use bongsu_live::Hub;

pub use options::{Options, SETTINGS};
pub use part::MembersPart;

/// Cheap to clone.
#[derive(Clone)]
pub struct Members(Arc<Inner>);

struct Inner {
    hub: Hub,
    inbox: Inbox,
    connections: Arc<dyn Connections>,
    options: Options,
}

impl Members {
    pub fn new(hub: Hub, inbox: Inbox, connections: Arc<dyn Connections>, options: Options) -> Self {
        Self(Arc::new(Inner { hub, inbox, connections, options }))
    }
}
