//! The contract suite of the log port: written once, run against every adapter.
//!
//! An adapter joins by implementing [`Adapter`] and calling [`contract!`]: one test per promise, by the same names.
//! Each test has an empty place of its own, a clock in its hand, and a sink that writes down what it is told.

pub(crate) mod concurrency;
pub(crate) mod follow_up;
pub(crate) mod membership;
pub(crate) mod model;
pub(crate) mod once;
pub(crate) mod order;
pub(crate) mod reading;
pub(crate) mod seen_to;
pub(crate) mod support;
pub(crate) mod told;
pub(crate) mod trimming;

use std::sync::Arc;

use bongsu_kernel::Clock;
use bongsu_live::log::{FollowUps, Sink};
use bongsu_live::{Log, SubjectName};

/// A place where a log lives: it outlasts the log, which can be opened there again.
pub(crate) trait Adapter: Sized {
    type Running;

    /// Whether its engine can be had in this run.
    fn is_available() -> bool {
        true
    }

    /// A new place with nothing in it.
    async fn empty() -> Self;

    /// As `empty`, where nobody else is disturbed by a kill.
    async fn mortal() -> Self {
        Self::empty().await
    }

    /// Opens the log. Nothing else has it open.
    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Self::Running;

    fn log(running: &Self::Running) -> Arc<dyn Log>;

    /// What the log writes down for people.
    fn seen_to(running: &Self::Running) -> Arc<dyn FollowUps>;

    /// Has the sink told of a subject from now on, where that has to be asked for.
    async fn listen(_: &Self::Running, _: &SubjectName) {}

    /// Ends it in order.
    async fn close(&self, running: Self::Running);

    /// Ends it as a kill would: nothing is flushed, finished or tidied up.
    async fn kill(&mut self, running: Self::Running);

    /// The records that were written down for people, oldest first.
    async fn follow_ups(&self) -> Vec<String>;
}

/// One test for every promise.
macro_rules! contract {
    ($adapter:ty: $($file:ident { $($promise:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $promise() {
                if <$adapter as $crate::log_contract::Adapter>::is_available() {
                    $crate::log_contract::$file::$promise::<$adapter>().await;
                }
            }
        )*)*
    };
    ($adapter:ty) => {
        $crate::log_contract::contract! { $adapter:
            order {
                ids_grow_in_the_order_of_a_batch
                ids_grow_while_the_clock_stands_still_or_goes_back
                ids_grow_over_reopening_with_a_clock_that_went_back
                ids_are_not_given_again_after_everything_was_trimmed
                subjects_do_not_disturb_each_other
                what_was_acknowledged_is_there_after_a_kill
            }
            once {
                the_same_key_and_content_is_one_event
                the_same_key_with_other_content_is_refused
                a_digest_that_an_earlier_version_stored_is_the_same_content
                the_same_key_in_another_subject_is_another_event
                without_a_key_every_append_is_an_event
                a_key_is_kept_for_24_hours
                keys_outlast_reopening_and_kills
                keys_outlast_the_trimming_of_their_event
                a_key_twice_in_one_batch_is_one_event
                a_refused_event_leaves_the_rest_of_its_batch_alone
                many_at_once_with_one_key_are_one_event
            }
            told {
                the_sink_hears_of_a_batch_in_order_before_the_answer
                every_event_names_the_one_before_it
                the_chain_goes_on_over_reopening_and_trimming
                repeated_and_refused_events_are_not_told
                what_is_told_is_what_is_read
            }
            reading {
                an_empty_subject_has_a_beginning_and_nothing_else
                reading_goes_on_after_a_position
                a_position_from_nowhere_is_unknown
                a_position_older_than_the_log_is_told_with_the_oldest
                positions_at_the_limits_of_numbers_do_no_harm
                a_reader_that_sets_no_bound_gets_everything
                the_beginning_of_an_empty_subject_is_known_while_nothing_is_trimmed
                pages_are_bounded_in_entries
                pages_are_bounded_in_bytes_and_never_empty
                the_head_is_the_newest_event
                everything_that_was_appended_is_read_back
            }
            trimming {
                a_subject_keeps_its_newest_events_and_not_many_more
                a_subject_that_keeps_one_event_keeps_the_newest
                a_lower_number_to_keep_is_reached_with_the_next_events
                events_are_counted_on_over_trimming
                a_purge_leaves_the_newest_entry_and_forgets_keys
            }
            follow_up {
                who_is_to_be_told_is_written_down_with_the_event
                the_trace_of_an_event_is_kept_with_it_and_with_its_record
                events_without_recipients_leave_no_record
                repeated_and_refused_events_leave_no_record
                records_outlast_trimming_and_kills
                the_record_is_exactly_the_golden_one
                the_record_for_members_is_exactly_the_golden_one
            }
            membership {
                an_event_made_for_the_current_membership_is_stored
                an_event_made_for_an_earlier_membership_keeps_nothing
                a_repeated_key_gets_its_first_answer_after_the_membership_changed
                a_stale_event_is_not_overtaken_and_holds_up_no_other_subject
                an_append_beside_changes_is_taken_with_the_current_version_only
            }
            seen_to {
                a_record_is_taken_until_it_is_done
                what_could_not_be_seen_to_holds_up_nothing_behind_it
                the_record_of_an_event_is_found_while_it_waits
                news_of_a_record_comes_to_who_watches
            }
            concurrency {
                many_appenders_are_told_and_read_in_the_order_of_ids
                readers_beside_appenders_see_no_gap
            }
            model {
                any_sequence_of_requests_restarts_and_clocks_is_answered_as_promised
            }
        }
    };
}
pub(crate) use contract;
