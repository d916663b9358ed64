//! Tests of coordination on every engine, and of its behaviour when engines and hubs fail.
//!
//! The `*_contract` files test `RedisRegistry`, the ports (`Locks`, `AccessCommands`) and `runner::start` on any
//! engine. Each test in `faults` has its own Redis, which it kills, suspends or cuts off.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod access_command_contract;
mod cluster;
mod embedded;
mod faults;
mod golden;
mod hub;
mod lock_contract;
mod redis;
mod registry_contract;
mod runner_contract;

use hub::Engine;

/// Declares one test for each function of the contracts.
macro_rules! contract {
    ($engine:ty: $($file:ident { $($test:ident)* })*) => {
        $($(
            #[tokio::test]
            async fn $test() {
                if let Some(engine) = <$engine as $crate::Engine>::start().await {
                    $crate::$file::$test(engine).await;
                }
            }
        )*)*
    };
    ($engine:ty) => {
        $crate::contract! { $engine:
            lock_contract {
                a_lock_has_one_owner
                a_released_lock_can_be_acquired
                an_expired_lock_can_be_acquired_and_its_former_owner_cannot_renew_or_release_it
                a_renewed_lock_does_not_expire
                one_of_many_concurrent_requests_acquires_the_lock
            }
            runner_contract {
                a_loop_is_restarted_after_it_returns
                a_loop_runs_on_one_instance_and_moves_when_it_stops
                an_invalid_runner_name_is_refused
            }
            access_command_contract {
                commands_are_applied_once_and_in_order
                catch_up_returns_after_all_issued_commands_are_applied
                concurrent_catch_ups_each_apply_the_commands_issued_before
                a_revocation_never_moves_to_an_earlier_time
                a_revocation_survives_a_kill
            }
        }
    };
    ($engine:ty, fleet) => {
        $crate::contract!($engine);
        $crate::contract! { $engine:
            registry_contract {
                a_joined_instance_is_alive
                joined_instances_see_each_other_until_they_stop
                a_killed_instance_is_removed_when_its_lease_ends
                a_suspended_instance_notices_that_its_lease_has_ended
                an_instance_with_other_records_is_refused
                an_instance_with_other_required_settings_is_refused
                one_of_many_instances_with_their_own_records_joins
                another_instance_can_join_after_the_lease_of_a_killed_one_ends
            }
            runner_contract {
                a_loop_moves_when_its_instance_is_killed
                a_suspended_runner_takes_no_further_step
                a_suspended_runner_that_is_polled_at_once_takes_no_further_step
            }
            access_command_contract {
                every_instance_applies_the_same_commands
                a_new_instance_knows_revocations_and_applies_new_commands
            }
        }
    };
}
pub(crate) use contract;
