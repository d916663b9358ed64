//! The outbox on every database: no row is skipped, whoever commits when.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]
#![allow(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod database;
mod gaps;
mod held;
mod hostile;
mod names;
mod older;
mod places;
mod work;

/// One test for every promise, on every database.
macro_rules! contract {
    ($($file:ident: $($promise:ident)*;)*) => {
        contract!(embedded, None, $($file: $($promise)*;)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($file: $($promise)*;)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($file: $($promise)*;)*);
    };
    ($name:ident, $flavour:expr, $($file:ident: $($promise:ident)*;)*) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $promise() {
                    if let Some(database) = crate::database::Database::start($flavour).await {
                        crate::$file::$promise(database).await;
                    }
                }
            )*)*
        }
    };
}

contract! {
    gaps: every_committed_row_is_seen_once_by_everybody_in_one_order;
    held: an_open_transaction_holds_up_nobody
        a_row_that_somebody_holds_holds_up_its_own_target_only
        a_target_that_is_held_up_slows_down_nobody
        a_database_that_was_restored_is_noticed;
    hostile: positions_that_others_wrote_are_given_anew
        text_that_is_no_utf8_stops_nobody
        requests_that_take_every_connection_hold_up_no_positions
        rights_are_nobodys_who_is_only_named_alike
        memberships_that_cannot_tell_people_apart_are_refused
        a_membership_that_is_nothing_any_more_has_ended
        a_right_that_is_somebody_elses_by_a_blank_has_ended
        a_right_ends_here_wherever_its_program_looks_for_tables
        a_sessions_own_tables_hide_no_right_that_ends
        names_of_any_length_are_read_in_part
        a_table_that_was_emptied_is_told_to_everybody;
    places: a_page_begins_where_it_should
        a_withdrawal_takes_its_place_whoever_makes_it
        what_is_too_old_goes_unless_somebody_needs_it
        rows_that_no_worker_claims_go_when_they_are_old;
    names: tables_of_other_names_are_used_like_the_usual_ones
        a_query_says_who_may_follow
        a_database_whose_tables_have_other_names_is_refused;
    work: work_is_done_once_and_in_order
        what_fails_is_tried_again_and_what_is_away_costs_no_try
        what_nobody_can_be_told_of_is_marked_and_passed_over
        what_somebody_holds_holds_up_its_own_target_only
        a_restored_database_is_worked_through_anew;
    older: a_table_without_targets_is_brought_up_to_date
        tables_that_cannot_work_are_refused_and_left_as_they_are
        its_steps_can_be_made_again;
}
