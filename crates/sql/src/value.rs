//! The values of arguments and columns: whole numbers and text. Times are numbers, payloads are text.

use bongsu_kernel::Id;

use crate::{Error, Result};

/// An argument or a column. A NULL carries a type, because PostgreSQL otherwise infers the wrong parameter type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

/// A number above `i64::MAX` becomes `i64::MAX`, which no counter or time of this program reaches.
impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<&Id> for Value {
    fn from(id: &Id) -> Self {
        id.as_str().into()
    }
}

impl From<Option<&Id>> for Value {
    fn from(id: Option<&Id>) -> Self {
        Self::Text(id.map(|id| id.as_str().to_owned()))
    }
}

/// A row of a result. Columns are read by their index, from 0.
#[derive(Clone, Debug)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    pub fn int(&self, column: usize) -> Result<i64> {
        self.maybe_int(column)?.ok_or_else(|| unexpected(column, "a number"))
    }

    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>> {
        match self.0.get(column) {
            Some(Value::Int(number)) => Ok(*number),
            Some(Value::Text(None)) => Ok(None),
            _ => Err(unexpected(column, "a number")),
        }
    }

    /// A number that is not negative.
    pub fn count(&self, column: usize) -> Result<u64> {
        self.maybe_count(column)?.ok_or_else(|| unexpected(column, "a number"))
    }

    pub fn maybe_count(&self, column: usize) -> Result<Option<u64>> {
        let number = self.maybe_int(column)?.map(u64::try_from).transpose();
        number.map_err(|_| unexpected(column, "a number of at least 0"))
    }

    pub fn text(&self, column: usize) -> Result<&str> {
        self.maybe_text(column)?.ok_or_else(|| unexpected(column, "text"))
    }

    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Ok(text.as_deref()),
            Some(Value::Int(None)) => Ok(None),
            _ => Err(unexpected(column, "text")),
        }
    }

    pub fn id(&self, column: usize) -> Result<Id> {
        Id::new(self.text(column)?).map_err(|_| unexpected(column, "an id"))
    }

    pub fn maybe_id(&self, column: usize) -> Result<Option<Id>> {
        let text = self.maybe_text(column)?;
        text.map(|text| Id::new(text).map_err(|_| unexpected(column, "an id"))).transpose()
    }
}

fn unexpected(column: usize, expected: &str) -> Error {
    Error::Failed(format!("column {column} of a result is not {expected}"))
}
