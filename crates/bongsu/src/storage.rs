//! Opens what records and events are kept in, in two steps: whatever may refuse a start is found first, tables are made then.
//!
//! Which tables there are follows from the settings: those of an application only where its role runs, those of the outbox
//! under the names that it was given.

use std::path::Path;
use std::sync::Arc;

use bongsu_coordination::registry;
use bongsu_kernel::Id;
use bongsu_kernel::settings::{Bad, Values};
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::embedded;
use bongsu_outbox::TableNames;
use bongsu_rooms::store::sql as rooms;
use bongsu_sql::{
    Claim, DATA_DIR, DATABASE_URL, DataFolder, Database, Dialect, Migrations, Names, PreparedFile,
    PreparedServer, Records,
};

use crate::failure::Failure;
use crate::roles::Roles;
use crate::settings;

/// Why storage is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To serve. A database server is claimed.
    Serve(Claim),
    /// Only to make tables.
    Migrate,
}

/// The data folder and the database server, as far as they are used. Nothing in them was changed yet, and nothing is when
/// this is dropped.
pub(crate) struct Storage {
    file: Option<PreparedFile>,
    server: Option<PreparedServer>,
    /// The names of tables in the folder.
    names: Arc<Names>,
    keeps_records: bool,
}

/// The same, migrated.
pub(crate) struct Opened {
    /// With the names of its tables.
    pub(crate) file: Option<(Database, Arc<Names>)>,
    /// On a server, if there is one.
    pub(crate) records: Option<Records>,
}

impl Storage {
    /// Takes the data folder and the database server, and finds whatever would refuse them.
    pub(crate) async fn prepare(
        values: &Values,
        database: Option<&bongsu_sql::Options>,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let in_folder = folder_migrations(values)?;
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
                let migrations = migrations(values, options.address.dialect())?;
                Some(PreparedServer::prepare(options, &migrations, claim).await?)
            }
            None => None,
        };
        let (names, keeps_records) = (in_folder.names().clone(), settings::keeps_records(values));
        Ok(Self { file, server, names, keeps_records })
    }

    /// What this instance says of its records: whoever has the same database may be alive beside it.
    pub(crate) fn standing(&self) -> Result<registry::Records, Failure> {
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
    pub(crate) async fn migrate(self, supervisor: &Supervisor) -> Result<Opened, Failure> {
        let records = match self.server {
            Some(server) => Some(server.migrate(supervisor).await?),
            None => None,
        };
        let file = self.file.map(PreparedFile::migrate).transpose()?;
        Ok(Opened { file: file.map(|file| (file, self.names)), records })
    }
}

/// The tables of all parts.
fn known() -> Migrations {
    Migrations::new([
        embedded::MIGRATIONS,
        rooms::MIGRATIONS,
        bongsu_coordination::MIGRATIONS,
        bongsu_inbox::store::MIGRATIONS,
        bongsu_outbox::store::MIGRATIONS,
        bongsu_decisions::store::MIGRATIONS,
        bongsu_sql::MIGRATIONS,
    ])
}

/// Those that the settings want in the database where records are kept.
pub(crate) fn migrations(values: &Values, dialect: Dialect) -> Result<Migrations, Bad> {
    let mut wanted = known();
    for unused in Roles::from_settings(values)?.unused_parts() {
        wanted = wanted.without(unused);
    }
    if !bongsu_outbox::is_on(values) {
        return Ok(wanted.without(bongsu_outbox::store::PART));
    }
    let names = TableNames::from_settings(values, dialect)?;
    if names.has_query() {
        wanted = wanted.without_step(bongsu_outbox::store::PART, bongsu_outbox::store::MEMBERSHIPS_STEP);
    }
    Ok(wanted.named(Arc::new(names.on(dialect))))
}

/// Those that they want in the data folder, where other programs' tables are only while records are.
pub(crate) fn folder_migrations(values: &Values) -> Result<Migrations, Bad> {
    if values.given(&DATABASE_URL).is_none() {
        return migrations(values, Dialect::Sqlite);
    }
    Ok(known().without(bongsu_outbox::store::PART).without(bongsu_decisions::store::PART))
}
