//! The address of a database server, as in `DATABASE_URL`: PostgreSQL, or MariaDB and MySQL. Display and
//! Debug omit the password.

use std::fmt;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::Dialect;

/// The parameters that are allowed after the question mark. The driver would ignore others, and log them with their
/// values.
const ALLOWED_PARAMETERS: [&str; 12] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "socket",
    "application_name",
    "options",
];

/// Maximum number of prepared statements that a connection caches: more than the number of queries of all
/// parts.
const STATEMENT_CACHE_SIZE: usize = 500;

/// A server and a database on it.
#[derive(Clone)]
pub struct DatabaseAddress {
    pub(crate) login: Login,
    /// The address without the password.
    display: String,
}

#[derive(Clone)]
pub(crate) enum Login {
    Postgres(Box<PgConnectOptions>),
    Mysql(Box<MySqlConnectOptions>),
}

impl DatabaseAddress {
    /// The error does not repeat the address, because the address may contain a password.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        const SCHEMES: &str = "must begin with postgres://, postgresql://, mysql:// or mariadb://";
        const UNREADABLE: &str = "the host, port, password or parameters cannot be parsed";
        let (scheme, rest) = url.split_once("://").ok_or(SCHEMES)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or_default();
            if !ALLOWED_PARAMETERS.contains(&name) {
                return Err("has an unknown parameter after the question mark");
            }
        }
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        if database.is_empty() {
            return Err("must name the database after the host");
        }
        let (user, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (login.split(':').next().unwrap_or_default(), host),
            None => ("", authority),
        };
        if user.is_empty() {
            return Err("must name the user before the host");
        }
        let login = match scheme {
            "postgres" | "postgresql" => {
                let options = PgConnectOptions::from_str(url).map_err(|_| UNREADABLE)?;
                let options =
                    options.statement_cache_capacity(STATEMENT_CACHE_SIZE).disable_statement_logging();
                Login::Postgres(Box::new(options))
            }
            "mysql" | "mariadb" => {
                let options = MySqlConnectOptions::from_str(url).map_err(|_| UNREADABLE)?;
                let options =
                    options.statement_cache_capacity(STATEMENT_CACHE_SIZE).disable_statement_logging();
                Login::Mysql(Box::new(options))
            }
            _ => return Err(SCHEMES),
        };
        Ok(Self { login, display: format!("{scheme}://{user}@{host}/{database}") })
    }

    pub fn dialect(&self) -> Dialect {
        match self.login {
            Login::Postgres(_) => Dialect::Postgres,
            Login::Mysql(_) => Dialect::Mysql,
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display)
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_displayed_without_password() {
        for (url, dialect, shown) in [
            ("postgres://anna:s3c%40ret@db:5433/app", Dialect::Postgres, "postgres://anna@db:5433/app"),
            (
                "postgresql://anna:s3cret@db/app?sslmode=require",
                Dialect::Postgres,
                "postgresql://anna@db/app",
            ),
            ("mysql://anna:s3cret@db/app", Dialect::Mysql, "mysql://anna@db/app"),
            ("mariadb://anna:s3c@ret@db:3307/app", Dialect::Mysql, "mariadb://anna@db:3307/app"),
        ] {
            let address = DatabaseAddress::parse(url).unwrap();
            assert_eq!((address.dialect(), format!("{address}")), (dialect, shown.to_owned()));
            assert_eq!(format!("{address:?}"), shown);
        }
    }

    #[test]
    fn invalid_addresses_are_refused_without_repeating_them() {
        for url in [
            "db:5432",
            "redis://anna:s3cret@db/app",
            "postgres://anna:s3cret@db",
            "postgres://db/app",
            "postgres://anna:s3cret@db:port/app",
            "mysql://anna:s3cret@db/app?sslmode=perhaps",
            "mysql://anna@db/app?token=s3cret",
        ] {
            let why = DatabaseAddress::parse(url).unwrap_err();
            assert!(!why.contains("s3cret"), "{url}: {why}");
        }
    }
}
