//! Tests of presence: the contract of its store on every adapter, and instances that share a Redis.
//!
//! The contract is documented on `bongsu_presence::store::PresenceStore`; `store_contract` tests it on any adapter. `hubs`,
//! `outages` and `model` test whole instances by the updates that their streams would receive.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod adapters;
mod hubs;
mod model;
mod outages;
mod store_contract;
mod support;
