//! The contract of the store of registered rooms, tested on every database.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod database;
mod store_contract;

/// Makes one test of each function of the contract on every database.
macro_rules! contract {
    ($($test:ident)*) => {
        contract!(embedded, None, $($test)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($test)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($test)*);
    };
    ($name:ident, $flavour:expr, $($test:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(database) = crate::database::Database::start($flavour).await {
                        crate::store_contract::$test(database).await;
                    }
                }
            )*
        }
    };
}

contract! {
    rooms_are_registered_and_unregistered
    members_are_added_and_removed
    the_member_limit_of_a_room_holds
    the_member_limit_holds_with_concurrent_changes
    ids_that_differ_by_case_are_different
}
