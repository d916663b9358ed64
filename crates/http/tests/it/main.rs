//! Tests of the server over real sockets, with small routes and hand-written clients.
//!
//! These tests cover connections. The routes of the product are tested in `crates/bongsu`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]
#![allow(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod drain;
mod in_flight;
mod stream;
mod test_server;
mod websocket;

use std::time::Duration;

/// Longer than any step of a passing test takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
