//! The contract suite of the log port, which runs on every adapter.
//!
//! An adapter implements [`Adapter`] and calls [`contract!`], which makes one test per function of the suite, with the
//! same name. Each test has an empty log of its own, a manual clock, and a sink that records the deliveries.

pub(crate) mod concurrency;
pub(crate) mod delivery;
pub(crate) mod follow_up_record;
pub(crate) mod idempotency;
pub(crate) mod membership;
pub(crate) mod model;
pub(crate) mod order;
pub(crate) mod pending_follow_ups;
pub(crate) mod reading;
pub(crate) mod support;
pub(crate) mod trimming;

use std::sync::Arc;

use bongsu_kernel::Clock;
use bongsu_live::log::{FollowUps, Sink};
use bongsu_live::{Log, SubjectName};

/// The storage of a log. It outlives the log, which can be opened on it again.
pub(crate) trait Adapter: Sized {
    type Running;

    /// Whether the engine is available in this test run.
    fn is_available() -> bool {
        true
    }

    /// New, empty storage.
    async fn empty() -> Self;

    /// Like `empty`, on an engine that no other test uses, so that it can be killed.
    async fn killable() -> Self {
        Self::empty().await
    }

    /// Opens the log, which must not be open elsewhere.
    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Self::Running;

    fn log(running: &Self::Running) -> Arc<dyn Log>;

    /// The port of the follow-up records of the log.
    fn follow_ups(running: &Self::Running) -> Arc<dyn FollowUps>;

    /// Subscribes the sink to a subject, if the adapter delivers only subscribed subjects.
    async fn subscribe(_: &Self::Running, _: &SubjectName) {}

    /// Closes the log cleanly.
    async fn close(&self, running: Self::Running);

    /// Ends the log as a kill would: no write is flushed or completed, and no file or lock is cleaned up.
    async fn kill(&mut self, running: Self::Running);

    /// The stored follow-up records, oldest first, read from the storage directly.
    async fn stored_follow_ups(&self) -> Vec<String>;
}

/// Makes one test for each function of the suite.
macro_rules! contract {
    ($adapter:ty: $($file:ident { $($test:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $test() {
                if <$adapter as $crate::log_contract::Adapter>::is_available() {
                    $crate::log_contract::$file::$test::<$adapter>().await;
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
                ids_are_not_reused_after_trimming
                subjects_do_not_disturb_each_other
                acknowledged_events_survive_a_kill
            }
            idempotency {
                the_same_key_and_content_is_one_event
                the_same_key_with_other_content_is_refused
                a_digest_of_an_earlier_version_counts_as_the_same_content
                the_same_key_in_another_subject_is_another_event
                without_a_key_every_append_is_an_event
                a_key_is_kept_for_24_hours
                keys_outlast_reopening_and_kills
                keys_outlast_the_trimming_of_their_event
                a_key_twice_in_one_batch_is_one_event
                a_refused_event_does_not_affect_the_rest_of_its_batch
                concurrent_appends_with_one_key_are_one_event
            }
            delivery {
                a_batch_is_delivered_in_order_before_the_answer
                every_delivery_has_the_id_of_the_previous_event
                previous_ids_stay_chained_over_reopening_and_trimming
                repeated_and_refused_events_are_not_delivered
                delivered_events_equal_those_in_the_log
            }
            reading {
                an_empty_subject_knows_only_its_beginning
                a_page_begins_after_its_position
                a_position_that_never_existed_is_unknown
                a_position_older_than_the_log_is_reported_as_trimmed
                positions_with_the_largest_numbers_are_handled
                a_read_without_limits_returns_every_entry
                the_beginning_of_an_empty_subject_is_known_while_nothing_is_trimmed
                pages_are_bounded_in_entries
                pages_are_bounded_in_bytes_and_never_empty
                the_head_is_the_newest_event
                appended_events_are_read_back_unchanged
            }
            trimming {
                a_subject_keeps_its_newest_events_and_not_many_more
                a_subject_that_keeps_one_event_keeps_the_newest
                a_lowered_number_to_keep_is_reached_with_the_next_events
                numbers_continue_over_trimming
                a_purge_keeps_the_newest_entry_and_removes_keys
            }
            follow_up_record {
                an_event_with_recipients_has_a_follow_up_record
                the_trace_is_stored_with_the_event_and_in_its_record
                events_without_recipients_leave_no_record
                repeated_and_refused_events_leave_no_record
                records_outlast_trimming_and_kills
                a_record_equals_the_golden_file
                a_record_for_members_equals_the_golden_file
            }
            membership {
                an_event_made_for_the_current_membership_is_stored
                an_event_made_for_an_earlier_membership_stores_nothing
                a_repeated_key_gets_its_first_answer_after_the_membership_changed
                a_stale_event_stops_its_subject_and_no_other
                an_append_during_a_change_needs_the_current_version
            }
            pending_follow_ups {
                a_record_is_taken_until_it_is_acknowledged
                excluded_records_do_not_block_later_ones
                the_record_of_an_event_is_found_until_it_is_acknowledged
                a_watch_reports_a_new_record
            }
            concurrency {
                concurrent_appends_are_delivered_and_read_in_the_order_of_ids
                readers_beside_appenders_see_no_gap
            }
            model {
                random_requests_restarts_and_clock_changes_match_the_model
            }
        }
    };
}
pub(crate) use contract;
