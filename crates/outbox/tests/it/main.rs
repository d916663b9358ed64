//! Tests of the outbox on every database: positions, reading, memberships, workers, table names and migrations.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]
#![allow(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod database;
mod gaps;
mod hostile;
mod locked_rows;
mod names;
mod older_tables;
mod positions;
mod worker;

/// Makes a test of every contract function, on every database.
macro_rules! contract {
    ($($file:ident: $($test:ident)*;)*) => {
        contract!(embedded, None, $($file: $($test)*;)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($file: $($test)*;)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($file: $($test)*;)*);
    };
    ($name:ident, $flavour:expr, $($file:ident: $($test:ident)*;)*) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $test() {
                    if let Some(database) = crate::database::Database::start($flavour).await {
                        crate::$file::$test(database).await;
                    }
                }
            )*)*
        }
    };
}

contract! {
    gaps: every_committed_row_is_read_once_by_every_tail_in_one_order;
    locked_rows: an_open_transaction_delays_no_other_row
        a_locked_row_delays_only_its_target
        a_delayed_target_does_not_slow_other_targets
        a_restored_database_is_detected;
    hostile: positions_written_by_other_programs_are_replaced
        invalid_utf8_does_not_stop_other_rows
        requests_that_take_every_connection_do_not_delay_the_sequencer
        membership_requires_the_exact_ids
        membership_columns_that_merge_different_ids_are_refused
        a_membership_with_a_null_status_has_ended
        a_trailing_blank_in_an_id_ends_the_membership
        the_search_path_does_not_hide_a_removal
        temporary_tables_do_not_hide_a_removal
        long_event_types_are_read_up_to_a_limit
        truncating_the_table_is_reported_to_every_tail;
    positions: a_page_starts_at_the_requested_position
        every_removal_of_a_membership_writes_a_row_in_order
        expired_rows_are_removed_unless_a_worker_or_stream_needs_them
        expired_rows_without_a_worker_are_removed;
    names: tables_with_configured_names_work_like_the_defaults
        a_membership_query_decides_who_may_read
        a_database_with_other_table_names_is_refused;
    worker: rows_are_handled_once_and_in_order
        failures_are_retried_and_outages_cost_no_attempt
        rows_that_cannot_be_sent_are_marked_and_skipped
        a_locked_row_delays_only_later_rows_of_its_target
        a_restored_database_is_scanned_again;
    older_tables: a_table_without_targets_is_migrated
        unusable_tables_are_refused_and_left_unchanged
        migrations_can_be_applied_again;
}
