//! Tests of the inbox on every database: notifying, counting, reading and retention, with a manual clock.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod buffered;
mod contract;
mod database;
mod materialize;

/// Makes a test of every contract function, on every database.
macro_rules! contract {
    ($($start:ident: $($test:ident)*;)*) => {
        contract!(embedded, None, $($($start $test)*)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($($start $test)*)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($($start $test)*)*);
    };
    ($name:ident, $flavour:expr, $($start:ident $test:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(database) = crate::database::Database::$start($flavour).await {
                        crate::contract::$test(database).await;
                    }
                }
            )*
        }
    };
}

contract! {
    start: expired_entries_are_removed_in_batches_with_their_counts
    a_page_of_large_entries_is_bounded_and_the_next_one_continues
    a_notice_is_removed_after_its_last_entry_and_kept_while_it_has_one
    a_position_before_a_retention_gap_is_too_far_behind
    every_target_gets_one_entry_with_its_unread_count
    a_service_and_a_room_may_use_the_same_event_id;
    start_with_first_schema: entries_of_the_first_schema_are_not_made_again;
    start_isolated: overlapping_targets_are_notified_without_a_deadlock;
}

/// Makes a test of every function about buffered marks, on every pair of engines.
macro_rules! buffered {
    ($($name:ident = $engine:ident, $flavour:ident: $($test:ident)*;)*) => {
        $(mod $name {
            use bongsu_testkit::{Engine, sql::Flavour};

            $(
                #[tokio::test]
                async fn $test() {
                    let database = crate::database::Database::start(Some(Flavour::$flavour)).await;
                    if let Some(fleet) = crate::buffered::Fleet::start(Engine::$engine, database).await {
                        crate::buffered::$test(fleet).await;
                    }
                }
            )*
        })*
    };
}

buffered! {
    redis_and_postgres = Redis, Postgres:
        a_mark_buffered_during_a_flush_is_kept
        foreign_fields_in_the_mark_buffer_are_ignored
        versions_only_grow_and_have_one_count_each;
    cluster_and_mariadb = Cluster, MariaDb:
        a_mark_buffered_during_a_flush_is_kept
        foreign_fields_in_the_mark_buffer_are_ignored
        versions_only_grow_and_have_one_count_each;
}
