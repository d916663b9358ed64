//! Tools to test the hub from outside: the hub as a process; HTTP, SSE, WebSocket and browser clients; engines, and a
//! proxy that injects network faults; tokens; test sizes per tier; seeds; recorded results.
//!
//! This crate uses none of the hub's own crates, so that a mistake in shared code cannot hide itself. Only tests and
//! the bench use it: every failure is a panic with its reason. Tests wait for conditions, never for a fixed time.
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
pub mod isolated_runtime;
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

pub(crate) use bongsu_engines::{child_process, ports, process};

pub use answer::Answer;
pub use api::Api;
pub use browser::Browser;
pub use engine::{Engine, engine};
pub use fixture::Fixture;
pub use hub::{Hub, Metrics};
pub use isolated_runtime::IsolatedRuntime;
pub use nginx::Nginx;
pub use proxy::Proxy;
pub use redis::Redis;
pub use rng::Rng;
pub use tier::Tier;

/// Writes one line to standard error directly. The test harness does not capture it, so it is shown for tests that
/// pass, too.
pub(crate) fn print_line(line: &str) {
    use std::io::Write as _;
    // A single write, so that the lines of parallel tests do not mix.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
