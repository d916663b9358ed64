//! One connection to a server, whichever it is, and what can go wrong on it. What differs between servers is in `postgres`
//! and `mysql`.

use bongsu_kernel::Millis;
use sqlx::{Connection as _, mysql::MySqlConnection, postgres::PgConnection};

use super::{mysql, postgres};
use crate::address::Login;
use crate::query::Written;
use crate::{Address, Claim, Dialect, Error, Row, Value};

pub(crate) enum Link {
    Postgres(Box<PgConnection>),
    Mysql(Box<MySqlConnection>),
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    Write,
    Read,
}

/// What went wrong, told apart by what becomes of the connection and whether running again helps.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Another change was in the way: nothing of this one is kept, and running it again helps.
    #[error("{0}")]
    Conflict(String),
    /// The server does not do this.
    #[error("{0}")]
    Refused(String),
    /// The server has no room for another connection.
    #[error("{0}")]
    Full(String),
    /// The connection is of no use any more.
    #[error("{0}")]
    Broken(String),
    /// It will not let us in, and waiting does not help.
    #[error("{0}")]
    Denied(String),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(why) => Self::Failed(why),
            Fault::Conflict(why) | Fault::Full(why) | Fault::Broken(why) | Fault::Denied(why) => {
                Self::Away(why)
            }
        }
    }
}

impl Fault {
    /// What did not come from the server: a broken connection, or a mistake of ours.
    pub(crate) fn of_driver(error: &sqlx::Error) -> Self {
        let told = error.to_string();
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed => Self::Broken(told),
            _ => Self::Refused(told),
        }
    }
}

/// How a driver sends and reads: the same words for both, whose types are others. What differs is in their `value` and
/// `judge`.
macro_rules! driver {
    ($database:ty, $connection:ty, $arguments:ty, $row:ty) => {
        pub(crate) async fn say(link: &mut $connection, text: &str) -> Result<(), Fault> {
            let said = link.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await;
            said.map(drop).map_err(|error| judge(&error))
        }

        pub(crate) async fn run(
            link: &mut $connection,
            written: &Written,
            values: &[&Value],
        ) -> Result<u64, Fault> {
            let done = bind(written, values).execute(link).await;
            done.map(|done| done.rows_affected()).map_err(|error| judge(&error))
        }

        pub(crate) async fn rows(
            link: &mut $connection,
            written: &Written,
            values: &[&Value],
        ) -> Result<Vec<Row>, Fault> {
            let rows = bind(written, values).fetch_all(link).await.map_err(|error| judge(&error))?;
            rows.iter().map(read).collect()
        }

        /// A NULL carries a type, because PostgreSQL takes a parameter without one for text.
        fn bind<'q>(
            written: &Written,
            values: &[&'q Value],
        ) -> sqlx::query::Query<'q, $database, $arguments> {
            let query = sqlx::query(AssertSqlSafe(written.text.clone()));
            values.iter().fold(query, |query, value| match value {
                Value::Int(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
            })
        }

        fn read(row: &$row) -> Result<Row, Fault> {
            let columns = row.columns().iter().map(|column| {
                let raw = row.try_get_raw(column.ordinal()).map_err(|error| judge(&error))?;
                let kind = column.type_info().name();
                value(kind, raw).ok_or_else(|| {
                    let name = column.name();
                    Fault::Refused(format!("the column {name} is {kind}: neither a whole number nor text"))
                })
            });
            columns.collect::<Result<_, _>>().map(Row)
        }
    };
}
pub(super) use driver;

/// Says the same of both kinds of connections.
macro_rules! of {
    ($link:expr, $call:ident($($argument:expr),*)) => {
        match $link {
            Link::Postgres(link) => postgres::$call(link, $($argument),*).await,
            Link::Mysql(link) => mysql::$call(link, $($argument),*).await,
        }
    };
}

impl Link {
    pub(crate) async fn connect(address: &Address) -> Result<Self, Fault> {
        match &address.login {
            Login::Postgres(options) => {
                let link = PgConnection::connect_with(options).await;
                Ok(Self::Postgres(Box::new(link.map_err(|error| postgres::judge(&error))?)))
            }
            Login::Mysql(options) => {
                let link = MySqlConnection::connect_with(options).await;
                Ok(Self::Mysql(Box::new(link.map_err(|error| mysql::judge(&error))?)))
            }
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Bounds what the server itself does on this connection: what we gave up is given up there, too.
    pub(crate) async fn limit(&mut self) -> Result<(), Fault> {
        of!(self, limit())
    }

    pub(crate) async fn begin(&mut self, how: Begin) -> Result<(), Fault> {
        let text = match (&self, how) {
            (Self::Postgres(_), Begin::Write) => postgres::BEGIN_WRITE,
            (Self::Postgres(_), Begin::Read) => postgres::BEGIN_READ,
            (Self::Mysql(_), Begin::Write) => mysql::BEGIN_WRITE,
            (Self::Mysql(_), Begin::Read) => mysql::BEGIN_READ,
        };
        self.say(text).await
    }

    /// Whether a COMMIT that was answered with a plain error is certainly undone. After its commit record PostgreSQL has
    /// no plain errors any more; of the others nothing of the kind is known.
    pub(crate) fn undoes_what_it_refuses(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Takes the database for whoever holds this connection; false when another does.
    pub(crate) async fn claim(&mut self, how: Claim) -> Result<bool, Fault> {
        let text = match (&self, how) {
            (Self::Postgres(_), Claim::Alone) => postgres::CLAIM_ALONE,
            (Self::Postgres(_), Claim::Shared) => postgres::CLAIM_SHARED,
            (Self::Mysql(_), Claim::Alone) => mysql::CLAIM_ALONE,
            (Self::Mysql(_), Claim::Shared) => mysql::CLAIM_SHARED,
        };
        let rows = self.ask(text).await?;
        Ok(rows.first().is_some_and(|row| row.int(0).is_ok_and(|granted| granted == 1)))
    }

    /// What the server's clock shows, in milliseconds since 1970.
    pub(crate) async fn time(&mut self) -> Result<Millis, Fault> {
        let text = match self {
            Self::Postgres(_) => postgres::TIME,
            Self::Mysql(_) => mysql::TIME,
        };
        let rows = self.ask(text).await?;
        let time = rows.first().and_then(|row| row.count(0).ok());
        time.ok_or_else(|| Fault::Refused("the server's time is not readable".to_owned()))
    }

    /// Sends text as it is, one statement or several.
    pub(crate) async fn say(&mut self, text: &str) -> Result<(), Fault> {
        of!(self, say(text))
    }

    /// Asks something that needs no arguments.
    pub(crate) async fn ask(&mut self, text: &'static str) -> Result<Vec<Row>, Fault> {
        let written = Written { text: text.into(), arguments: Vec::new() };
        self.rows(&written, &[]).await
    }

    pub(crate) async fn run(&mut self, written: &Written, values: &[&Value]) -> Result<u64, Fault> {
        of!(self, run(written, values))
    }

    pub(crate) async fn rows(&mut self, written: &Written, values: &[&Value]) -> Result<Vec<Row>, Fault> {
        of!(self, rows(written, values))
    }
}
