//! What coordination promises, held against every engine, and what it does when engines and hubs fail.
//!
//! The promises stand on `RedisRegistry`, the ports (`Locks`, `Orders`) and `runner::start`; the `*_contract` files test
//! them once, over any engine. `faults` has a Redis of its own for every test, and does things to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod cluster;
mod embedded;
mod faults;
mod golden;
mod hub;
mod lock_contract;
mod orders_contract;
mod redis;
mod registry_contract;
mod runner_contract;

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
            lock_contract {
                a_lock_has_one_owner
                a_lock_that_was_released_is_free
                a_lock_ends_by_itself_and_its_late_owner_cannot_touch_it
                a_lock_that_is_renewed_lasts
                of_many_at_once_one_gets_the_lock
            }
            runner_contract {
                a_loop_runs_and_comes_again_after_it_returned
                a_loop_runs_once_in_the_fleet_and_moves_when_its_hub_stops
                a_name_that_is_none_is_refused
            }
            orders_contract {
                orders_are_applied_once_and_in_order
                what_was_given_is_applied_when_catch_up_returns
                many_catch_up_at_once_and_each_has_what_was_given_before
                a_revocation_is_known_and_never_falls_back
                a_revocation_outlasts_a_kill
            }
        }
    };
    ($engine:ty, fleet) => {
        $crate::contract!($engine);
        $crate::contract! { $engine:
            registry_contract {
                who_joins_is_alive
                those_who_join_see_each_other_and_who_leaves_is_gone
                who_is_killed_is_gone_when_its_lease_ends
                who_stood_still_knows_that_it_was_given_up
                records_decide_who_may_join
                required_settings_decide_who_may_join
                of_many_with_records_of_their_own_one_joins
                the_place_of_one_that_was_killed_is_free_after_its_lease
            }
            runner_contract {
                a_loop_moves_when_its_hub_is_killed
                a_holder_that_stood_still_takes_no_further_step
                a_holder_that_stood_still_and_goes_on_at_once_takes_no_further_step
            }
            orders_contract {
                every_hub_applies_the_same_orders
                a_new_hub_knows_revocations_and_applies_what_comes
            }
        }
    };
}
pub(crate) use contract;
