//! Tests of the log: the contract of the port on every adapter, and files of earlier versions.
//!
//! The contract is documented on `bongsu_live::log::Log`; `log_contract` tests it once for all adapters.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod embedded;
mod golden;
mod log_contract;
mod redis;
