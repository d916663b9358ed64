//! Parts of the hub, and the engines that they use.
//!
//! A [`Part`] describes itself: its settings, tables and queries. When the hub starts, the part receives an
//! [`Assembly`] with the [`Engines`], and adds routes, loops, health checks, dead letters and WebSocket operations to
//! it. The binary has only a list of the parts. Only [`Engines`] decides which adapter is
//! behind a port.

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

use bongsu_kernel::settings::{Setting, SettingError, Values};
use bongsu_sql::{Dialect, Migration, Migrations, Query};

pub use assembly::{Assembly, HealthCheck};
pub use bongsu_kernel::BoxFuture;
pub use dead_letters::{DeadLetter, DeadLetters, MAX_DEAD_LETTERS};
pub use engines::{EngineInputs, Engines, FleetEngines};
pub use failure::Failure;
pub use roles::{ROLES, Roles};
pub use settings::{Parts, check_engines, keeps_records, uses_folder};
pub use storage::{MigratedStorage, Purpose, Storage};

/// A part of the hub, or an application that runs in the same process.
pub struct Part {
    /// The part's name among migrations and, for an application, the name of its role.
    pub name: &'static str,
    /// An application runs only if ROLES names it; every other part runs in every process.
    pub is_application: bool,
    pub settings: &'static [&'static Setting],
    pub queries: &'static [&'static Query],
    pub migrations: &'static [Migration],
    /// Removes tables that the settings exclude, and applies the names that the settings choose. Called for the
    /// database of the records, and only if the part runs.
    pub choose_tables: fn(Migrations, &Values, Dialect) -> Result<Migrations, SettingError>,
    /// Refuses settings that cannot work. Called before any file or server is opened, and only if the part runs.
    pub check: fn(&Values) -> Result<(), SettingError>,
    /// Adds the part's routes, loops and checks. Parts start in the order of the list.
    pub start: for<'a> fn(&'a mut Assembly) -> BoxFuture<'a, Result<(), Failure>>,
}

impl Part {
    /// A part without settings, queries and tables, and with a `check` that accepts all settings.
    pub const fn new(
        name: &'static str,
        start: for<'a> fn(&'a mut Assembly) -> BoxFuture<'a, Result<(), Failure>>,
    ) -> Self {
        Self {
            name,
            is_application: false,
            settings: &[],
            queries: &[],
            migrations: &[],
            choose_tables: |all, _, _| Ok(all),
            check: |_| Ok(()),
            start,
        }
    }
}
