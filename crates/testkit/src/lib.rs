//! What tests need to look at the hub from outside: the hub as a process, clients that speak HTTP, SSE and a
//! real browser to it, engines and faults on the way to them, tokens, sizes per tier, seeds and reports.
//!
//! Nothing here uses the hub's own crates, so that a shared mistake cannot hide itself. Only ever used by
//! tests and the bench: when something goes wrong it panics and says why. Tests wait for conditions, never for a time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "test support: a failure is a panic with its reason"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "a test's call reads better without a reference to every literal"
)]

pub mod answer;
pub mod api;
pub mod browser;
pub mod engine;
pub mod fixture;
pub mod http2;
pub mod hub;
pub mod island;
pub mod jwks;
pub mod nginx;
pub mod proof;
pub mod proxy;
pub mod raw;
pub mod redis;
pub mod rng;
pub mod sql;
pub mod sse;
pub mod tier;
pub mod tokens;
pub mod wait;
pub mod ws;

mod local_http;
mod resp;
mod shared;
mod wire;

pub(crate) use bongsu_engines::{mortal, ports, process};

pub use answer::Answer;
pub use api::Api;
pub use browser::Browser;
pub use engine::{Engine, engine};
pub use fixture::Fixture;
pub use hub::{Hub, Metrics};
pub use island::Island;
pub use nginx::Nginx;
pub use proxy::Proxy;
pub use redis::Redis;
pub use rng::Rng;
pub use tier::Tier;

/// Writes one line past the test harness's capture, so that it is seen when the test passes, too.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    // One write: lines of tests that run at the same time do not mix.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
