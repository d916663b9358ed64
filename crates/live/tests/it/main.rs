//! What the log promises, held against every adapter, and what its files looked like in earlier versions.
//!
//! The promises stand on `bongsu_live::log::Log`; `log_contract` tests them once, over any adapter.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod embedded;
mod golden;
mod log_contract;
mod redis;
