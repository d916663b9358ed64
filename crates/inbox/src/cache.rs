//! What is known of the records without asking them: where inboxes stood, and settings.
//!
//! The records are always asked first, so nothing here has to be right for long: it is what people see while the records are
//! away.

pub mod redis;

use bongsu_kernel::Id;
use bongsu_sql::Error;

use crate::marks::Boxed;
use crate::settings::Settings;
use crate::{Inbox, Standing};

/// Losing any of it costs nothing but an answer while the records are away.
pub trait Cache: Send + Sync {
    /// Remembers where an inbox stood, unless a newer standing is known. Soon, and not for certain: nobody waits for it.
    fn remember(&self, person: &Id, standing: Standing);

    fn standing<'a>(&'a self, person: &'a Id) -> Boxed<'a, Option<Standing>>;

    /// One more entry was read that the standing counts.
    fn one_read<'a>(&'a self, person: &'a Id) -> Boxed<'a, ()>;

    fn remember_settings<'a>(&'a self, person: &'a Id, settings: &'a Settings) -> Boxed<'a, ()>;

    fn settings<'a>(&'a self, person: &'a Id) -> Boxed<'a, Option<Settings>>;

    /// They were changed.
    fn forget_settings<'a>(&'a self, person: &'a Id) -> Boxed<'a, ()>;
}

/// Where an inbox stands, and how that is known.
pub(crate) enum Known {
    /// By the records, and by what waits to be written there.
    Now(Standing),
    /// The records are away: as it was when somebody looked last.
    Then(Standing),
}

impl Inbox {
    pub(crate) async fn known(&self, person: &Id) -> Result<Known, Error> {
        let found = self.recorded(person).await;
        let Some(cache) = self.cache() else { return found.map(Known::Now) };
        match found {
            Ok(standing) => {
                cache.remember(person, standing);
                Ok(Known::Now(standing))
            }
            Err(error) if error.may_pass() => self.remembered(person).await.map(Known::Then).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Where an inbox stood when somebody looked last.
    pub(crate) async fn remembered(&self, person: &Id) -> Option<Standing> {
        self.cache()?.standing(person).await.ok().flatten()
    }
}
