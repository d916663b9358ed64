//! The contract suite of the store, which runs against every adapter.
//!
//! An adapter implements [`Adapter`] and calls [`contract!`], which makes one test of each function. An adapter that
//! several instances can share also calls [`fleet_contract!`]. Each test has an empty store of its own.

pub(crate) mod fixture;
pub(crate) mod fleet;
pub(crate) mod heartbeats;
pub(crate) mod joins;
pub(crate) mod large_rooms;

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use bongsu_presence::Options;
use bongsu_presence::store::{PresenceListener, PresenceStore};

/// Storage that the stores of several instances can share.
pub(crate) trait Adapter: Sized {
    /// Creates empty storage. None when its engine is not available, which has been logged then.
    async fn create() -> Option<Self>;

    /// Opens the store of another instance, with its own listener.
    fn open(
        &self,
        options: Options,
        listener: Arc<dyn PresenceListener>,
        supervisor: &Supervisor,
    ) -> Arc<dyn PresenceStore>;
}

/// Makes one test of each function of the contract.
macro_rules! contract {
    ($adapter:ty: $($file:ident { $($test:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $test() {
                $crate::store_contract::$file::$test::<$adapter>().await;
            }
        )*)*
    };
    ($adapter:ty) => {
        $crate::store_contract::contract! { $adapter:
            joins {
                a_person_who_joins_is_present_and_announced_once
                a_repeated_report_changes_nothing
                a_person_who_leaves_is_removed_and_announced_once
                leaving_twice_or_without_having_joined_changes_nothing
                people_of_one_report_are_announced_one_by_one
                rooms_are_independent
                every_valid_id_is_stored_and_announced
                announcements_are_in_order
            }
            heartbeats {
                a_heartbeat_makes_a_person_present
                heartbeats_keep_a_person_present
                an_expired_person_is_removed_and_announced_once
                a_person_who_returns_after_expiry_leaves_and_joins
                a_heartbeat_lease_ends_with_the_last_stream
                a_stream_after_a_heartbeat_is_not_announced
                leaving_does_not_affect_a_person_with_only_heartbeats
            }
            large_rooms {
                at_most_two_hundred_people_are_listed
                changes_of_a_large_room_are_batched
                a_batch_of_one_change_names_the_person
                a_room_that_shrinks_lists_its_people_again
                pages_are_in_order_and_count_the_whole_room
            }
        }
    };
}
pub(crate) use contract;

/// Makes the tests of several instances that share a store.
macro_rules! fleet_contract {
    ($adapter:ty) => {
        $crate::store_contract::contract! { $adapter:
            fleet {
                a_person_on_two_instances_leaves_with_the_last
                every_instance_receives_the_same_announcements
                people_of_a_silent_instance_leave_once
                many_expired_people_leave_in_batches
                an_abandoned_lease_expires_although_another_was_renewed
                a_heartbeat_outlives_a_silent_instance
                every_instance_is_asked_to_report_a_large_room_that_changes
                renewals_keep_people_present
            }
        }
    };
}
pub(crate) use fleet_contract;
