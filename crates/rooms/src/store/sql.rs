//! Registered rooms and members in SQL, in the process or on a server that a fleet shares.
//!
//! That there are none at all is known without asking, on every hub ([`NoRooms`]).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{Boxed as Done, Dialect, Error, Migration, Query, Records, Transaction, query};

use super::{Added, Boxed, Standing, Store, StoreError};

/// The tables of this store.
pub const MIGRATIONS: &[Migration] = &[Migration {
    part: "rooms",
    number: 1,
    sqlite: include_str!("../../migrations/sqlite/0001_members.sql"),
    servers: Some([
        include_str!("../../migrations/postgres/0001_members.sql"),
        include_str!("../../migrations/mysql/0001_members.sql"),
    ]),
}];

static ANY: Query = query!("any");
static REGISTER: Query = query!("register", mysql);
static FIND: Query = query!("find");
static HOLD: Query = query!("hold", sqlite);
static FORGET_MEMBERS: Query = query!("forget_members");
static FORGET: Query = query!("forget");
static ADD: Query = query!("add", mysql);
static COUNT: Query = query!("count");
static REMOVE: Query = query!("remove");
static STANDING: Query = query!("standing");
static MEMBERS: Query = query!("members");
static REGISTERED: Query = query!("registered", all);

/// All of them, for the test that every database understands them.
pub static QUERIES: &[&Query] = &[
    &ANY,
    &REGISTER,
    &FIND,
    &HOLD,
    &FORGET_MEMBERS,
    &FORGET,
    &ADD,
    &COUNT,
    &REMOVE,
    &STANDING,
    &MEMBERS,
    &REGISTERED,
];

/// That there is no registered room is looked up so often, and believed for so long.
const LOOK: Duration = Duration::from_millis(500);
const BELIEVED: Duration = Duration::from_secs(2);

pub struct SqlStore {
    records: Records,
    none: Arc<NoRooms>,
}

/// That there is no registered room, and until when that is known: most hubs have none, and publishing is not to ask for
/// it every time. Where hubs share the records, whoever registers a room waits until nobody can believe it any more.
struct NoRooms {
    started: Instant,
    /// In milliseconds after the start.
    until: AtomicU64,
    /// The oldest room, and since when it was seen: as long as it is there, nobody has found none since then.
    oldest: Mutex<Option<(i64, Instant)>>,
}

impl NoRooms {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_known(&self) -> bool {
        self.now() < self.until.load(Ordering::Acquire)
    }

    /// Looks whether there is any, and believes it for so long.
    async fn look(&self, records: &Records, believed: u64) -> Result<(), Error> {
        let asked = self.now();
        let any = records.read((), |(), tx| Box::pin(oldest(tx))).await?;
        if any.is_none() {
            self.until.store(asked.saturating_add(believed), Ordering::Release);
        }
        let mut known = self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        // Numbers are given once: the same one is the same room, which was there all the time.
        if known.map(|(id, _)| id) != any {
            *known = any.map(|id| (id, Instant::now()));
        }
        Ok(())
    }

    /// A room that has been there for as long as anybody may believe that there is none.
    fn settled(&self) -> Option<i64> {
        let known = self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(_, since)| since.elapsed() >= BELIEVED).map(|(id, _)| id)
    }
}

async fn oldest(tx: &mut Transaction<'_>) -> Result<Option<i64>, Error> {
    tx.row(&ANY, &[]).await?.map(|row| row.int(0)).transpose()
}

impl SqlStore {
    pub async fn open(records: Records, supervisor: &Supervisor) -> Result<Self, Error> {
        let none =
            Arc::new(NoRooms { started: Instant::now(), until: AtomicU64::new(0), oldest: Mutex::new(None) });
        if records.dialect() == Dialect::Sqlite {
            // This process is the only one that registers rooms.
            none.look(&records, u64::MAX).await?;
            return Ok(Self { records, none });
        }
        let (looking, asked) = (none.clone(), records.clone());
        supervisor.every("registered-rooms", LOOK, move || {
            let (looking, asked) = (looking.clone(), asked.clone());
            async move {
                // While it cannot be asked, nobody believes that there is none.
                let _ = looking.look(&asked, BELIEVED.as_millis() as u64).await;
            }
        });
        Ok(Self { records, none })
    }
}

/// A room, and somebody in it.
struct Place {
    room: Id,
    user: Id,
    most: usize,
}

async fn number_of(tx: &mut Transaction<'_>, query: &Query, room: &Id) -> Result<Option<i64>, Error> {
    tx.row(query, &[("room", room.into())]).await?.map(|row| row.int(0)).transpose()
}

/// Says whether somebody may still believe that there is no room: unless one is there that has been for long enough.
fn register<'t>(
    (room, settled): &'t (Id, Option<i64>),
    tx: &'t mut Transaction<'_>,
) -> Done<'t, Result<bool, Error>> {
    Box::pin(async move {
        let oldest = oldest(tx).await?;
        tx.run(&REGISTER, &[("room", room.into())]).await?;
        Ok(oldest.is_none() || oldest != *settled)
    })
}

