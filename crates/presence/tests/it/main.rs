//! What presence promises: the contract of its store, held against every adapter, and fleets of hubs on Redis.
//!
//! The promises of the port stand on `bongsu_presence::store::Store`; `store_contract` tests them once, over any
//! adapter. `hubs`, `outages` and `model` look at whole hubs through what their streams would be told.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

mod adapters;
mod hubs;
mod model;
mod outages;
mod store_contract;
mod support;
