//! What the store promises; the contract stands on `SqlStore`.

use std::collections::HashSet;

use bongsu_kernel::Id;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_rooms::store::{Added, Standing};

use crate::database::Database;

const MOST: usize = 3;

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

async fn members(store: &SqlStore, room: &str) -> Option<Vec<String>> {
    let members = store.members(&id(room)).await.unwrap();
    members.map(|members| members.iter().map(|member| member.as_str().to_owned()).collect())
}

async fn standing(store: &SqlStore, room: &str, user: &str) -> Standing {
    store.standing(&id(room), &id(user)).await.unwrap()
}

pub(crate) async fn rooms_come_and_go(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    assert_eq!(members(&one, "42").await, None);
    assert!(!one.unregister(&id("42")).await.unwrap());
    one.register(&id("42")).await.unwrap();
    one.register(&id("42")).await.unwrap();
    assert_eq!(members(&other, "42").await, Some(Vec::new()));
    assert_eq!(standing(&other, "42", "7").await, Standing::Stranger);
    assert_eq!(standing(&other, "43", "7").await, Standing::NoRoom);
    one.register(&id("Lobby")).await.unwrap();
    let asked = ["42", "43", "lobby", "Lobby"].map(id);
    assert_eq!(other.registered(&asked).await.unwrap(), HashSet::from(["42", "Lobby"].map(id)));
    assert_eq!(one.add(&id("42"), &id("7"), MOST).await.unwrap(), Added::Yes);
    assert!(one.unregister(&id("42")).await.unwrap());
    assert!(!one.unregister(&id("42")).await.unwrap());
    assert_eq!(standing(&other, "42", "7").await, Standing::NoRoom);
    one.register(&id("42")).await.unwrap();
    assert_eq!(members(&other, "42").await, Some(Vec::new()), "members went with the room");
}

pub(crate) async fn members_come_and_go(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    assert_eq!(one.add(&id("42"), &id("7"), MOST).await.unwrap(), Added::NoRoom);
    assert!(!one.remove(&id("42"), &id("7")).await.unwrap());
    one.register(&id("42")).await.unwrap();
    for user in ["b", "a", "a"] {
        assert_eq!(one.add(&id("42"), &id(user), MOST).await.unwrap(), Added::Yes);
        assert_eq!(standing(&other, "42", user).await, Standing::Member);
    }
    assert_eq!(members(&other, "42").await.unwrap(), ["a", "b"]);
    for _ in 0..2 {
        assert!(other.remove(&id("42"), &id("a")).await.unwrap());
        assert_eq!(standing(&one, "42", "a").await, Standing::Stranger);
    }
    assert_eq!(members(&one, "42").await.unwrap(), ["b"]);
}

pub(crate) async fn a_room_keeps_so_many_members_and_no_more(database: Database) {
    let store = database.store().await;
    store.register(&id("42")).await.unwrap();
    for user in ["a", "b", "c"] {
        assert_eq!(store.add(&id("42"), &id(user), MOST).await.unwrap(), Added::Yes);
    }
    assert_eq!(store.add(&id("42"), &id("d"), MOST).await.unwrap(), Added::Full);
    assert_eq!(store.add(&id("42"), &id("b"), MOST).await.unwrap(), Added::Yes, "is in it already");
    assert_eq!(members(&store, "42").await.unwrap(), ["a", "b", "c"]);
    assert!(store.remove(&id("42"), &id("a")).await.unwrap());
    assert_eq!(store.add(&id("42"), &id("d"), MOST).await.unwrap(), Added::Yes);
}

pub(crate) async fn many_who_are_added_at_once_do_not_exceed_it(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    one.register(&id("42")).await.unwrap();
    for round in 0..5 {
        let add = async |store: &SqlStore, side: &str| {
            let mut added = 0;
            for n in 0..4 {
                let user = id(&format!("{side}{round}-{n}"));
                added += usize::from(store.add(&id("42"), &user, MOST).await.unwrap() == Added::Yes);
            }
            added
        };
        let (left, right) = tokio::join!(add(&one, "l"), add(&other, "r"));
        let now = members(&one, "42").await.unwrap();
        assert_eq!((left + right, now.len()), (MOST, MOST));
        for user in now {
            assert!(other.remove(&id("42"), &id(&user)).await.unwrap());
        }
    }
}

pub(crate) async fn rooms_and_people_that_differ_by_case_differ(database: Database) {
    let store = database.store().await;
    store.register(&id("A")).await.unwrap();
    assert_eq!(standing(&store, "a", "x").await, Standing::NoRoom);
    store.register(&id("a")).await.unwrap();
    assert_eq!(store.add(&id("A"), &id("x"), MOST).await.unwrap(), Added::Yes);
    assert_eq!(store.add(&id("A"), &id("X"), MOST).await.unwrap(), Added::Yes);
    assert_eq!(standing(&store, "a", "x").await, Standing::Stranger);
    assert_eq!(members(&store, "A").await.unwrap(), ["X", "x"]);
}
