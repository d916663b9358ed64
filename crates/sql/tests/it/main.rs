//! What `Records` promises, held against every database, and what it does when servers fail.
//!
//! `contract` and `helpers_contract` run on the embedded file, PostgreSQL and MariaDB, `server_contract` on the two
//! servers. `faults` has a server of its own for every test, and does things to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod contract;
mod database;
mod faults;
mod helpers_contract;
mod server_contract;

/// One test for every promise.
macro_rules! promises {
    ($database:ty: $($file:ident { $($promise:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $promise() {
                if let Some(database) = <$database as crate::database::Database>::start().await {
                    crate::$file::$promise(database).await;
                }
            }
        )*)*
    };
}

macro_rules! suite {
    ($name:ident, $database:ty $(, $more:ident { $($promise:ident)* })*) => {
        mod $name {
            promises! { $database:
                contract {
                    what_was_answered_is_seen_by_everybody
                    a_change_that_fails_changes_nothing
                    a_change_that_goes_on_after_a_failed_query_changes_nothing
                    every_kind_of_value_comes_back
                    texts_that_differ_by_case_only_differ
                    sums_and_counts_are_numbers
                    what_is_no_number_and_no_text_is_refused
                    a_missing_argument_is_named
                    many_rows_go_in_as_one_list
                }
                helpers_contract {
                    what_was_done_once_is_not_done_again
                    of_many_at_once_one_is_the_first
                    what_was_done_long_ago_is_forgotten_in_steps
                    work_is_claimed_in_order_by_one_worker_at_a_time
                    a_claim_that_ended_is_another_workers_and_cannot_be_finished_late
                    what_was_parked_comes_again_and_is_counted
                    many_workers_do_everything_once
                    done_work_is_forgotten_in_steps
                }
                $($more { $($promise)* })*
            }
        }
    };
}

suite!(embedded, crate::database::Embedded);
suite!(postgres, crate::database::Postgres, server_contract {
    a_read_sees_one_moment
    changes_that_block_each_other_run_again
    increments_of_many_hubs_all_count
    a_change_whose_asker_went_away_is_finished
    a_change_that_takes_too_long_is_given_up
    several_hubs_migrate_once
    a_newer_database_is_left_alone
    a_database_is_known_by_its_own_identity
    a_claimed_database_is_one_process_s_until_it_ends
    what_is_prepared_is_not_changed_until_it_is_migrated
    who_waits_for_a_connection_waits_not_longer_than_for_the_rest
});
suite!(mariadb, crate::database::MariaDb, server_contract {
    a_read_sees_one_moment
    changes_that_block_each_other_run_again
    increments_of_many_hubs_all_count
    a_change_whose_asker_went_away_is_finished
    a_change_that_takes_too_long_is_given_up
    several_hubs_migrate_once
    a_newer_database_is_left_alone
    a_database_is_known_by_its_own_identity
    a_claimed_database_is_one_process_s_until_it_ends
    what_is_prepared_is_not_changed_until_it_is_migrated
    who_waits_for_a_connection_waits_not_longer_than_for_the_rest
});
