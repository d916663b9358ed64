//! A transaction, or a connection to read on: where queries run.

use std::time::Instant;

use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::query::Written;
use crate::server::Session;
use crate::{Dialect, Error, Names, Query, Row, Value};

/// Named arguments of a query.
pub type Arguments<'a> = &'a [(&'static str, Value)];

/// Where queries run: all of them count, or none. One that fails fails the whole: a server may have undone what came
/// before it.
pub struct Transaction<'c> {
    inner: Inner<'c>,
    names: &'c Names,
    failed: Option<Error>,
}

pub(crate) enum Inner<'c> {
    Sqlite(&'c mut rusqlite::Connection),
    Server(&'c mut Session),
}

impl<'c> Transaction<'c> {
    pub(crate) fn new(inner: Inner<'c>, names: &'c Names) -> Self {
        Self { inner, names, failed: None }
    }

    /// How a change ends: as it says itself, unless it went on after a query had failed.
    pub(crate) fn finish<T, E: From<Error>>(self, outcome: Result<T, E>) -> Result<T, E> {
        match self.failed {
            Some(error) if outcome.is_ok() => Err(error.into()),
            _ => outcome,
        }
    }
}

impl Transaction<'_> {
    pub fn dialect(&self) -> Dialect {
        match &self.inner {
            Inner::Sqlite(_) => Dialect::Sqlite,
            Inner::Server(session) => session.link.dialect(),
        }
    }

    /// Runs a query that gives no rows, and says how many it changed. An update counts the rows it found, also those
    /// that were as it wants them already.
    pub async fn run(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<u64, Error> {
        let started = Instant::now();
        let done = self.try_run(query, arguments).await;
        self.heard(query, started, done)
    }

    /// Runs a query and gives all its rows. Queries bound how many that are.
    pub async fn rows(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Vec<Row>, Error> {
        let started = Instant::now();
        let done = self.try_rows(query, arguments).await;
        self.heard(query, started, done)
    }

    /// The first row, if there is one.
    pub async fn row(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Option<Row>, Error> {
        Ok(self.rows(query, arguments).await?.into_iter().next())
    }

    async fn try_run(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<u64, Error> {
        let written = query.written(self.dialect(), self.names);
        let values = order(query, &written, arguments)?;
        match &mut self.inner {
            Inner::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&written.text)?;
                Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
            }
            Inner::Server(session) => session.run(&written, &values).await,
        }
    }

    async fn try_rows(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Vec<Row>, Error> {
        let written = query.written(self.dialect(), self.names);
        let values = order(query, &written, arguments)?;
        match &mut self.inner {
            Inner::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&written.text)?;
                let columns = statement.column_count();
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                let mut given = Vec::new();
                while let Some(row) = rows.next()? {
                    given.push(Row((0..columns)
                        .map(|at| read(row.get_ref(at)?))
                        .collect::<Result<_, Error>>()?));
                }
                Ok(given)
            }
            Inner::Server(session) => session.rows(&written, &values).await,
        }
    }

    fn heard<T>(&mut self, query: &Query, started: Instant, done: Result<T, Error>) -> Result<T, Error> {
        query.record(started.elapsed());
        done.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// The arguments as the placeholders want them.
fn order<'a>(query: &Query, written: &Written, arguments: Arguments<'a>) -> Result<Vec<&'a Value>, Error> {
    let find = |name: &String| {
        let found = arguments.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value).ok_or_else(|| Error::Failed(format!("{} needs {name}", query.name())))
    };
    written.arguments.iter().map(find).collect()
}

fn read(value: ValueRef<'_>) -> Result<Value, Error> {
    let unreadable = || Error::Failed("a column is neither a whole number nor text".to_owned());
    match value {
        ValueRef::Null => Ok(Value::Text(None)),
        ValueRef::Integer(number) => Ok(Value::Int(Some(number))),
        // Other programs may write to the file, and nothing keeps them to UTF-8: one of their rows must not stop all others.
        ValueRef::Text(text) => Ok(Value::Text(Some(String::from_utf8_lossy(text).into_owned()))),
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(unreadable()),
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, rusqlite::Error> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(None) | Self::Text(None) => ValueRef::Null,
            Self::Int(Some(number)) => ValueRef::Integer(*number),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
        }))
    }
}
