//! The contract of `Records` on every database, and its behaviour when servers fail.
//!
//! `contract` and `once_contract` run on the embedded file, PostgreSQL and MariaDB, `server_contract` on the two
//! servers. The tests of `faults` kill, pause or disconnect a server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod contract;
mod database;
mod faults;
mod once_contract;
mod server_contract;

/// Defines a test for every function of a contract.
macro_rules! contract_tests {
    ($database:ty: $($file:ident { $($test:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $test() {
                if let Some(database) = <$database as crate::database::Database>::start().await {
                    crate::$file::$test(database).await;
                }
            }
        )*)*
    };
}

macro_rules! suite {
    ($name:ident, $database:ty $(, $more:ident { $($test:ident)* })*) => {
        mod $name {
            contract_tests! { $database:
                contract {
                    acknowledged_changes_are_visible_to_all
                    a_change_that_fails_changes_nothing
                    a_change_that_goes_on_after_a_failed_query_changes_nothing
                    every_kind_of_value_comes_back
                    texts_that_differ_by_case_only_differ
                    sums_and_counts_are_numbers
                    values_that_are_neither_integer_nor_text_are_refused
                    a_missing_argument_is_named
                    many_rows_go_in_as_one_list
                }
                once_contract {
                    a_recorded_key_is_not_new_again
                    one_of_many_concurrent_records_is_the_first
                    old_keys_are_deleted_in_steps
                }
                $($more { $($test)* })*
            }
        }
    };
}

suite!(embedded, crate::database::Embedded);
suite!(postgres, crate::database::Postgres, server_contract {
    a_read_sees_one_snapshot
    changes_that_block_each_other_run_again
    increments_of_many_hubs_all_count
    a_change_is_finished_after_its_caller_was_dropped
    a_change_that_takes_too_long_is_given_up
    several_hubs_migrate_once
    a_newer_database_is_refused
    a_database_is_known_by_its_own_identity
    a_database_lock_lasts_until_its_process_ends
    a_prepared_server_is_unchanged_until_it_is_migrated
    waiting_for_a_connection_counts_towards_the_time_limit
});
suite!(mariadb, crate::database::MariaDb, server_contract {
    a_read_sees_one_snapshot
    changes_that_block_each_other_run_again
    increments_of_many_hubs_all_count
    a_change_is_finished_after_its_caller_was_dropped
    a_change_that_takes_too_long_is_given_up
    several_hubs_migrate_once
    a_newer_database_is_refused
    a_database_is_known_by_its_own_identity
    a_database_lock_lasts_until_its_process_ends
    a_prepared_server_is_unchanged_until_it_is_migrated
    waiting_for_a_connection_counts_towards_the_time_limit
});
