//! One connection to a server, the same for PostgreSQL, MariaDB and MySQL, and its errors. The modules
//! `postgres` and `mysql` contain the differences.

use bongsu_kernel::Millis;
use sqlx::{Connection as _, mysql::MySqlConnection, postgres::PgConnection};

use super::{mysql, postgres};
use crate::address::Login;
use crate::query::RenderedQuery;
use crate::{DatabaseAddress, DatabaseLock, Dialect, Error, Row, Value};

pub(crate) enum ServerConnection {
    Postgres(Box<PgConnection>),
    Mysql(Box<MySqlConnection>),
}

/// Whether a transaction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    Write,
    Read,
}

/// An error, classified by whether the connection still works and whether a retry can help.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) enum ServerError {
    /// The server rolled the transaction back because of a conflict with another one; a retry can succeed.
    Conflict(String),
    /// The server refuses the statement; the connection still works.
    Rejected(String),
    /// The server accepts no further connection.
    TooManyConnections(String),
    /// The connection does not work any more.
    Broken(String),
    /// The server denies the login; a retry does not help.
    AccessDenied(String),
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Rejected(why) => Self::Failed(why),
            ServerError::Conflict(why)
            | ServerError::TooManyConnections(why)
            | ServerError::Broken(why)
            | ServerError::AccessDenied(why) => Self::Unavailable(why),
        }
    }
}

impl ServerError {
    /// Classifies an error that did not come from the server: a broken connection, or a mistake in this program.
    pub(crate) fn from_driver(error: &sqlx::Error) -> Self {
        let text = error.to_string();
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed => Self::Broken(text),
            _ => Self::Rejected(text),
        }
    }
}

/// Defines the functions that send queries and read rows for one driver. The drivers differ only in their types, and in
/// the functions `value` and `classify_error` beside the call of this macro.
macro_rules! driver {
    ($database:ty, $connection:ty, $arguments:ty, $row:ty) => {
        pub(crate) async fn execute_raw(connection: &mut $connection, text: &str) -> Result<(), ServerError> {
            let result = connection.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await;
            result.map(drop).map_err(|error| classify_error(&error))
        }

        pub(crate) async fn run(
            connection: &mut $connection,
            query: &RenderedQuery,
            values: &[&Value],
        ) -> Result<u64, ServerError> {
            let result = bind(query, values).execute(connection).await;
            result.map(|result| result.rows_affected()).map_err(|error| classify_error(&error))
        }

        pub(crate) async fn rows(
            connection: &mut $connection,
            query: &RenderedQuery,
            values: &[&Value],
        ) -> Result<Vec<Row>, ServerError> {
            let rows =
                bind(query, values).fetch_all(connection).await.map_err(|error| classify_error(&error))?;
            rows.iter().map(read).collect()
        }

        /// A NULL carries a type, because PostgreSQL takes a parameter without one for text.
        fn bind<'q>(
            query: &RenderedQuery,
            values: &[&'q Value],
        ) -> sqlx::query::Query<'q, $database, $arguments> {
            let query = sqlx::query(AssertSqlSafe(query.text.clone()));
            values.iter().fold(query, |query, value| match value {
                Value::Int(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
            })
        }

        fn read(row: &$row) -> Result<Row, ServerError> {
            let columns = row.columns().iter().map(|column| {
                let raw = row.try_get_raw(column.ordinal()).map_err(|error| classify_error(&error))?;
                let kind = column.type_info().name();
                value(kind, raw).ok_or_else(|| {
                    let name = column.name();
                    ServerError::Rejected(format!(
                        "the column {name} is {kind}: neither a whole number nor text"
                    ))
                })
            });
            columns.collect::<Result<_, _>>().map(Row)
        }
    };
}
pub(super) use driver;

/// Calls a function of the driver that the connection belongs to.
macro_rules! dispatch {
    ($connection:expr, $call:ident($($argument:expr),*)) => {
        match $connection {
            ServerConnection::Postgres(connection) => postgres::$call(connection, $($argument),*).await,
            ServerConnection::Mysql(connection) => mysql::$call(connection, $($argument),*).await,
        }
    };
}

