//! Tests of the contract that is documented on `SqlStore`.

use std::collections::HashSet;

use bongsu_kernel::Id;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_rooms::store::{AddOutcome, MembershipState};

use crate::database::Database;

const MAX_MEMBERS: usize = 3;

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

async fn members(store: &SqlStore, room: &str) -> Option<Vec<String>> {
    let members = store.members(&id(room)).await.unwrap();
    members.map(|members| members.iter().map(|member| member.as_str().to_owned()).collect())
}

async fn membership_state(store: &SqlStore, room: &str, user: &str) -> MembershipState {
    store.membership_state(&id(room), &id(user)).await.unwrap()
}

pub(crate) async fn rooms_are_registered_and_unregistered(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    assert_eq!(members(&one, "42").await, None);
    assert!(!one.unregister(&id("42")).await.unwrap());
    one.register(&id("42")).await.unwrap();
    one.register(&id("42")).await.unwrap();
    assert_eq!(members(&other, "42").await, Some(Vec::new()));
    assert_eq!(membership_state(&other, "42", "7").await, MembershipState::NotMember);
    assert_eq!(membership_state(&other, "43", "7").await, MembershipState::NoRoom);
    one.register(&id("Lobby")).await.unwrap();
    let queried = ["42", "43", "lobby", "Lobby"].map(id);
    assert_eq!(other.registered(&queried).await.unwrap(), HashSet::from(["42", "Lobby"].map(id)));
    assert_eq!(one.add(&id("42"), &id("7"), MAX_MEMBERS).await.unwrap(), AddOutcome::Added);
    assert!(one.unregister(&id("42")).await.unwrap());
    assert!(!one.unregister(&id("42")).await.unwrap());
    assert_eq!(membership_state(&other, "42", "7").await, MembershipState::NoRoom);
    one.register(&id("42")).await.unwrap();
    assert_eq!(members(&other, "42").await, Some(Vec::new()), "the members were deleted with the room");
}

pub(crate) async fn members_are_added_and_removed(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    assert_eq!(one.add(&id("42"), &id("7"), MAX_MEMBERS).await.unwrap(), AddOutcome::NoRoom);
    assert!(!one.remove(&id("42"), &id("7")).await.unwrap());
    one.register(&id("42")).await.unwrap();
    for user in ["b", "a", "a"] {
        assert_eq!(one.add(&id("42"), &id(user), MAX_MEMBERS).await.unwrap(), AddOutcome::Added);
        assert_eq!(membership_state(&other, "42", user).await, MembershipState::Member);
    }
    assert_eq!(members(&other, "42").await.unwrap(), ["a", "b"]);
    for _ in 0..2 {
        assert!(other.remove(&id("42"), &id("a")).await.unwrap());
        assert_eq!(membership_state(&one, "42", "a").await, MembershipState::NotMember);
    }
    assert_eq!(members(&one, "42").await.unwrap(), ["b"]);
}

pub(crate) async fn the_member_limit_of_a_room_holds(database: Database) {
    let store = database.store().await;
    store.register(&id("42")).await.unwrap();
    for user in ["a", "b", "c"] {
        assert_eq!(store.add(&id("42"), &id(user), MAX_MEMBERS).await.unwrap(), AddOutcome::Added);
    }
    assert_eq!(store.add(&id("42"), &id("d"), MAX_MEMBERS).await.unwrap(), AddOutcome::Full);
    assert_eq!(
        store.add(&id("42"), &id("b"), MAX_MEMBERS).await.unwrap(),
        AddOutcome::Added,
        "a member may be added again"
    );
    assert_eq!(members(&store, "42").await.unwrap(), ["a", "b", "c"]);
    assert!(store.remove(&id("42"), &id("a")).await.unwrap());
    assert_eq!(store.add(&id("42"), &id("d"), MAX_MEMBERS).await.unwrap(), AddOutcome::Added);
}

pub(crate) async fn the_member_limit_holds_with_concurrent_changes(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    one.register(&id("42")).await.unwrap();
    for round in 0..5 {
        let add = async |store: &SqlStore, side: &str| {
            let mut added = 0;
            for n in 0..4 {
                let user = id(&format!("{side}{round}-{n}"));
                added +=
                    usize::from(store.add(&id("42"), &user, MAX_MEMBERS).await.unwrap() == AddOutcome::Added);
            }
            added
        };
        let (left, right) = tokio::join!(add(&one, "l"), add(&other, "r"));
        let current = members(&one, "42").await.unwrap();
        assert_eq!((left + right, current.len()), (MAX_MEMBERS, MAX_MEMBERS));
        for user in current {
            assert!(other.remove(&id("42"), &id(&user)).await.unwrap());
        }
    }
}

pub(crate) async fn ids_that_differ_by_case_are_different(database: Database) {
    let store = database.store().await;
    store.register(&id("A")).await.unwrap();
    assert_eq!(membership_state(&store, "a", "x").await, MembershipState::NoRoom);
    store.register(&id("a")).await.unwrap();
    assert_eq!(store.add(&id("A"), &id("x"), MAX_MEMBERS).await.unwrap(), AddOutcome::Added);
    assert_eq!(store.add(&id("A"), &id("X"), MAX_MEMBERS).await.unwrap(), AddOutcome::Added);
    assert_eq!(membership_state(&store, "a", "x").await, MembershipState::NotMember);
    assert_eq!(members(&store, "A").await.unwrap(), ["X", "x"]);
}
