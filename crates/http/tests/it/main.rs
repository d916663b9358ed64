//! The server with small routes of its own, over real sockets, and clients that are written by hand.
//!
//! What is tested here is what a connection does; what the product's routes do on it is tested with the product.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]
#![allow(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

mod drain;
mod in_flight;
mod serving;
mod stream;
mod websocket;

use std::time::Duration;

/// Longer than anything takes that works.
const LONG: Duration = Duration::from_secs(60);
