//! Registered rooms and members in SQL, in the process or on a server that a fleet shares.
//!
//! Whoever changes the members of a room holds its row, so that a limit of members holds with many changes at once.

use std::collections::HashSet;

use bongsu_kernel::Id;
use bongsu_sql::{Boxed as Done, Error, Migration, Query, Records, Transaction, migration, query};

use super::{Added, Boxed, Standing, Store, StoreError};

/// The tables of this store.
pub const MIGRATIONS: &[Migration] = &[migration!("rooms", 1, "0001_members")];

static REGISTER: Query = query!("register", mysql);
static FIND: Query = query!("find");
static HOLD: Query = query!("hold");
static FORGET_MEMBERS: Query = query!("forget_members");
static FORGET: Query = query!("forget");
static ADD: Query = query!("add", mysql);
static COUNT: Query = query!("count");
static REMOVE: Query = query!("remove");
static STANDING: Query = query!("standing");
static MEMBERS: Query = query!("members");
static REGISTERED: Query = query!("registered", mysql);

/// All of them, for the test that every database understands them.
pub static QUERIES: &[&Query] = &[
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

pub struct SqlStore(Records);

impl SqlStore {
    pub fn new(records: Records) -> Self {
        Self(records)
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

fn register<'t>(room: &'t Id, tx: &'t mut Transaction<'_>) -> Done<'t, Result<(), Error>> {
    Box::pin(async move {
        tx.run(&REGISTER, &[("room", room.into())]).await?;
        Ok(())
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
        Box::pin(async move { self.0.write(room, register).await.map_err(StoreError::from) })
    }

    fn unregister(&self, room: &Id) -> Boxed<'_, bool> {
        let room = room.clone();
        Box::pin(async move { self.0.write(room, unregister).await.map_err(StoreError::from) })
    }

    fn add(&self, room: &Id, user: &Id, most: usize) -> Boxed<'_, Added> {
        let place = Place { room: room.clone(), user: user.clone(), most };
        Box::pin(async move { self.0.write(place, add).await.map_err(StoreError::from) })
    }

    fn remove(&self, room: &Id, user: &Id) -> Boxed<'_, bool> {
        let place = Place { room: room.clone(), user: user.clone(), most: 0 };
        Box::pin(async move { self.0.write(place, remove).await.map_err(StoreError::from) })
    }

    fn standing(&self, room: &Id, user: &Id) -> Boxed<'_, Standing> {
        let place = Place { room: room.clone(), user: user.clone(), most: 0 };
        Box::pin(async move { self.0.read(place, standing).await.map_err(StoreError::from) })
    }

    fn members(&self, room: &Id) -> Boxed<'_, Option<Vec<Id>>> {
        let room = room.clone();
        Box::pin(async move { self.0.read(room, members).await.map_err(StoreError::from) })
    }

    fn registered(&self, rooms: &[Id]) -> Boxed<'_, HashSet<Id>> {
        let rooms = rooms.iter().map(|room| format!("\"{room}\"")).collect::<Vec<_>>();
        // Ids have no character that JSON would have to escape.
        let rooms = format!("[{}]", rooms.join(","));
        Box::pin(async move { self.0.read(rooms, registered).await.map_err(StoreError::from) })
    }
}
