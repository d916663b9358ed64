//! Names that settings give to tables and columns, put into queries and migrations.
//!
//! A text marks such a name as `{outbox_events}`, or as `{key:default}` where the default is another text than the key.
//! What has no name in [`Names`] gets its default. Whoever makes [`Names`] quotes them for the dialect of the database:
//! an [`Identifier`] cannot end its own quotes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::Dialect;
use crate::query::{Written, translate, write};

/// Characters of an identifier. PostgreSQL cuts names at 63 bytes, and indexes add an ending to the name of their table.
const MAX_LEN: usize = 48;

/// The name of a table, a schema or a column, as the database spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier(String);

impl Identifier {
    /// None for anything but 1 to 48 letters, digits and underscores that do not begin with a digit.
    pub fn new(text: &str) -> Option<Self> {
        let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins_well = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        (is_word && begins_well && text.len() <= MAX_LEN).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a database may take the two for the same: most do not look at capital letters.
    pub fn is_like(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// Whether it is a schema that a server keeps for itself.
    pub fn is_of_server(&self) -> bool {
        let name = self.0.to_ascii_lowercase();
        name.starts_with("pg_")
            || ["information_schema", "mysql", "performance_schema", "sys"].contains(&name.as_str())
    }

    /// SQLite takes a name in double quotes that it does not know for text, so it gets the quotes of MariaDB.
    pub fn quoted(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Postgres => format!("\"{}\"", self.0),
            Dialect::Sqlite | Dialect::Mysql => format!("`{}`", self.0),
        }
    }
}

/// The name of a table, with or without its schema (on MariaDB and MySQL: its database).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<Identifier>,
    pub name: Identifier,
}

impl TableName {
    /// Reads `table` or `schema.table`.
    pub fn parse(text: &str) -> Option<Self> {
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(Identifier::new(schema)?), name),
            None => (None, text),
        };
        Some(Self { schema, name: Identifier::new(name)? })
    }

    pub fn quoted(&self, dialect: Dialect) -> String {
        let name = self.name.quoted(dialect);
        self.schema.as_ref().map_or(name.clone(), |schema| format!("{}.{name}", schema.quoted(dialect)))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", schema.as_str())?;
        }
        f.write_str(self.name.as_str())
    }
}

/// What marked names stand for in one database. The default leaves every name as it is.
#[derive(Debug, Default)]
pub struct Names {
    given: BTreeMap<&'static str, String>,
    parts: Vec<PartNames>,
    probes: Vec<(&'static str, String)>,
    written: RwLock<HashMap<(Dialect, &'static str), Arc<Written>>>,
}

/// The names under which the tables of a part are made.
#[derive(Debug)]
struct PartNames {
    part: &'static str,
    names: String,
    /// Those of a database in which none were noted.
    default: &'static str,
}

impl Names {
    pub fn new(given: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { given: given.into_iter().collect(), ..Self::default() }
    }

    /// Says under which names the tables of a part are made, in words for an operator. They are noted in the database, and a
    /// start with others is refused.
    #[must_use]
    pub fn part(mut self, part: &'static str, names: String, default: &'static str) -> Self {
        self.parts.push(PartNames { part, names, default });
        self
    }

    /// Has a query of a setting tried before anything in the database is changed.
    #[must_use]
    pub fn probe(mut self, setting: &'static str, query: String) -> Self {
        self.probes.push((setting, query));
        self
    }

    /// The names of a part as they are wanted, and the default ones.
    pub(crate) fn of_part(&self, part: &str) -> Option<(&str, &'static str)> {
        let found = self.parts.iter().find(|known| known.part == part)?;
        Some((&found.names, found.default))
    }

    /// The queries to try, each with its setting.
    pub(crate) fn probes(&self, dialect: Dialect) -> impl Iterator<Item = (&'static str, Written)> {
        self.probes.iter().map(move |(setting, query)| (*setting, write(query, dialect)))
    }

    /// A text with the names in their places.
    pub fn fill<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains('{') {
            return Cow::Borrowed(text);
        }
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, from)) = rest.split_once('{') {
            out.push_str(before);
            let marked = from.split_once('}').filter(|_| from.starts_with(|c: char| c.is_ascii_lowercase()));
            let Some((mark, after)) = marked else {
                out.push('{');
                rest = from;
                continue;
            };
            let (key, default) = mark.split_once(':').unwrap_or((mark, mark));
            out.push_str(self.given.get(key).map_or(default, String::as_str));
            rest = after;
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// A query as a dialect takes it.
    pub(crate) fn written(&self, text: &'static str, dialect: Dialect) -> Arc<Written> {
        let key = (dialect, text);
        if let Some(known) = self.written.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let written = Arc::new(write(&self.fill(&translate(text, dialect)), dialect));
        self.written.write().unwrap_or_else(PoisonError::into_inner).insert(key, written.clone());
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_an_identifier_with_or_without_a_schema() {
        for (text, quoted) in [
            ("outbox_events", ["`outbox_events`", "\"outbox_events\"", "`outbox_events`"]),
            ("app.Order", ["`app`.`Order`", "\"app\".\"Order\"", "`app`.`Order`"]),
            ("_a1", ["`_a1`", "\"_a1\"", "`_a1`"]),
        ] {
            let name = TableName::parse(text).unwrap();
            assert_eq!(Dialect::ALL.map(|dialect| name.quoted(dialect)), quoted.map(str::to_owned));
            assert_eq!(name.to_string(), text);
        }
        let long = "a".repeat(49);
        for bad in ["", ".", "a.", ".b", "a.b.c", "1a", "a b", "a-b", "a\"b", "a`b", "a'b", "a;b", "é", &long]
        {
            assert_eq!(TableName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn marked_names_are_filled_in_or_get_their_default() {
        let text = "SELECT {column:id} FROM {items} WHERE a REGEXP '^{1,8}$' {none:}AND b = '{\"x\":1}'";
        let default = "SELECT id FROM items WHERE a REGEXP '^{1,8}$' AND b = '{\"x\":1}'";
        assert_eq!(Names::default().fill(text), default);
        let names = Names::new([("items", "`app`.`goods`".to_owned()), ("column", "`key`".to_owned())]);
        let filled = "SELECT `key` FROM `app`.`goods` WHERE a REGEXP '^{1,8}$' AND b = '{\"x\":1}'";
        assert_eq!(names.fill(text), filled);
        assert!(matches!(names.fill("SELECT 1"), Cow::Borrowed(_)));
    }
}
