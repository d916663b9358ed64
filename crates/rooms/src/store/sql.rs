//! Registered rooms and members in SQL, in the process or on a server that a fleet shares.
//!
//! Whoever changes the members of a room holds its row, so that a limit of members holds with many changes at once.

use std::collections::HashSet;

use bongsu_kernel::Id;
use bongsu_sql::{Boxed, Error, Migration, Query, Records, Transaction, migration, query};

use super::{Added, Standing, StoreError};

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

/// Registered rooms and their members. Cheap to clone.
///
/// - **Durable** before it answers, and seen by every question that is asked after the answer.
/// - **Repeating** a change is no error and changes nothing more.
/// - **Errors** mean that nothing was changed, unless the store did not answer.
#[derive(Clone)]
pub struct SqlStore(pub Records);

impl SqlStore {
    /// Registers a room.
    pub async fn register(&self, room: &Id) -> Result<(), StoreError> {
        self.0.write(room.clone(), register).await
    }

    /// Takes a room and all its members away. Says whether it was there.
    pub async fn unregister(&self, room: &Id) -> Result<bool, StoreError> {
        self.0.write(room.clone(), unregister).await
    }

    /// Adds a member; a room keeps at most `most`.
    pub async fn add(&self, room: &Id, user: &Id, most: usize) -> Result<Added, StoreError> {
        self.0.write((room.clone(), user.clone(), most), add).await
    }

    /// Takes a member away. Says whether the room is registered.
    pub async fn remove(&self, room: &Id, user: &Id) -> Result<bool, StoreError> {
        self.0.write((room.clone(), user.clone()), remove).await
    }

    /// What somebody is to a room.
    pub async fn standing(&self, room: &Id, user: &Id) -> Result<Standing, StoreError> {
        self.0.read((room.clone(), user.clone()), standing).await
    }

    /// Who is a member, in order; None when the room is not registered.
    pub async fn members(&self, room: &Id) -> Result<Option<Vec<Id>>, StoreError> {
        self.0.read(room.clone(), members).await
    }

    /// Those of these rooms that are registered.
    pub async fn registered(&self, rooms: &[Id]) -> Result<HashSet<Id>, StoreError> {
        self.0.read(rooms.to_vec(), registered).await
    }
}

type Done<'t, T> = Boxed<'t, Result<T, StoreError>>;

async fn number_of(tx: &mut Transaction<'_>, query: &Query, room: &Id) -> Result<Option<i64>, Error> {
    tx.row(query, &[("room", room.into())]).await?.map(|row| row.int(0)).transpose()
}

fn register<'t>(room: &'t Id, tx: &'t mut Transaction<'_>) -> Done<'t, ()> {
    Box::pin(async move {
        tx.run(&REGISTER, &[("room", room.into())]).await?;
        Ok(())
    })
}

fn unregister<'t>(room: &'t Id, tx: &'t mut Transaction<'_>) -> Done<'t, bool> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &HOLD, room).await? else { return Ok(false) };
        tx.run(&FORGET_MEMBERS, &[("id", id.into())]).await?;
        tx.run(&FORGET, &[("id", id.into())]).await?;
        Ok(true)
    })
}

fn add<'t>((room, user, most): &'t (Id, Id, usize), tx: &'t mut Transaction<'_>) -> Done<'t, Added> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &HOLD, room).await? else { return Ok(Added::NoRoom) };
        let both = [("id", id.into()), ("user", user.into())];
        let added = tx.run(&ADD, &both).await?;
        let count = tx.row(&COUNT, &[("id", id.into())]).await?.map_or(Ok(0), |row| row.count(0))?;
        if added == 1 && count > *most as u64 {
            tx.run(&REMOVE, &both).await?;
            return Ok(Added::Full);
        }
        Ok(Added::Yes)
    })
}

fn remove<'t>((room, user): &'t (Id, Id), tx: &'t mut Transaction<'_>) -> Done<'t, bool> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &HOLD, room).await? else { return Ok(false) };
        tx.run(&REMOVE, &[("id", id.into()), ("user", user.into())]).await?;
        Ok(true)
    })
}

fn standing<'t>((room, user): &'t (Id, Id), tx: &'t mut Transaction<'_>) -> Done<'t, Standing> {
    Box::pin(async move {
        let both = [("room", room.into()), ("user", user.into())];
        Ok(match tx.row(&STANDING, &both).await? {
            None => Standing::NoRoom,
            Some(row) if row.maybe_text(1)?.is_some() => Standing::Member,
            Some(_) => Standing::Stranger,
        })
    })
}

fn members<'t>(room: &'t Id, tx: &'t mut Transaction<'_>) -> Done<'t, Option<Vec<Id>>> {
    Box::pin(async move {
        let Some(id) = number_of(tx, &FIND, room).await? else { return Ok(None) };
        let rows = tx.rows(&MEMBERS, &[("id", id.into())]).await?;
        Ok(Some(rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>()?))
    })
}

#[expect(clippy::ptr_arg, reason = "a question takes what it was given by reference")]
fn registered<'t>(rooms: &'t Vec<Id>, tx: &'t mut Transaction<'_>) -> Done<'t, HashSet<Id>> {
    Box::pin(async move {
        // Ids have no character that JSON would have to escape.
        let rooms: Vec<_> = rooms.iter().map(|room| format!("\"{room}\"")).collect();
        let rooms = format!("[{}]", rooms.join(","));
        let rows = tx.rows(&REGISTERED, &[("rooms", rooms.as_str().into())]).await?;
        Ok(rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>()?)
    })
}