fn unregister<'t>(room: &'t Id, tx: &'t mut Transaction<'_>) -> Done<'t, Result<bool, Error>> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &HOLD, room).await? else { return Ok(false) };
        tx.run(&FORGET_MEMBERS, &[("id", id.into())]).await?;
        tx.run(&FORGET, &[("id", id.into())]).await?;
        Ok(true)
    })
}

fn add<'t>(place: &'t Place, tx: &'t mut Transaction<'_>) -> Done<'t, Result<Added, Error>> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &HOLD, &place.room).await? else { return Ok(Added::NoRoom) };
        let both = [("id", id.into()), ("user", (&place.user).into())];
        let added = tx.run(&ADD, &both).await?;
        let count = tx.row(&COUNT, &[("id", id.into())]).await?.map_or(Ok(0), |row| row.count(0))?;
        if added == 1 && count > place.most as u64 {
            tx.run(&REMOVE, &both).await?;
            return Ok(Added::Full);
        }
        Ok(Added::Yes)
    })
}

fn remove<'t>(place: &'t Place, tx: &'t mut Transaction<'_>) -> Done<'t, Result<bool, Error>> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &HOLD, &place.room).await? else { return Ok(false) };
        tx.run(&REMOVE, &[("id", id.into()), ("user", (&place.user).into())]).await?;
        Ok(true)
    })
}

fn standing<'t>(place: &'t Place, tx: &'t mut Transaction<'_>) -> Done<'t, Result<Standing, Error>> {
    Box::pin(async move {
        let both = [("room", (&place.room).into()), ("user", (&place.user).into())];
        Ok(match tx.row(&STANDING, &both).await? {
            None => Standing::NoRoom,
            Some(row) if row.maybe_text(1)?.is_some() => Standing::Member,
            Some(_) => Standing::Stranger,
        })
    })
}

fn members<'t>(room: &'t Id, tx: &'t mut Transaction<'_>) -> Done<'t, Result<Option<Vec<Id>>, Error>> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &FIND, room).await? else { return Ok(None) };
        let rows = tx.rows(&MEMBERS, &[("id", id.into())]).await?;
        rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>().map(Some)
    })
}

/// The rooms are a JSON list.
#[expect(clippy::ptr_arg, reason = "a question takes what it was given by reference")]
fn registered<'t>(rooms: &'t String, tx: &'t mut Transaction<'_>) -> Done<'t, Result<HashSet<Id>, Error>> {
    Box::pin(async move {
        let rows = tx.rows(&REGISTERED, &[("rooms", rooms.as_str().into())]).await?;
        rows.iter().map(|row| row.id(0)).collect()
    })
}

impl Store for SqlStore {
    fn register(&self, room: &Id) -> Boxed<'_, ()> {
        let room = room.clone();
        Box::pin(async move {
            let given = (room, self.none.settled());
            let is_new = self.records.write(given, register).await.map_err(StoreError::from)?;
            self.none.until.store(0, Ordering::Release);
            if is_new && self.records.dialect() != Dialect::Sqlite {
                tokio::time::sleep(BELIEVED).await;
            }
            Ok(())
        })
    }

    fn unregister(&self, room: &Id) -> Boxed<'_, bool> {
        let room = room.clone();
        Box::pin(async move { self.records.write(room, unregister).await.map_err(StoreError::from) })
    }

    fn add(&self, room: &Id, user: &Id, most: usize) -> Boxed<'_, Added> {
        let place = Place { room: room.clone(), user: user.clone(), most };
        Box::pin(async move { self.records.write(place, add).await.map_err(StoreError::from) })
    }

    fn remove(&self, room: &Id, user: &Id) -> Boxed<'_, bool> {
        let place = Place { room: room.clone(), user: user.clone(), most: 0 };
        Box::pin(async move { self.records.write(place, remove).await.map_err(StoreError::from) })
    }

    fn standing(&self, room: &Id, user: &Id) -> Boxed<'_, Standing> {
        let place = Place { room: room.clone(), user: user.clone(), most: 0 };
        Box::pin(async move { self.records.read(place, standing).await.map_err(StoreError::from) })
    }

    fn members(&self, room: &Id) -> Boxed<'_, Option<Vec<Id>>> {
        let room = room.clone();
        Box::pin(async move { self.records.read(room, members).await.map_err(StoreError::from) })
    }

    fn registered(&self, rooms: &[Id]) -> Boxed<'_, HashSet<Id>> {
        let rooms = rooms.iter().map(|room| format!("\"{room}\"")).collect::<Vec<_>>();
        // Ids have no character that JSON would have to escape.
        let rooms = format!("[{}]", rooms.join(","));
        Box::pin(async move { self.records.read(rooms, registered).await.map_err(StoreError::from) })
    }

    fn may_have_rooms(&self) -> bool {
        !self.none.is_known()
    }
}
