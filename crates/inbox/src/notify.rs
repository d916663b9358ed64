//! Telling people: one transaction saves what happened, an entry for everybody who was not told of it before, and their
//! counts; whoever is connected hears of it afterwards.
//!
//! Everybody's rows are taken in the order of their ids, so that two who tell overlapping sets of people wait for each
//! other in one direction only. However many people there are, it is the same number of statements.

use std::collections::{HashMap, HashSet};

use bongsu_kernel::{Id, Millis, crash_point};
use bongsu_sql::{Error, Transaction};

use crate::settings::Settings;
use crate::store::{self, list};
use crate::{Inbox, Notice};

/// So many people are told at once, at most.
pub const MOST_TARGETS: usize = 1_000;

#[derive(Clone, Debug, thiserror::Error)]
pub enum NotifyError {
    /// The id was used for something else; repeating cannot help.
    #[error("the event id was used for other content")]
    Conflict,
    #[error(transparent)]
    Records(#[from] Error),
}

/// Somebody was told: where their inbox stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub person: Id,
    pub seq: u64,
    /// As the records count. Where marks wait to be written, they are not among it: see [`Buffer::recently_marked`].
    ///
    /// [`Buffer::recently_marked`]: crate::marks::Buffer::recently_marked
    pub unread: u64,
    pub version: u64,
    /// They have switched this off: it is kept and counted, and not sent.
    pub silent: bool,
}

#[derive(Clone)]
struct Saving {
    notice: Notice,
    /// As a JSON list, each once.
    people: String,
    count: usize,
    now: Millis,
}

/// Why nothing was saved.
enum Unsaved {
    /// Somebody was never told of anything before, and has no row yet.
    Strangers,
    Refused(NotifyError),
}

impl From<Error> for Unsaved {
    fn from(error: Error) -> Self {
        Self::Refused(error.into())
    }
}

impl Inbox {
    /// Tells people of something. Repeating it changes nothing more; who is named anew is told. Gives who was told now.
    pub async fn notify(&self, notice: Notice, targets: &[Id]) -> Result<Vec<Told>, NotifyError> {
        let mut targets: Vec<&Id> = targets.iter().collect();
        targets.sort_unstable();
        targets.dedup();
        let now = self.0.clock.now();
        let saving = Saving {
            people: list(targets.iter().copied()),
            count: targets.len(),
            notice: notice.clone(),
            now,
        };
        let told = self.save(saving).await?;
        crash_point!("after-notify");
        self.0.live.saved(&notice, now, &told);
        Ok(told)
    }

    /// People have a row of their own from the first time on, so it is looked for first and added only where it is missing:
    /// apart, because rows are taken in order and one that is added comes out of it.
    async fn save(&self, saving: Saving) -> Result<Vec<Told>, NotifyError> {
        let mut saved = self.0.records.write(saving.clone(), save).await;
        if let Err(Unsaved::Strangers) = saved {
            self.0.records.write(saving.clone(), add_people).await?;
            saved = self.0.records.write(saving, save).await;
        }
        saved.map_err(|why| match why {
            Unsaved::Refused(error) => error,
            Unsaved::Strangers => Error::Failed("who was added is not there".to_owned()).into(),
        })
    }
}

async fn add_people(saving: &Saving, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    tx.run(&store::PEOPLE_ADD, &[("people", saving.people.as_str().into())]).await
}

async fn save(saving: &Saving, tx: &mut Transaction<'_>) -> Result<Vec<Told>, Unsaved> {
    let people = [("people", saving.people.as_str().into())];
    let held = tx.rows(&store::PEOPLE_HOLD, &people).await?;
    if held.len() < saving.count {
        return Err(Unsaved::Strangers);
    }
    // After the people: those who tell of the same thing wait for the first of them, who has everything that it needs and
    // does not take it back.
    let notice = number_of(&saving.notice, saving.now, tx).await.map_err(Unsaved::Refused)?;
    let both = [("notice", notice.into()), ("people", saving.people.as_str().into())];
    let known = tx.rows(&store::TOLD_ALREADY, &both).await?;
    let known = known.iter().map(|row| row.id(0)).collect::<Result<HashSet<_>, _>>()?;
    let settings = tx.rows(&store::SETTINGS_OF, &people).await?;
    let settings = settings.iter().map(|row| Ok((row.id(0)?, Settings::stored(row.text(1)?))));
    let settings = settings.collect::<Result<HashMap<_, _>, Error>>()?;
    let mut told = Vec::with_capacity(held.len());
    for row in &held {
        let person = row.id(0)?;
        if !known.contains(&person) {
            let silent = settings.get(&person).is_some_and(|settings| !settings.wants(&saving.notice.kind));
            let (seq, unread, version) = (row.count(1)? + 1, row.count(2)? + 1, row.count(3)? + 1);
            told.push(Told { person, seq, unread, version, silent });
        }
    }
    let fresh = list(told.iter().map(|told| &told.person));
    if !told.is_empty() {
        let arguments =
            [("notice", notice.into()), ("now", saving.now.into()), ("people", fresh.as_str().into())];
        tx.run(&store::ENTRIES_ADD, &arguments).await?;
        tx.run(&store::PEOPLE_COUNT, &[("people", fresh.as_str().into())]).await?;
    }
    Ok(told)
}

/// The number of what happened; it is saved unless it was before.
async fn number_of(notice: &Notice, now: Millis, tx: &mut Transaction<'_>) -> Result<i64, NotifyError> {
    let arguments = [
        ("event", notice.event.as_str().into()),
        ("type", notice.kind.as_str().into()),
        ("ref", notice.reference.as_ref().into()),
        ("actor", notice.actor.as_ref().into()),
        ("payload", notice.payload.as_str().into()),
        ("now", now.into()),
    ];
    tx.run(&store::NOTICE_ADD, &arguments).await?;
    let name =
        [("event", notice.event.as_str().into()), ("of_room", i64::from(notice.kind.is_of_room()).into())];
    let row = tx.row(&store::NOTICE_FIND, &name).await?;
    let row = row.ok_or_else(|| Error::Failed("what was saved is not there".to_owned()))?;
    let same = row.text(2)? == notice.kind.as_str()
        && row.maybe_id(3)? == notice.reference
        && row.maybe_id(4)? == notice.actor
        && Notice::read(&row, 1)?.payload.canonical() == notice.payload.canonical();
    if same { Ok(row.int(0)?) } else { Err(NotifyError::Conflict) }
}
