//! What goes into a query and comes out of it: whole numbers and text. Times are numbers, payloads are text.

use bongsu_kernel::Id;

use crate::Error;

/// An argument or a column. Nothing has a kind, too: some databases want to know it.
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

/// A number that is too large to be stored becomes the largest: nothing that is counted here gets there.
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

/// A row of an answer, its columns by their place.
#[derive(Clone, Debug)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    pub fn int(&self, at: usize) -> Result<i64, Error> {
        self.maybe_int(at)?.ok_or_else(|| unexpected(at, "a number"))
    }

    pub fn maybe_int(&self, at: usize) -> Result<Option<i64>, Error> {
        match self.0.get(at) {
            Some(Value::Int(number)) => Ok(*number),
            Some(Value::Text(None)) => Ok(None),
            _ => Err(unexpected(at, "a number")),
        }
    }

    /// A number that is never below zero.
    pub fn count(&self, at: usize) -> Result<u64, Error> {
        self.maybe_count(at)?.ok_or_else(|| unexpected(at, "a number"))
    }

    pub fn maybe_count(&self, at: usize) -> Result<Option<u64>, Error> {
        let number = self.maybe_int(at)?.map(u64::try_from).transpose();
        number.map_err(|_| unexpected(at, "a number from zero on"))
    }

    pub fn text(&self, at: usize) -> Result<&str, Error> {
        self.maybe_text(at)?.ok_or_else(|| unexpected(at, "a text"))
    }

    pub fn maybe_text(&self, at: usize) -> Result<Option<&str>, Error> {
        match self.0.get(at) {
            Some(Value::Text(text)) => Ok(text.as_deref()),
            Some(Value::Int(None)) => Ok(None),
            _ => Err(unexpected(at, "a text")),
        }
    }

    pub fn id(&self, at: usize) -> Result<Id, Error> {
        Id::new(self.text(at)?).map_err(|_| unexpected(at, "an id"))
    }

    pub fn maybe_id(&self, at: usize) -> Result<Option<Id>, Error> {
        let text = self.maybe_text(at)?;
        text.map(|text| Id::new(text).map_err(|_| unexpected(at, "an id"))).transpose()
    }
}

fn unexpected(at: usize, what: &str) -> Error {
    Error::Failed(format!("column {at} of an answer is not {what}"))
}
