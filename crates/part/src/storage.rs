//! Opens the data folder and the database server in two steps: [`Storage::prepare`] makes every check that can refuse
//! the start, [`Storage::migrate`] then creates tables.
//!
//! The settings decide which tables exist and how they are named. Tables of an application exist only if its role runs.

use std::path::Path;
use std::sync::Arc;

use bongsu_coordination::registry::RecordsLocation;
use bongsu_kernel::Id;
use bongsu_kernel::settings::{SettingError, Values};
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::embedded;
use bongsu_sql::{
    DATA_DIR, DATABASE_URL, DataFolder, Database, DatabaseLock, Dialect, Migrations, Names, PreparedFile,
    PreparedServer, Records,
};

use crate::roles::Roles;
use crate::{Failure, Parts, settings};

/// Why the storage is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To serve: the database server is locked.
    Serve(DatabaseLock),
    /// Only to create tables.
    Migrate,
}

/// The data folder and the database server, each if the settings use it, checked but not changed. Dropping this changes
/// neither.
pub struct Storage {
    file: Option<PreparedFile>,
    server: Option<PreparedServer>,
    /// The names of the tables in the data folder.
    names: Arc<Names>,
    keeps_records: bool,
}

/// The storage after its migration.
pub struct MigratedStorage {
    /// The database in the data folder, with the names of its tables.
    pub file: Option<(Database, Arc<Names>)>,
    /// The records on a database server.
    pub records: Option<Records>,
}

impl Storage {
    /// Locks the data folder, connects to the database server, and makes every check that can refuse either.
    pub async fn prepare(
        parts: Parts,
        values: &Values,
        database: Option<&bongsu_sql::Options>,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let folder_migrations = parts.folder_migrations(values)?;
        let file = if settings::uses_folder(values) {
            let folder = DataFolder::take(Path::new(values.text(&DATA_DIR)))?;
            Some(PreparedFile::prepare(folder, &folder_migrations)?)
        } else {
            None
        };
        let lock = match purpose {
            Purpose::Serve(lock) => Some(lock),
            Purpose::Migrate => None,
        };
        let server = match database {
            Some(options) => {
                let migrations = parts.migrations(values, options.address.dialect())?;
                Some(PreparedServer::connect(options, &migrations, lock).await?)
            }
            None => None,
        };
        let (names, keeps_records) = (folder_migrations.names().clone(), settings::keeps_records(values));
        Ok(Self { file, server, names, keeps_records })
    }

    /// Where the records of this instance are, for the registry: instances of a fleet must share one database.
    pub fn records_location(&self) -> Result<RecordsLocation, Failure> {
        let Some(server) = &self.server else {
            return Ok(if self.keeps_records { RecordsLocation::Own } else { RecordsLocation::Off });
        };
        let identity = server.identity();
        Ok(RecordsLocation::Shared(Id::new(identity).map_err(|_| {
            Failure::Other(format!("the identity {identity:?} that the database stores is not a valid id"))
        })?))
    }

    /// Migrates the data folder and the server to the schema of this version.
    pub async fn migrate(self, supervisor: &Supervisor) -> Result<MigratedStorage, Failure> {
        let records = match self.server {
            Some(server) => Some(server.migrate(supervisor).await?),
            None => None,
        };
        let file = self.file.map(PreparedFile::migrate).transpose()?;
        Ok(MigratedStorage { file: file.map(|file| (file, self.names)), records })
    }
}

impl Parts {
    /// The migrations of the engines and of all parts.
    fn all_migrations(self) -> Migrations {
        let engines = [
            embedded::MIGRATIONS,
            bongsu_coordination::MIGRATIONS,
            bongsu_sql::MIGRATIONS,
            bongsu_queue::store::MIGRATIONS,
        ];
        Migrations::new(engines.into_iter().chain(self.0.iter().map(|part| part.migrations)))
    }

    /// The migrations that the settings require in the database of the records.
    pub fn migrations(self, values: &Values, dialect: Dialect) -> Result<Migrations, SettingError> {
        let roles = Roles::from_settings(values, self)?;
        let mut migrations = self.all_migrations();
        for part in self.0 {
            migrations = if part.is_application && !roles.runs(part.name) {
                migrations.without(part.name)
            } else {
                (part.choose_tables)(migrations, values, dialect)?
            };
        }
        Ok(migrations)
    }

    /// The migrations that the settings require in the data folder. If a database server has the records, only those of
    /// the engines.
    pub fn folder_migrations(self, values: &Values) -> Result<Migrations, SettingError> {
        if values.get(&DATABASE_URL).is_none() {
            return self.migrations(values, Dialect::Sqlite);
        }
        Ok(self.0.iter().fold(self.all_migrations(), |migrations, part| migrations.without(part.name)))
    }
}
