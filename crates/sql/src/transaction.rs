//! A transaction, with one interface for the embedded file and for servers. Every query runs in a
//! transaction.

use std::time::Instant;

use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::query::RenderedQuery;
use crate::server::Session;
use crate::{Dialect, Error, Names, Query, Result, Row, Value};

/// The named arguments of a query.
pub type Arguments<'a> = &'a [(&'static str, Value)];

/// Runs queries, of which either all or none take effect. A failed query fails the whole transaction, because the
/// server may have rolled back the queries before it.
pub struct Transaction<'c> {
    inner: Inner<'c>,
    names: &'c Names,
    /// The last error of a query.
    query_error: Option<Error>,
}

pub(crate) enum Inner<'c> {
    Sqlite(&'c mut rusqlite::Connection),
    Server(&'c mut Session),
}

impl<'c> Transaction<'c> {
    pub(crate) fn new(inner: Inner<'c>, names: &'c Names) -> Self {
        Self { inner, names, query_error: None }
    }

    /// Returns the result of the change, or the error of a query if the change succeeded although that query failed.
    pub(crate) fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        match self.query_error {
            Some(error) if result.is_ok() => Err(error.into()),
            _ => result,
        }
    }

    pub fn dialect(&self) -> Dialect {
        match &self.inner {
            Inner::Sqlite(_) => Dialect::Sqlite,
            Inner::Server(session) => session.connection.dialect(),
        }
    }

    /// Runs a query that returns no rows, and returns how many rows it changed. An update counts all rows that it
    /// matches, also those that already had the new values.
    pub async fn run(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<u64> {
        let started = Instant::now();
        let result = self.try_run(query, arguments).await;
        self.record(query, started, result)
    }

    /// Runs a query and returns all its rows. The text of the query limits the number of rows.
    pub async fn rows(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Vec<Row>> {
        let started = Instant::now();
        let result = self.try_rows(query, arguments).await;
        self.record(query, started, result)
    }

    /// Runs a query and returns its first row, if any.
    pub async fn row(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Option<Row>> {
        Ok(self.rows(query, arguments).await?.into_iter().next())
    }

    async fn try_run(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<u64> {
        let rendered = query.render(self.dialect(), self.names);
        let values = ordered_values(query, &rendered, arguments)?;
        match &mut self.inner {
            Inner::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&rendered.text)?;
                Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
            }
            Inner::Server(session) => session.run(&rendered, &values).await,
        }
    }

    async fn try_rows(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Vec<Row>> {
        let rendered = query.render(self.dialect(), self.names);
        let values = ordered_values(query, &rendered, arguments)?;
        match &mut self.inner {
            Inner::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&rendered.text)?;
                let columns = statement.column_count();
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                let mut result = Vec::new();
                while let Some(row) = rows.next()? {
                    result.push(Row((0..columns)
                        .map(|column| read_value(row.get_ref(column)?))
                        .collect::<Result<_>>()?));
                }
                Ok(result)
            }
            Inner::Server(session) => session.rows(&rendered, &values).await,
        }
    }

    fn record<T>(&mut self, query: &Query, started: Instant, result: Result<T>) -> Result<T> {
        query.record(started.elapsed());
        result.inspect_err(|error| self.query_error = Some(error.clone()))
    }
}

/// The values in the order of the placeholders.
fn ordered_values<'a>(
    query: &Query,
    rendered: &RenderedQuery,
    arguments: Arguments<'a>,
) -> Result<Vec<&'a Value>> {
    let find = |name: &String| {
        let argument = arguments.iter().find(|(known, _)| known == name);
        argument
            .map(|(_, value)| value)
            .ok_or_else(|| Error::Failed(format!("{} needs {name}", query.name())))
    };
    rendered.arguments.iter().map(find).collect()
}

fn read_value(value: ValueRef<'_>) -> Result<Value> {
    let unreadable = || Error::Failed("a column is neither a whole number nor text".to_owned());
    match value {
        ValueRef::Null => Ok(Value::Text(None)),
        ValueRef::Integer(number) => Ok(Value::Int(Some(number))),
        // Other programs may write text that is not UTF-8 to the file. Such a row must not fail a query that
        // also returns other rows.
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