impl ServerConnection {
    pub(crate) async fn connect(address: &DatabaseAddress) -> Result<Self, ServerError> {
        match &address.login {
            Login::Postgres(options) => {
                let connection = PgConnection::connect_with(options).await;
                Ok(Self::Postgres(Box::new(connection.map_err(|error| postgres::classify_error(&error))?)))
            }
            Login::Mysql(options) => {
                let connection = MySqlConnection::connect_with(options).await;
                Ok(Self::Mysql(Box::new(connection.map_err(|error| mysql::classify_error(&error))?)))
            }
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Sets time limits in the server, so that the server also ends a statement that this process has abandoned.
    pub(crate) async fn set_limits(&mut self) -> Result<(), ServerError> {
        dispatch!(self, set_limits())
    }

    pub(crate) async fn begin(&mut self, mode: AccessMode) -> Result<(), ServerError> {
        let text = match (&self, mode) {
            (Self::Postgres(_), AccessMode::Write) => postgres::BEGIN_WRITE,
            (Self::Postgres(_), AccessMode::Read) => postgres::BEGIN_READ,
            (Self::Mysql(_), AccessMode::Write) => mysql::BEGIN_WRITE,
            (Self::Mysql(_), AccessMode::Read) => mysql::BEGIN_READ,
        };
        self.execute_raw(text).await
    }

    /// Whether an error answer to COMMIT proves that the transaction was rolled back. PostgreSQL sends no such error
    /// once the commit record is written; MariaDB and MySQL do not document this.
    pub(crate) fn rolls_back_rejected_commit(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Takes the database lock for the session of this connection. Returns false when another session holds it.
    pub(crate) async fn try_lock(&mut self, lock: DatabaseLock) -> Result<bool, ServerError> {
        let text = match (&self, lock) {
            (Self::Postgres(_), DatabaseLock::Exclusive) => postgres::TRY_LOCK_EXCLUSIVE,
            (Self::Postgres(_), DatabaseLock::Shared) => postgres::TRY_LOCK_SHARED,
            (Self::Mysql(_), DatabaseLock::Exclusive) => mysql::TRY_LOCK_EXCLUSIVE,
            (Self::Mysql(_), DatabaseLock::Shared) => mysql::TRY_LOCK_SHARED,
        };
        let rows = self.query_raw(text).await?;
        Ok(rows.first().is_some_and(|row| row.int(0).is_ok_and(|granted| granted == 1)))
    }

    /// The time of the server's clock.
    pub(crate) async fn time(&mut self) -> Result<Millis, ServerError> {
        let text = match self {
            Self::Postgres(_) => postgres::TIME,
            Self::Mysql(_) => mysql::TIME,
        };
        let rows = self.query_raw(text).await?;
        let time = rows.first().and_then(|row| row.count(0).ok());
        time.ok_or_else(|| ServerError::Rejected("the server's time is not readable".to_owned()))
    }

    /// Sends text as it is, with one statement or several.
    pub(crate) async fn execute_raw(&mut self, text: &str) -> Result<(), ServerError> {
        dispatch!(self, execute_raw(text))
    }

    /// Runs a query that has no arguments.
    pub(crate) async fn query_raw(&mut self, text: &'static str) -> Result<Vec<Row>, ServerError> {
        let query = RenderedQuery { text: text.into(), arguments: Vec::new() };
        self.rows(&query, &[]).await
    }

    pub(crate) async fn run(&mut self, query: &RenderedQuery, values: &[&Value]) -> Result<u64, ServerError> {
        dispatch!(self, run(query, values))
    }

    pub(crate) async fn rows(
        &mut self,
        query: &RenderedQuery,
        values: &[&Value],
    ) -> Result<Vec<Row>, ServerError> {
        dispatch!(self, rows(query, values))
    }
}
