//! What a part of the hub is, and what it gets to work with.
//!
//! A [`Part`] describes itself: its settings, tables and queries. When the hub starts, it gets an [`Assembly`] with the
//! [`Engines`] and adds what it serves and runs: routes, loops, health checks, dead letters, WebSocket operations. The binary holds a list of
//! parts and knows nothing of their insides; which engine is behind a port is decided in [`Engines`] alone.

mod assembly;
mod dead_letters;
mod engines;
mod failure;
mod fleet;
mod fleet_settings;
mod roles;
mod settings;
mod storage;
mod tickets;

use std::future::Future;
use std::pin::Pin;

use bongsu_kernel::settings::{Bad, Setting, Values};
use bongsu_sql::{Dialect, Migration, Migrations, Query};

pub use assembly::{Assembly, Check};
pub use dead_letters::{DeadLetter, DeadLetters, MOST_LETTERS};
pub use engines::{Engines, Fleet, Start};
pub use failure::Failure;
pub use roles::{ROLES, Roles};
pub use settings::{Parts, check_engines, keeps_records, uses_folder};
pub use storage::{Opened, Purpose, Storage};

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A part of the hub, or an application beside it.
pub trait Part: Sync {
    /// Names its migrations and, for an application, its role.
    fn name(&self) -> &'static str;

    /// An application runs only where its role was asked for; every other part runs in every hub.
    fn is_application(&self) -> bool {
        false
    }

    fn settings(&self) -> &'static [&'static Setting] {
        &[]
    }

    fn queries(&self) -> &'static [&'static Query] {
        &[]
    }

    fn migrations(&self) -> &'static [Migration] {
        &[]
    }

    /// Leaves out tables that the settings do not want, and gives names that they choose. For the database where records are
    /// kept, and only where the part runs.
    fn choose_tables(&self, all: Migrations, _: &Values, _: Dialect) -> Result<Migrations, Bad> {
        Ok(all)
    }

    /// Refuses settings that cannot work. Called before anything is touched, and only where the part runs.
    fn check(&self, _: &Values) -> Result<(), Bad> {
        Ok(())
    }

    /// Adds what the part serves and runs. Parts start in the order of the list.
    fn start<'a>(&'a self, assembly: &'a mut Assembly) -> Boxed<'a, Result<(), Failure>>;
}
