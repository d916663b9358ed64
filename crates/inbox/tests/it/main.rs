//! The inbox on every database: what is told, counted, read and forgotten, with time under control.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod buffered;
mod contract;
mod database;
mod derive;

/// One test for every promise, on every database.
macro_rules! contract {
    ($($start:ident: $($promise:ident)*;)*) => {
        contract!(embedded, None, $($($start $promise)*)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($($start $promise)*)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($($start $promise)*)*);
    };
    ($name:ident, $flavour:expr, $($start:ident $promise:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $promise() {
                    if let Some(database) = crate::database::Database::$start($flavour).await {
                        crate::contract::$promise(database).await;
                    }
                }
            )*
        }
    };
}

contract! {
    start: what_is_too_old_goes_in_steps_and_the_counts_with_it
    a_list_of_large_entries_is_bounded_and_the_next_one_goes_on
    a_notice_goes_with_its_last_entry_and_one_that_is_told_again_stays
    a_position_before_what_time_took_is_told_of_the_hole
    everybody_hears_of_it_once_with_where_they_stand
    a_service_and_a_room_may_give_the_same_event_id;
    start_older: entries_of_the_first_schema_are_not_made_again;
    start_apart: overlapping_sets_are_told_without_a_deadlock;
}

/// One test for every promise about marks, on every pair of engines.
macro_rules! buffered {
    ($($name:ident = $engine:ident, $flavour:ident: $($promise:ident)*;)*) => {
        $(mod $name {
            use bongsu_testkit::{Engine, sql::Flavour};

            $(
                #[tokio::test]
                async fn $promise() {
                    let database = crate::database::Database::start(Some(Flavour::$flavour)).await;
                    if let Some(fleet) = crate::buffered::Fleet::start(Engine::$engine, database).await {
                        crate::buffered::$promise(fleet).await;
                    }
                }
            )*
        })*
    };
}

buffered! {
    redis_and_postgres = Redis, Postgres:
        a_mark_that_comes_while_others_are_written_stays
        what_others_wrote_among_the_marks_harms_nobody
        versions_only_grow_and_have_one_count_each;
    cluster_and_mariadb = Cluster, MariaDb:
        a_mark_that_comes_while_others_are_written_stays
        what_others_wrote_among_the_marks_harms_nobody
        versions_only_grow_and_have_one_count_each;
}
