//! What limits promise, held against every engine, and what they do when engines and hubs fail.
//!
//! The promises stand on the ports (`Cap`, `Buckets`); the `*_contract` files test them once, over any engine.
//! `faults` has a Redis of its own for every test, and does things to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod bucket_contract;
mod cap_contract;
mod engines;
mod faults;
mod hub;

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
            cap_contract {
                there_are_as_many_places_as_the_limit_says
                a_place_that_is_given_back_is_free_everywhere
                scopes_do_not_disturb_each_other
                limits_may_change
                of_many_at_once_never_more_than_the_limit_are_in
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
            cap_contract {
                the_places_of_one_that_was_killed_count_until_its_lease_ends
                the_places_of_one_that_stops_are_free_at_once
                places_count_for_much_longer_than_a_lease
                who_stood_still_puts_its_places_back
            }
        }
    };
}
pub(crate) use contract;
