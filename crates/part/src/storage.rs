//! Opens what records and events are kept in, in two steps: whatever may refuse a start is found first, tables are made then.
//!
//! Which tables there are follows from the settings: those of an application only where its role runs, and under the names that
//! a part was given.

use std::path::Path;
use std::sync::Arc;

use bongsu_coordination::registry;
use bongsu_kernel::Id;
use bongsu_kernel::settings::{Bad, Values};
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::embedded;
use bongsu_sql::{
    Claim, DATA_DIR, DATABASE_URL, DataFolder, Database, Dialect, Migrations, Names, PreparedFile,
    PreparedServer, Records,
};

use crate::roles::Roles;
use crate::{Failure, Parts, settings};

/// Why storage is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To serve. A database server is claimed.
    Serve(Claim),
    /// Only to make tables.
    Migrate,
}

/// The data folder and the database server, as far as they are used. Nothing in them was changed yet, and nothing is when
/// this is dropped.
pub struct Storage {
    file: Option<PreparedFile>,
    server: Option<PreparedServer>,
    /// The names of tables in the folder.
    names: Arc<Names>,
    keeps_records: bool,
}

/// The same, migrated.
pub struct Opened {
    /// With the names of its tables.
    pub file: Option<(Database, Arc<Names>)>,
    /// On a server, if there is one.
    pub records: Option<Records>,
}

impl Storage {
    /// Takes the data folder and the database server, and finds whatever would refuse them.
    pub async fn prepare(
        parts: Parts,
        values: &Values,
        database: Option<&bongsu_sql::Options>,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let in_folder = parts.folder_migrations(values)?;
        let file = if settings::uses_folder(values) {
            let folder = DataFolder::take(Path::new(values.text(&DATA_DIR)))?;
            Some(PreparedFile::prepare(folder, &in_folder)?)
        } else {
            None
        };
        let claim = match purpose {
            Purpose::Serve(claim) => Some(claim),
            Purpose::Migrate => None,
        };
        let server = match database {
            Some(options) => {
                let migrations = parts.migrations(values, options.address.dialect())?;
                Some(PreparedServer::prepare(options, &migrations, claim).await?)
            }
            None => None,
        };
        let (names, keeps_records) = (in_folder.names().clone(), settings::keeps_records(values));
        Ok(Self { file, server, names, keeps_records })
    }

    /// What this instance says of its records: whoever has the same database may be alive beside it.
    pub fn standing(&self) -> Result<registry::Records, Failure> {
        let Some(server) = &self.server else {
            return Ok(if self.keeps_records { registry::Records::Own } else { registry::Records::Off });
        };
        let identity = server.identity();
        Ok(registry::Records::Shared(
            Id::new(identity).map_err(|_| {
                Failure::Other(format!("the database's identity {identity:?} is not readable"))
            })?,
        ))
    }

    /// Brings all of it to this version's schema.
    pub async fn migrate(self, supervisor: &Supervisor) -> Result<Opened, Failure> {
        let records = match self.server {
            Some(server) => Some(server.migrate(supervisor).await?),
            None => None,
        };
        let file = self.file.map(PreparedFile::migrate).transpose()?;
        Ok(Opened { file: file.map(|file| (file, self.names)), records })
    }
}

impl Parts {
    /// The tables of the engines and of all parts.
    fn known(self) -> Migrations {
        let of_engines = [embedded::MIGRATIONS, bongsu_coordination::MIGRATIONS, bongsu_sql::MIGRATIONS];
        Migrations::new(of_engines.into_iter().chain(self.0.iter().map(|part| part.migrations)))
    }

    /// The tables that the settings want in the database where records are kept.
    pub fn migrations(self, values: &Values, dialect: Dialect) -> Result<Migrations, Bad> {
        let roles = Roles::from_settings(values, self)?;
        let mut wanted = self.known();
        for part in self.0 {
            wanted = if part.is_application && !roles.runs(part.name) {
                wanted.without(part.name)
            } else {
                (part.choose_tables)(wanted, values, dialect)?
            };
        }
        Ok(wanted)
    }

    /// Those that they want in the data folder: beside a database only what engines keep there.
    pub fn folder_migrations(self, values: &Values) -> Result<Migrations, Bad> {
        if values.given(&DATABASE_URL).is_none() {
            return self.migrations(values, Dialect::Sqlite);
        }
        Ok(self.0.iter().fold(self.known(), |known, part| known.without(part.name)))
    }
}
