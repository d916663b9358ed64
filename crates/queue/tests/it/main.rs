//! Tests of queues on every database: order per key, retries, dead letters, and consumers that replace
//! each other.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]
#![allow(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod consumers;
mod database;
mod handling;

/// Makes a test of every contract function, on every database.
macro_rules! contract {
    ($($file:ident: $($test:ident)*;)*) => {
        contract!(embedded, None, $($file: $($test)*;)*);
        contract!(postgres, Some(bongsu_testkit::sql::Flavour::Postgres), $($file: $($test)*;)*);
        contract!(mariadb, Some(bongsu_testkit::sql::Flavour::MariaDb), $($file: $($test)*;)*);
    };
    ($name:ident, $flavour:expr, $($file:ident: $($test:ident)*;)*) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $test() {
                    if let Some(database) = crate::database::Database::start($flavour).await {
                        crate::$file::$test(database).await;
                    }
                }
            )*)*
        }
    };
}

contract! {
    handling: messages_are_handled_once_in_the_order_of_their_keys
        a_failing_message_holds_back_only_its_key_and_becomes_a_dead_letter
        an_unreadable_message_becomes_a_dead_letter_at_once_byte_for_byte
        an_unavailable_engine_costs_no_attempt
        a_handler_that_panics_is_a_failed_attempt
        a_retry_that_is_due_at_once_keeps_the_order
        concurrent_redrives_put_a_message_back_once
        a_redriven_message_keeps_its_id_and_is_outside_the_order
        a_slow_key_does_not_delay_other_keys
        a_message_for_an_unbound_topic_is_refused;
    consumers: a_later_consumer_takes_over_and_nothing_is_lost
        consumers_that_are_killed_at_random_keep_the_order;
}
