//! The settings of the database server.

use bongsu_kernel::settings::{Kind, Scope, SettingError, Values};

use crate::DatabaseAddress;

bongsu_kernel::settings! { pub SETTINGS of "database":
    pub DATABASE_URL = "", scope(Scope::Instance), kind(Kind::Secret):
        "The address of the database that keeps the records: postgres://user:password@host:5432/database, or mysql:// (also mariadb://) for MariaDB and MySQL. Empty: the data folder keeps the records.";
    DATABASE_MAX_CONNECTIONS = "20", scope(Scope::Instance), integer(1, 1_000):
        "Maximum number of connections to the database, for each hub. One more checks whether the database can be reached, and up to four more sequence and read outbox rows.";
}

/// How to reach the database server.
#[derive(Clone, Debug)]
pub struct Options {
    pub address: DatabaseAddress,
    pub max_connections: usize,
}

impl Options {
    /// None when records are kept in the data folder.
    pub fn from_settings(values: &Values) -> Result<Option<Self>, SettingError> {
        let Some(url) = values.get(&DATABASE_URL) else { return Ok(None) };
        let address = DatabaseAddress::parse(url)
            .map_err(|why| SettingError::invalid_value(&DATABASE_URL, "(hidden)", why))?;
        Ok(Some(Self { address, max_connections: values.size(&DATABASE_MAX_CONNECTIONS) }))
    }
}
