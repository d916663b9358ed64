//! Table and column names that come from settings, for use in queries and migrations.
//!
//! A text contains such a name as `{outbox_events}`, or as `{key:default}` where the default differs from the key. A
//! key that [`Names`] does not have is replaced by its default. The caller quotes the names for the dialect before it
//! passes them to [`Names`]; an [`Identifier`] contains no quote character.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::Dialect;
use crate::query::{RenderedQuery, render_arguments, translate};

/// The maximum length of an identifier. PostgreSQL truncates names to 63 bytes, and index names add a suffix to the
/// table name.
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

    /// Whether the names differ at most by case: most databases treat such names as equal.
    pub fn eq_ignore_case(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// Whether this is the name of a system schema of a server.
    pub fn is_system_schema(&self) -> bool {
        let name = self.0.to_ascii_lowercase();
        name.starts_with("pg_")
            || ["information_schema", "mysql", "performance_schema", "sys"].contains(&name.as_str())
    }

    /// SQLite gets backticks, because it takes an unknown name in double quotes for a string literal.
    pub fn quoted(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Postgres => format!("\"{}\"", self.0),
            Dialect::Sqlite | Dialect::Mysql => format!("`{}`", self.0),
        }
    }
}

/// The name of a table, with or without its schema (on MariaDB and MySQL, its database).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<Identifier>,
    pub name: Identifier,
}

impl TableName {
    /// Parses `table` or `schema.table`.
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

/// The names to fill into queries and migrations for one database. The default value fills in the defaults.
#[derive(Debug, Default)]
pub struct Names {
    names: BTreeMap<&'static str, String>,
    parts: Vec<PartNames>,
    probes: Vec<(&'static str, String)>,
    rendered: RwLock<HashMap<(Dialect, &'static str), Arc<RenderedQuery>>>,
}

/// The names under which the tables of a part are created, as text for an operator.
#[derive(Debug)]
struct PartNames {
    part: &'static str,
    names: String,
    /// The names that a database has if it recorded none.
    default: &'static str,
}

impl Names {
    pub fn new(names: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::default() }
    }

    /// Sets the names under which the tables of a part are created, as text for an operator. The database records them,
    /// and a later start with other names is refused.
    #[must_use]
    pub fn part(mut self, part: &'static str, names: String, default: &'static str) -> Self {
        self.parts.push(PartNames { part, names, default });
        self
    }

    /// Adds a query from a setting, which is tried before a migration changes the database.
    #[must_use]
    pub fn probe(mut self, setting: &'static str, query: String) -> Self {
        self.probes.push((setting, query));
        self
    }

    /// The configured and the default names of a part.
    pub(crate) fn part_names(&self, part: &str) -> Option<(&str, &'static str)> {
        let part_names = self.parts.iter().find(|known| known.part == part)?;
        Some((&part_names.names, part_names.default))
    }

    /// The queries to try, each with its setting.
    pub(crate) fn probes(&self, dialect: Dialect) -> impl Iterator<Item = (&'static str, RenderedQuery)> {
        self.probes.iter().map(move |(setting, query)| (*setting, render_arguments(query, dialect)))
    }

    /// Returns the text with the names filled in.
    pub fn fill<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains('{') {
            return Cow::Borrowed(text);
        }
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, from)) = rest.split_once('{') {
            out.push_str(before);
            let placeholder =
                from.split_once('}').filter(|_| from.starts_with(|c: char| c.is_ascii_lowercase()));
            let Some((placeholder, after)) = placeholder else {
                out.push('{');
                rest = from;
                continue;
            };
            let (key, default) = placeholder.split_once(':').unwrap_or((placeholder, placeholder));
            out.push_str(self.names.get(key).map_or(default, String::as_str));
            rest = after;
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// Renders a query that contains names, once for each dialect.
    pub(crate) fn render(&self, text: &'static str, dialect: Dialect) -> Arc<RenderedQuery> {
        let key = (dialect, text);
        if let Some(known) = self.rendered.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let rendered = Arc::new(render_arguments(&self.fill(&translate(text, dialect)), dialect));
        self.rendered.write().unwrap_or_else(PoisonError::into_inner).insert(key, rendered.clone());
        rendered
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
    fn names_are_filled_in_or_replaced_by_their_default() {
        let text = "SELECT {column:id} FROM {items} WHERE a REGEXP '^{1,8}$' {none:}AND b = '{\"x\":1}'";
        let default = "SELECT id FROM items WHERE a REGEXP '^{1,8}$' AND b = '{\"x\":1}'";
        assert_eq!(Names::default().fill(text), default);
        let names = Names::new([("items", "`app`.`goods`".to_owned()), ("column", "`key`".to_owned())]);
        let filled = "SELECT `key` FROM `app`.`goods` WHERE a REGEXP '^{1,8}$' AND b = '{\"x\":1}'";
        assert_eq!(names.fill(text), filled);
        assert!(matches!(names.fill("SELECT 1"), Cow::Borrowed(_)));
    }
}
