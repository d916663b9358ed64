//! The inbox on every database: what is told, counted, read and forgotten, with time under control.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod contract;
mod database;
mod derive;

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
                        crate::contract::$promise(database).await;
                    }
                }
            )*
        }
    };
}

contract! {
    what_is_too_old_goes_in_steps_and_the_counts_with_it
    a_notice_goes_with_its_last_entry_and_one_that_is_told_again_stays
    overlapping_sets_are_told_without_a_deadlock
    everybody_hears_of_it_once_with_where_they_stand
}
