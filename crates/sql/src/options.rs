//! The settings of the database that a fleet shares.

use bongsu_kernel::settings::{Bad, Kind, Scope, Values};

use crate::Address;

bongsu_kernel::settings! { pub SETTINGS of "database":
    pub DATABASE_URL = "", scope(Scope::Instance), kind(Kind::Secret):
        "Where records are kept: postgres://user:password@host:5432/database, or mysql:// (also mariadb://) for MariaDB and MySQL. Empty: in the data folder.";
    DATABASE_MAX_CONNECTIONS = "20", scope(Scope::Instance), whole(1, 1_000):
        "Connections to the database at most, for each hub; one more watches whether it is there, and up to four give rows of the outbox their places and read them.";
}

/// What the settings say of the database.
#[derive(Clone, Debug)]
pub struct Options {
    pub address: Address,
    pub most_connections: usize,
}

impl Options {
    /// Nothing when records are kept in the data folder.
    pub fn from_settings(values: &Values) -> Result<Option<Self>, Bad> {
        let Some(url) = values.given(&DATABASE_URL) else { return Ok(None) };
        let address = Address::parse(url)
            .map_err(|why| Bad::value(&DATABASE_URL, "(hidden)", &format!("an address; {why}")))?;
        Ok(Some(Self { address, most_connections: values.size(&DATABASE_MAX_CONNECTIONS) }))
    }
}
