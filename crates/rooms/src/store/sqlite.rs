//! Registered rooms and members in the embedded SQLite file.

use std::sync::atomic::{AtomicBool, Ordering};

use bongsu_kernel::Id;
use bongsu_sql::rusqlite::{Connection, OptionalExtension, params};
use bongsu_sql::{self as sql, Error, Migration};

use super::{Added, Boxed, Standing, Store, StoreError};

/// The tables of this store.
pub const MIGRATIONS: &[Migration] =
    &[Migration { part: "rooms", number: 1, sql: include_str!("../../migrations/sqlite/0001_members.sql") }];

pub struct SqliteStore {
    store: sql::Store,
    /// This process is the only one that registers rooms, so it knows.
    has_rooms: AtomicBool,
}

impl SqliteStore {
    pub async fn open(store: sql::Store) -> Result<Self, Error> {
        let any =
            store.readers().read(|connection| connection.prepare("SELECT 1 FROM rooms LIMIT 1")?.exists([]));
        let has_rooms = AtomicBool::new(any.await?);
        Ok(Self { store, has_rooms })
    }
}

fn room_id(connection: &Connection, room: &str) -> Result<Option<i64>, sql::rusqlite::Error> {
    connection
        .prepare_cached("SELECT id FROM rooms WHERE room = ?1")?
        .query_row([room], |row| row.get(0))
        .optional()
}

impl Store for SqliteStore {
    fn register(&self, room: &Id) -> Boxed<'_, ()> {
        let room = room.clone();
        Box::pin(async move {
            let registered = self.store.write(move |connection| {
                connection
                    .prepare_cached("INSERT INTO rooms (room) VALUES (?1) ON CONFLICT DO NOTHING")?
                    .execute([room.as_str()])?;
                Ok(())
            });
            registered.await.map_err(StoreError::from)?;
            self.has_rooms.store(true, Ordering::Release);
            Ok(())
        })
    }

    fn unregister(&self, room: &Id) -> Boxed<'_, bool> {
        let room = room.clone();
        Box::pin(async move {
            let gone = self.store.write(move |connection| {
                let Some(id) = room_id(connection, room.as_str())? else { return Ok(false) };
                connection.prepare_cached("DELETE FROM members WHERE room_id = ?1")?.execute([id])?;
                connection.prepare_cached("DELETE FROM rooms WHERE id = ?1")?.execute([id])?;
                Ok(true)
            });
            gone.await.map_err(StoreError::from)
        })
    }

    fn add(&self, room: &Id, user: &Id, most: usize) -> Boxed<'_, Added> {
        let (room, user) = (room.clone(), user.clone());
        Box::pin(async move {
            let added = self.store.write(move |connection| {
                let Some(id) = room_id(connection, room.as_str())? else { return Ok(Added::NoRoom) };
                let added = connection
                    .prepare_cached(
                        "INSERT INTO members (room_id, user_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    )?
                    .execute(params![id, user.as_str()])?;
                let count: usize = connection
                    .prepare_cached("SELECT count(*) FROM members WHERE room_id = ?1")?
                    .query_row([id], |row| row.get::<_, i64>(0))
                    .map(|count| usize::try_from(count).unwrap_or(usize::MAX))?;
                if added == 1 && count > most {
                    connection
                        .prepare_cached("DELETE FROM members WHERE room_id = ?1 AND user_id = ?2")?
                        .execute(params![id, user.as_str()])?;
                    return Ok(Added::Full);
                }
                Ok(Added::Yes)
            });
            added.await.map_err(StoreError::from)
        })
    }

    fn remove(&self, room: &Id, user: &Id) -> Boxed<'_, bool> {
        let (room, user) = (room.clone(), user.clone());
        Box::pin(async move {
            let removed = self.store.write(move |connection| {
                let Some(id) = room_id(connection, room.as_str())? else { return Ok(false) };
                connection
                    .prepare_cached("DELETE FROM members WHERE room_id = ?1 AND user_id = ?2")?
                    .execute(params![id, user.as_str()])?;
                Ok(true)
            });
            removed.await.map_err(StoreError::from)
        })
    }

    fn standing(&self, room: &Id, user: &Id) -> Boxed<'_, Standing> {
        let (room, user) = (room.clone(), user.clone());
        Box::pin(async move {
            let standing = self.store.readers().read(move |connection| {
                let Some(id) = room_id(connection, room.as_str())? else { return Ok(Standing::NoRoom) };
                let member = connection
                    .prepare_cached("SELECT 1 FROM members WHERE room_id = ?1 AND user_id = ?2")?
                    .exists(params![id, user.as_str()])?;
                Ok(if member { Standing::Member } else { Standing::Stranger })
            });
            standing.await.map_err(StoreError::from)
        })
    }

    fn members(&self, room: &Id) -> Boxed<'_, Option<Vec<Id>>> {
        let room = room.clone();
        Box::pin(async move {
            let members = self.store.readers().read(move |connection| {
                let Some(id) = room_id(connection, room.as_str())? else { return Ok(None) };
                let mut statement = connection
                    .prepare_cached("SELECT user_id FROM members WHERE room_id = ?1 ORDER BY user_id")?;
                let members = statement.query_map([id], |row| row.get::<_, String>(0))?;
                members.collect::<Result<Vec<_>, _>>().map(Some)
            });
            let members = members.await.map_err(StoreError::from)?;
            // Nothing but ids was ever written.
            Ok(members.map(|members| members.iter().filter_map(|user| Id::new(user).ok()).collect()))
        })
    }

    fn has_rooms(&self) -> bool {
        self.has_rooms.load(Ordering::Acquire)
    }
}
