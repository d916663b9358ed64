//! What a connection holds of the hub: its place at a shard, its count, and the subjects that it listens to.
//!
//! Each is given back when it is dropped, whatever ends the connection.

use std::any::Any;

use bongsu_kernel::Id;
use bongsu_kernel::text::Language;

use crate::hub::Hub;
use crate::seat::Seat;
use crate::subject::{Subject, SubjectName};
use crate::sync::Arc;

/// A connection's place at a shard of the hub.
#[derive(Clone)]
pub(crate) struct Chair {
    pub(crate) hub: Hub,
    pub(crate) seat: Arc<Seat>,
    pub(crate) shard: usize,
}

/// A person's stream is counted in; out again when this is dropped.
pub(crate) struct Entered {
    pub(crate) chair: Chair,
    pub(crate) person: Id,
    /// What goes when the stream goes.
    pub(crate) held: Vec<Box<dyn Any + Send>>,
    /// What it says when it has been silent for long.
    pub(crate) alive: &'static [u8],
    /// Of the texts that it sends.
    pub(crate) language: Language,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Chair { hub, seat, .. } = &self.chair;
        seat.leave();
        hub.0.people.leave(&self.person, seat);
    }
}

/// A stream listens to a subject until this is dropped.
pub(crate) struct Listening {
    pub(crate) name: SubjectName,
    pub(crate) subject: Arc<Subject>,
    pub(crate) chair: Chair,
}

impl Listening {
    pub(crate) fn start(chair: &Chair, name: SubjectName) -> Self {
        let subject = chair.hub.0.sit_down(&name, chair);
        Self { name, subject, chair: chair.clone() }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let inner = &self.chair.hub.0;
        self.subject.stand_up(self.chair.shard, &self.chair.seat);
        inner.tell_audience(&self.name, &self.subject);
        inner.forget_unused(&self.name, &self.subject);
    }
}
