//! Notifies persons: one transaction stores the notification, an entry for every target that has none of it yet, and
//! the new unread counts. Open streams receive the entries after the commit.
//!
//! The rows of the targets are locked in the order of their ids, so that transactions with overlapping targets cannot
//! deadlock. The number of statements does not depend on the number of targets.

use std::collections::{HashMap, HashSet};

use bongsu_kernel::{Id, Millis, crash_point};
use bongsu_sql::{Error, Result, Transaction};

use crate::settings::Settings;
use crate::store::{self, list};
use crate::{Inbox, Notification};

/// The most targets of one notification request.
pub const MAX_TARGETS: usize = 1_000;

#[derive(Clone, Debug, thiserror::Error)]
pub enum NotifyError {
    /// The event id belongs to another notification; a repeated request fails as well.
    #[error("the event id was used for other content")]
    Conflict,
    #[error(transparent)]
    Records(#[from] Error),
}

/// A new entry of one person, and the person's unread count with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyOutcome {
    pub person: Id,
    pub seq: u64,
    /// The count of the person's row, which does not include buffered marks: see [`MarkBuffer::recently_marked`].
    ///
    /// [`MarkBuffer::recently_marked`]: crate::marks::MarkBuffer::recently_marked
    pub unread: u64,
    pub version: u64,
    /// The person's settings mute the notification: the entry is stored and counted, and not sent to streams.
    pub is_muted: bool,
}

/// A notification to be saved for its targets.
#[derive(Clone)]
struct SaveRequest {
    notification: Notification,
    /// The targets as a JSON array, each once.
    people: String,
    /// How many targets there are.
    count: usize,
    now: Millis,
}

/// Why a notification was not saved.
enum SaveError {
    /// A target has no row yet, because this is the person's first notification.
    MissingPersonRow,
    Notify(NotifyError),
}

impl From<Error> for SaveError {
    fn from(error: Error) -> Self {
        Self::Notify(error.into())
    }
}

impl Inbox {
    /// Notifies persons, and returns the new entries. A repeated call adds entries only for targets that have none yet.
    pub async fn notify(
        &self,
        notification: Notification,
        targets: &[Id],
    ) -> Result<Vec<NotifyOutcome>, NotifyError> {
        let mut targets: Vec<&Id> = targets.iter().collect();
        targets.sort_unstable();
        targets.dedup();
        let now = self.0.clock.now();
        let (people, count) = (list(targets.iter().copied()), targets.len());
        let request = SaveRequest { notification: notification.clone(), people, count, now };
        let outcomes = self.save(request).await?;
        crash_point!("after-notify");
        self.0.live.deliver_entries(&notification, now, &outcomes);
        Ok(outcomes)
    }

    /// Saves a notification. Most targets have a row, so rows are added only when one is missing, in a transaction of
    /// its own: an added row would be locked out of order.
    async fn save(&self, request: SaveRequest) -> Result<Vec<NotifyOutcome>, NotifyError> {
        let mut saved = self.0.records.write(request.clone(), save).await;
        if let Err(SaveError::MissingPersonRow) = saved {
            self.0.records.write(request.clone(), add_people).await?;
            saved = self.0.records.write(request, save).await;
        }
        saved.map_err(|error| match error {
            SaveError::Notify(error) => error,
            SaveError::MissingPersonRow => {
                Error::Failed("the row of a target is missing after it was added".to_owned()).into()
            }
        })
    }
}

async fn add_people(request: &SaveRequest, tx: &mut Transaction<'_>) -> Result<u64> {
    tx.run(&store::PEOPLE_ADD, &[("people", request.people.as_str().into())]).await
}

async fn save(request: &SaveRequest, tx: &mut Transaction<'_>) -> Result<Vec<NotifyOutcome>, SaveError> {
    let people = [("people", request.people.as_str().into())];
    let locked = tx.rows(&store::PEOPLE_LOCK, &people).await?;
    if locked.len() < request.count {
        return Err(SaveError::MissingPersonRow);
    }
    // The notification is stored after the rows of the targets are locked: a transaction with the same event
    // id waits here for the first one, which then has all its locks and does not roll back for a missing row.
    let notice = save_notice(&request.notification, request.now, tx).await.map_err(SaveError::Notify)?;
    let arguments = [("notice", notice.into()), ("people", request.people.as_str().into())];
    let notified = tx.rows(&store::ALREADY_NOTIFIED, &arguments).await?;
    let notified = notified.iter().map(|row| row.id(0)).collect::<Result<HashSet<_>, _>>()?;
    let settings = tx.rows(&store::SETTINGS_OF, &people).await?;
    let settings = settings.iter().map(|row| {
        let person = row.id(0)?;
        let settings = Settings::from_stored(&person, row.text(1)?);
        Ok((person, settings))
    });
    let settings = settings.collect::<Result<HashMap<_, _>>>()?;
    let mut outcomes = Vec::with_capacity(locked.len());
    for row in &locked {
        let person = row.id(0)?;
        if !notified.contains(&person) {
            let is_muted =
                settings.get(&person).is_some_and(|settings| !settings.allows(&request.notification.kind));
            let (seq, unread, version) = (row.count(1)? + 1, row.count(2)? + 1, row.count(3)? + 1);
            outcomes.push(NotifyOutcome { person, seq, unread, version, is_muted });
        }
    }
    if !outcomes.is_empty() {
        let added = list(outcomes.iter().map(|outcome| &outcome.person));
        let arguments =
            [("notice", notice.into()), ("now", request.now.into()), ("people", added.as_str().into())];
        tx.run(&store::ENTRIES_ADD, &arguments).await?;
        tx.run(&store::PEOPLE_COUNT_ENTRY, &[("people", added.as_str().into())]).await?;
    }
    Ok(outcomes)
}

/// Stores the notification unless it is stored already, and returns the id of its row.
async fn save_notice(
    notification: &Notification,
    now: Millis,
    tx: &mut Transaction<'_>,
) -> Result<i64, NotifyError> {
    let arguments = [
        ("event", notification.event.as_str().into()),
        ("type", notification.kind.as_str().into()),
        ("ref", notification.reference.as_ref().into()),
        ("actor", notification.actor.as_ref().into()),
        ("payload", notification.payload.as_str().into()),
        ("now", now.into()),
    ];
    tx.run(&store::NOTICE_ADD, &arguments).await?;
    let name = [
        ("event", notification.event.as_str().into()),
        ("of_room", i64::from(notification.kind.is_of_room()).into()),
    ];
    let row = tx.row(&store::NOTICE_FIND, &name).await?;
    let row = row
        .ok_or_else(|| Error::Failed("the row of a notification is missing after it was added".to_owned()))?;
    let is_same = row.text(2)? == notification.kind.as_str()
        && row.maybe_id(3)? == notification.reference
        && row.maybe_id(4)? == notification.actor
        && Notification::read(&row, 1)?.payload.canonical() == notification.payload.canonical();
    if is_same { Ok(row.int(0)?) } else { Err(NotifyError::Conflict) }
}
