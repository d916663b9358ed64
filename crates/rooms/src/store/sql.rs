//! Registered rooms and their members in SQL: SQLite in the data folder, PostgreSQL or MariaDB.
//!
//! A transaction that changes the members of a room locks the row of the room, so that concurrent changes cannot exceed
//! the member limit.

use std::collections::HashSet;

use bongsu_kernel::Id;
use bongsu_sql::{Error, Migration, Query, Records, Transaction, migration, queries, query};

use super::{AddOutcome, MembershipState, StoreError};

/// The tables of this store.
pub const MIGRATIONS: &[Migration] = &[migration!("rooms", 1, "0001_members")];

queries! {
    REGISTER = query!("register", mysql);
    FIND = query!("find");
    FIND_AND_LOCK = query!("find_and_lock");
    DELETE_MEMBERS = query!("delete_members");
    DELETE = query!("delete");
    ADD = query!("add", mysql);
    COUNT = query!("count");
    REMOVE = query!("remove");
    MEMBERSHIP_STATE = query!("membership_state");
    MEMBERS = query!("members");
    REGISTERED = query!("registered", mysql);
}

/// Registered rooms and their members. Cheap to clone.
///
/// - **Durable.** A change is durable when its method returns, and every later read sees the change.
/// - **Idempotent.** A repeated change succeeds and has no further effect.
/// - **Errors.** After an error no row was changed, unless the store did not answer.
#[derive(Clone)]
pub struct SqlStore(pub Records);

impl SqlStore {
    /// Registers a room.
    pub async fn register(&self, room: &Id) -> Result<(), StoreError> {
        self.0.write(room.clone(), register).await
    }

    /// Deletes a room and all its members. Returns whether the room was registered.
    pub async fn unregister(&self, room: &Id) -> Result<bool, StoreError> {
        self.0.write(room.clone(), unregister).await
    }

    /// Adds a member, unless the room has `max_members` members already.
    pub async fn add(&self, room: &Id, user: &Id, max_members: usize) -> Result<AddOutcome, StoreError> {
        self.0.write((room.clone(), user.clone(), max_members), add).await
    }

    /// Removes a member. Returns whether the room is registered.
    pub async fn remove(&self, room: &Id, user: &Id) -> Result<bool, StoreError> {
        self.0.write((room.clone(), user.clone()), remove).await
    }

    /// Returns whether a person is a member of a room, and whether the room is registered.
    pub async fn membership_state(&self, room: &Id, user: &Id) -> Result<MembershipState, StoreError> {
        self.0.read((room.clone(), user.clone()), membership_state).await
    }

    /// Returns the members in the order of their ids; None when the room is not registered.
    pub async fn members(&self, room: &Id) -> Result<Option<Vec<Id>>, StoreError> {
        self.0.read(room.clone(), members).await
    }

    /// Returns those of the given rooms that are registered.
    pub async fn registered(&self, rooms: &[Id]) -> Result<HashSet<Id>, StoreError> {
        self.0.read(rooms.to_vec(), registered).await
    }
}

async fn room_number(tx: &mut Transaction<'_>, query: &Query, room: &Id) -> Result<Option<i64>, Error> {
    tx.row(query, &[("room", room.into())]).await?.map(|row| row.int(0)).transpose()
}

async fn register(room: &Id, tx: &mut Transaction<'_>) -> Result<(), StoreError> {
    tx.run(&REGISTER, &[("room", room.into())]).await?;
    Ok(())
}

async fn unregister(room: &Id, tx: &mut Transaction<'_>) -> Result<bool, StoreError> {
    let Some(id) = room_number(tx, &FIND_AND_LOCK, room).await? else { return Ok(false) };
    tx.run(&DELETE_MEMBERS, &[("id", id.into())]).await?;
    tx.run(&DELETE, &[("id", id.into())]).await?;
    Ok(true)
}

async fn add(
    (room, user, max_members): &(Id, Id, usize),
    tx: &mut Transaction<'_>,
) -> Result<AddOutcome, StoreError> {
    let Some(id) = room_number(tx, &FIND_AND_LOCK, room).await? else { return Ok(AddOutcome::NoRoom) };
    let parameters = [("id", id.into()), ("user", user.into())];
    let added = tx.run(&ADD, &parameters).await?;
    let count = tx.row(&COUNT, &[("id", id.into())]).await?.map_or(Ok(0), |row| row.count(0))?;
    if added == 1 && count > *max_members as u64 {
        tx.run(&REMOVE, &parameters).await?;
        return Ok(AddOutcome::Full);
    }
    Ok(AddOutcome::Added)
}

async fn remove((room, user): &(Id, Id), tx: &mut Transaction<'_>) -> Result<bool, StoreError> {
    let Some(id) = room_number(tx, &FIND_AND_LOCK, room).await? else { return Ok(false) };
    tx.run(&REMOVE, &[("id", id.into()), ("user", user.into())]).await?;
    Ok(true)
}

async fn membership_state(
    (room, user): &(Id, Id),
    tx: &mut Transaction<'_>,
) -> Result<MembershipState, StoreError> {
    let parameters = [("room", room.into()), ("user", user.into())];
    Ok(match tx.row(&MEMBERSHIP_STATE, &parameters).await? {
        None => MembershipState::NoRoom,
        Some(row) if row.maybe_text(1)?.is_some() => MembershipState::Member,
        Some(_) => MembershipState::NotMember,
    })
}

async fn members(room: &Id, tx: &mut Transaction<'_>) -> Result<Option<Vec<Id>>, StoreError> {
    let Some(id) = room_number(tx, &FIND, room).await? else { return Ok(None) };
    let rows = tx.rows(&MEMBERS, &[("id", id.into())]).await?;
    Ok(Some(rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>()?))
}

#[expect(clippy::ptr_arg, reason = "a read function takes a reference to its input")]
async fn registered(rooms: &Vec<Id>, tx: &mut Transaction<'_>) -> Result<HashSet<Id>, StoreError> {
    // Ids contain no character that JSON escapes.
    let rooms: Vec<_> = rooms.iter().map(|room| format!("\"{room}\"")).collect();
    let rooms = format!("[{}]", rooms.join(","));
    let rows = tx.rows(&REGISTERED, &[("rooms", rooms.as_str().into())]).await?;
    Ok(rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>()?)
}
