//! The store of registered rooms, held against its contract on every database.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod database;
mod store_contract;

/// One test for every promise, on every database.
macro_rules! contract {
    ($($promise:ident)*) => {
        contract!(embedded, None, $($promise)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($promise)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($promise)*);
    };
    ($name:ident, $flavour:expr, $($promise:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $promise() {
                    if let Some(database) = crate::database::Database::start($flavour).await {
                        crate::store_contract::$promise(database).await;
                    }
                }
            )*
        }
    };
}

contract! {
    rooms_come_and_go
    members_come_and_go
    a_room_keeps_so_many_members_and_no_more
    many_who_are_added_at_once_do_not_exceed_it
    rooms_and_people_that_differ_by_case_differ
}
