//! A transaction, or a connection to read on: where queries run.

use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::query::Written;
use crate::{Dialect, Error, Query, Row, Value};

/// Named arguments of a query.
pub type Arguments<'a> = &'a [(&'static str, Value)];

/// Where queries run: all of them count, or none.
pub struct Transaction<'c>(pub(crate) Inner<'c>);

pub(crate) enum Inner<'c> {
    Sqlite(&'c mut rusqlite::Connection),
}

impl Transaction<'_> {
    pub fn dialect(&self) -> Dialect {
        match &self.0 {
            Inner::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// Runs a query that gives no rows, and says how many it changed.
    pub async fn run(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<u64, Error> {
        let written = query.written(self.dialect());
        let values = order(query, written, arguments)?;
        match &mut self.0 {
            Inner::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(&written.text)?;
                Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
            }
        }
    }

    /// Runs a query and gives all its rows. Queries bound how many that are.
    pub async fn rows(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Vec<Row>, Error> {
        let written = query.written(self.dialect());
        let values = order(query, written, arguments)?;
        match &mut self.0 {
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
        }
    }

    /// The first row, if there is one.
    pub async fn row(&mut self, query: &Query, arguments: Arguments<'_>) -> Result<Option<Row>, Error> {
        Ok(self.rows(query, arguments).await?.into_iter().next())
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
        ValueRef::Text(text) => {
            Ok(Value::Text(Some(std::str::from_utf8(text).map_err(|_| unreadable())?.to_owned())))
        }
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
