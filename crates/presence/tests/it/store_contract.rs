//! The contract suite of the store: written once, run against every adapter.
//!
//! An adapter joins by implementing [`Adapter`] and calling [`contract!`]: one test per promise, by the same names. One
//! whose hubs share it calls [`fleet_contract!`] as well. Each test has a place of its own.

pub(crate) mod beats;
pub(crate) mod coming;
pub(crate) mod fleet;
pub(crate) mod large;
pub(crate) mod stage;

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use bongsu_presence::Options;
use bongsu_presence::store::{Ears, Store};

/// A place where it is kept who is where.
pub(crate) trait Adapter: Sized {
    /// A new place with nobody in it. Nothing when its engine is not there, which has been said then.
    async fn empty() -> Option<Self>;

    /// Another hub's store, which tells its own ears.
    fn open(&self, options: Options, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Arc<dyn Store>;
}

/// One test for every promise.
macro_rules! contract {
    ($adapter:ty: $($file:ident { $($promise:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $promise() {
                $crate::store_contract::$file::$promise::<$adapter>().await;
            }
        )*)*
    };
    ($adapter:ty) => {
        $crate::store_contract::contract! { $adapter:
            coming {
                who_comes_is_there_and_announced_once
                saying_it_again_changes_nothing
                who_leaves_is_gone_and_announced_once
                leaving_twice_or_without_having_come_changes_nothing
                several_at_once_are_announced_one_by_one
                rooms_do_not_disturb_each_other
                every_id_travels
                announcements_are_in_order
            }
            beats {
                a_heartbeat_is_coming
                heartbeats_keep_somebody_there
                whose_time_is_up_is_gone_and_announced_once
                who_comes_back_too_late_has_left_and_comes
                a_heartbeat_beside_a_stream_leaves_with_it
                a_stream_after_a_heartbeat_is_no_coming
                leaving_does_not_touch_somebody_with_heartbeats_only
            }
            large {
                two_hundred_are_listed_and_no_more
                changes_of_a_large_room_are_gathered
                a_single_change_of_a_large_room_is_named
                a_room_that_shrinks_lists_its_people_again
                pages_are_in_order_and_count_the_whole_room
            }
        }
    };
}
pub(crate) use contract;

/// What several hubs on one store are promised.
macro_rules! fleet_contract {
    ($adapter:ty) => {
        $crate::store_contract::contract! { $adapter:
            fleet {
                a_person_on_two_hubs_leaves_with_the_last
                every_hub_hears_the_same
                the_people_of_a_silent_hub_leave_once
                many_whose_time_is_up_leave_in_steps
                a_ghost_is_gone_when_its_own_sign_ends
                a_heartbeat_outlives_a_silent_hub
                every_hub_is_asked_to_look_at_a_large_room_that_changes
                a_hub_that_goes_on_keeps_its_people
            }
        }
    };
}
pub(crate) use fleet_contract;
