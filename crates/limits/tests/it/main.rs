//! What limits promise, held against every engine, and what they do when engines and hubs fail.
//!
//! The promises stand on the ports (`Connections`, `Buckets`); the `*_contract` files test them once, over any engine.
//! `faults` has a Redis of its own for every test, and does things to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod bucket_contract;
mod connections_contract;
mod engines;
mod faults;
mod hub;
mod report_script;

use hub::Engine;

/// One test for every promise.
macro_rules! contract {
    ($engine:ty: $($file:ident { $($promise:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $promise() {
                if let Some(engine) = <$engine as $crate::Engine>::start().await {
                    $crate::$file::$promise(engine).await;
                }
            }
        )*)*
    };
    ($engine:ty) => {
        $crate::contract! { $engine:
            connections_contract {
                refuse_lets_in_as_many_as_the_limit
                refuse_gives_a_free_place_to_every_instance
                refuse_never_lets_in_more_than_the_limit_of_many_at_once
                replace_ends_the_oldest_and_no_other
                replace_lets_the_limit_stay_of_many_at_once
                replace_counts_nobody_who_has_gone
                people_do_not_disturb_each_other
                who_gives_up_in_the_middle_keeps_no_place
            }
            bucket_contract {
                a_bucket_holds_its_burst_and_says_when_there_is_more
                what_was_announced_is_there
                of_many_at_once_no_more_is_taken_than_is_there
                more_than_a_bucket_holds_is_never_given
                a_smaller_burst_holds_at_once
                buckets_do_not_disturb_each_other
            }
        }
    };
    ($engine:ty, fleet) => {
        $crate::contract!($engine);
        $crate::contract! { $engine:
            connections_contract {
                instances_may_have_different_limits
                refuse_counts_a_killed_instance_until_it_is_not_in_the_fleet
                replace_ends_nobody_because_of_a_killed_instance
                places_of_an_instance_that_stops_are_free_at_once
                connections_count_for_much_longer_than_a_lease
                who_stood_still_puts_its_connections_back
            }
        }
    };
}
pub(crate) use contract;
