//! Tests of the limits: their contracts on every engine, and their behaviour when engines and hubs fail.
//!
//! The contracts are documented on the ports (`Connections`, `Buckets`); the `*_contract` files test them on any
//! engine. Every test in `faults` has a Redis of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod bucket_contract;
mod connections_contract;
mod engines;
mod faults;
mod hub;
mod report_script;

use hub::Engine;

/// Makes a test of every contract function, on one engine.
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
            connections_contract {
                refuse_admits_up_to_the_limit
                refuse_admits_a_connection_on_any_instance_after_a_release
                refuse_never_admits_more_than_the_limit_concurrently
                replace_closes_only_the_oldest
                replace_keeps_the_limit_of_concurrent_connections
                replace_does_not_count_released_connections
                persons_have_separate_limits
                a_cancelled_acquire_does_not_count
            }
            bucket_contract {
                an_empty_bucket_returns_the_time_until_it_has_tokens
                a_retry_after_the_returned_delay_succeeds
                concurrent_takes_never_exceed_the_burst
                a_cost_above_the_burst_is_refused
                a_smaller_burst_takes_effect_at_once
                buckets_are_independent
            }
        }
    };
    ($engine:ty, fleet) => {
        $crate::contract!($engine);
        $crate::contract! { $engine:
            connections_contract {
                instances_may_have_different_limits
                refuse_counts_a_killed_instance_until_it_has_left_the_fleet
                connections_of_a_killed_instance_replace_no_others
                a_stopping_instance_releases_its_connections_at_once
                connections_count_beyond_one_lease
                a_paused_instance_restores_its_connections
            }
        }
    };
}
pub(crate) use contract;
