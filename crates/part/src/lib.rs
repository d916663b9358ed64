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

use bongsu_kernel::settings::{Bad, Setting, Values};
use bongsu_sql::{Dialect, Migration, Migrations, Query};

pub use assembly::{Assembly, Check};
pub use bongsu_kernel::Boxed;
pub use dead_letters::{DeadLetter, DeadLetters, MOST_LETTERS};
pub use engines::{Engines, Fleet, Start};
pub use failure::Failure;
pub use roles::{ROLES, Roles};
pub use settings::{Parts, check_engines, keeps_records, uses_folder};
pub use storage::{Opened, Purpose, Storage};

/// A part of the hub, or an application beside it.
pub struct Part {
    /// Names its migrations and, for an application, its role.
    pub name: &'static str,
    /// An application runs only where its role was asked for; every other part runs in every hub.
    pub is_application: bool,
    pub settings: &'static [&'static Setting],
    pub queries: &'static [&'static Query],
    pub migrations: &'static [Migration],
    /// Leaves out tables that the settings do not want, and gives names that they choose. For the database where records are
    /// kept, and only where the part runs.
    pub choose_tables: fn(Migrations, &Values, Dialect) -> Result<Migrations, Bad>,
    /// Refuses settings that cannot work. Called before anything is touched, and only where the part runs.
    pub check: fn(&Values) -> Result<(), Bad>,
    /// Adds what the part serves and runs. Parts start in the order of the list.
    pub start: for<'a> fn(&'a mut Assembly) -> Boxed<'a, Result<(), Failure>>,
}

impl Part {
    /// A part without settings, queries and tables, which refuses nothing.
    pub const fn new(
        name: &'static str,
        start: for<'a> fn(&'a mut Assembly) -> Boxed<'a, Result<(), Failure>>,
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
