//! Where a database server is: `DATABASE_URL` in its two forms. No password is ever shown.

use std::fmt;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::Dialect;

/// What may stand behind the question mark. Others would be ignored by the driver, and written to the log with their
/// value.
const PARAMETERS: [&str; 12] = [
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

/// Statements that a connection keeps prepared: more than all parts have.
const PREPARED: usize = 500;

/// A server and a database on it.
#[derive(Clone)]
pub struct Address {
    pub(crate) login: Login,
    /// Without the password.
    shown: String,
}

#[derive(Clone)]
pub(crate) enum Login {
    Postgres(Box<PgConnectOptions>),
    Mysql(Box<MySqlConnectOptions>),
}

impl Address {
    /// The error says what is wrong without repeating the address, which may hold a password.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        const SCHEMES: &str = "it begins with postgres://, postgresql://, mysql:// or mariadb://";
        const UNREADABLE: &str =
            "a host, a port, a password or what follows the question mark is not readable";
        let (scheme, rest) = url.split_once("://").ok_or(SCHEMES)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or_default();
            if !PARAMETERS.contains(&name) {
                return Err("after the question mark stands something that is not known");
            }
        }
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        if database.is_empty() {
            return Err("after the host comes the name of the database");
        }
        let (user, host) = match place.rsplit_once('@') {
            Some((login, host)) => (login.split(':').next().unwrap_or_default(), host),
            None => ("", place),
        };
        if user.is_empty() {
            return Err("before the host comes the user");
        }
        let login = match scheme {
            "postgres" | "postgresql" => {
                let options = PgConnectOptions::from_str(url).map_err(|_| UNREADABLE)?;
                let options = options.statement_cache_capacity(PREPARED).disable_statement_logging();
                Login::Postgres(Box::new(options))
            }
            "mysql" | "mariadb" => {
                let options = MySqlConnectOptions::from_str(url).map_err(|_| UNREADABLE)?;
                let options = options.statement_cache_capacity(PREPARED).disable_statement_logging();
                Login::Mysql(Box::new(options))
            }
            _ => return Err(SCHEMES),
        };
        Ok(Self { login, shown: format!("{scheme}://{user}@{host}/{database}") })
    }

    pub fn dialect(&self) -> Dialect {
        match self.login {
            Login::Postgres(_) => Dialect::Postgres,
            Login::Mysql(_) => Dialect::Mysql,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_are_named_and_no_password_is_shown() {
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
            let address = Address::parse(url).unwrap();
            assert_eq!((address.dialect(), format!("{address}")), (dialect, shown.to_owned()));
            assert_eq!(format!("{address:?}"), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for url in [
            "db:5432",
            "redis://anna:s3cret@db/app",
            "postgres://anna:s3cret@db",
            "postgres://db/app",
            "postgres://anna:s3cret@db:port/app",
            "mysql://anna:s3cret@db/app?sslmode=perhaps",
            "mysql://anna@db/app?token=s3cret",
        ] {
            let why = Address::parse(url).unwrap_err();
            assert!(!why.contains("s3cret"), "{url}: {why}");
        }
    }
}
