//! Who is told of changes right away: a port that the wiring fills.

use bongsu_kernel::{Id, Millis};

use crate::{Changed, Notice, Told};

/// Those who are connected. What is told here is durable already, so losing it costs nobody more than a moment: a stream
/// that misses an entry finds it in the records.
pub trait Live: Send + Sync {
    /// People were told of something.
    fn saved(&self, notice: &Notice, at: Millis, told: &[Told]);

    /// Entries of a person were read or taken away.
    fn changed(&self, person: &Id, changed: &Changed);
}
