//! Queries: files with named arguments, one file for all dialects or one for each.
//!
//! A query writes its arguments as `:name`, and table and column names that come from settings as `{name}` ([`Names`]).
//! It is rendered once for each dialect, with that dialect's placeholders and its syntax for reading a list
//! ([`select_items`]).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::Histogram;

use crate::Names;

/// The SQL dialect of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Mysql];
}

/// A query, declared by [`query!`](crate::query) as a static beside the function that runs it.
pub struct Query {
    name: &'static str,
    texts: [&'static str; 3],
    rendered: [OnceLock<Arc<RenderedQuery>>; 3],
    seconds: OnceLock<Histogram>,
}

/// A query in the syntax of one dialect.
#[derive(Debug)]
pub struct RenderedQuery {
    pub text: Arc<str>,
    /// The name of the argument at each placeholder, in order.
    pub arguments: Vec<String>,
}

impl Query {
    /// Takes the texts in the order of [`Dialect::ALL`].
    pub const fn new(name: &'static str, texts: [&'static str; 3]) -> Self {
        Self { name, texts, rendered: [const { OnceLock::new() }; 3], seconds: OnceLock::new() }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn render(&self, dialect: Dialect, names: &Names) -> Arc<RenderedQuery> {
        let index = dialect as usize;
        let text = self.texts[index];
        if text.contains('{') {
            return names.render(text, dialect);
        }
        self.rendered[index]
            .get_or_init(|| Arc::new(render_arguments(&translate(text, dialect), dialect)))
            .clone()
    }

    pub(crate) fn record(&self, took: Duration) {
        let seconds = || metrics::histogram!("sql_query_duration_seconds", "query" => self.name);
        self.seconds.get_or_init(seconds).record(took.as_secs_f64());
    }
}

/// Declares a query by the name of its file in `queries/`, and the dialects that have a file of their own:
/// `query!("list")` takes `queries/list.sql` for all, `query!("insert", mysql)` takes `queries/insert.mysql.sql` for
/// MariaDB and MySQL.
#[macro_export]
macro_rules! query {
    ($name:literal) => {
        $crate::query!(@ $name, ".sql", ".sql", ".sql")
    };
    ($name:literal, mysql) => {
        $crate::query!(@ $name, ".sql", ".sql", ".mysql.sql")
    };
    ($name:literal, postgres) => {
        $crate::query!(@ $name, ".sql", ".postgres.sql", ".sql")
    };
    ($name:literal, sqlite) => {
        $crate::query!(@ $name, ".sqlite.sql", ".sql", ".sql")
    };
    ($name:literal, all) => {
        $crate::query!(@ $name, ".sqlite.sql", ".postgres.sql", ".mysql.sql")
    };
    (@ $name:literal, $($extension:literal),*) => {
        $crate::Query::new($name, [
            $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/queries/", $name, $extension))),*
        ])
    };
}

/// Declares the queries of a part, and `QUERIES`, the list of all of them.
#[macro_export]
macro_rules! queries {
    ($($name:ident = $query:expr;)*) => {
        $(pub(crate) static $name: $crate::Query = $query;)*

        /// All queries of the part, for the test that prepares every query on every database.
        pub static QUERIES: &[&$crate::Query] = &[$(&$name),*];
    };
}

/// Translates a query file to a dialect. Removes row locks for SQLite, which has none, and needs none, because only one
/// transaction writes at a time.
pub(crate) fn translate(text: &str, dialect: Dialect) -> String {
    let text = text.trim_end();
    let unlocked = ["FOR UPDATE SKIP LOCKED", "FOR UPDATE"].iter().find_map(|lock| text.strip_suffix(lock));
    select_items(unlocked.filter(|_| dialect == Dialect::Sqlite).unwrap_or(text), dialect)
}

/// Replaces `:ids[number]` in `IN (:ids[number])`, and `:marks[row]` in `FROM (:marks[row]) AS mark`, by a SELECT of
/// the items of a JSON list as a column `value`. An item is a `[number]`, a `[text]` (on MariaDB and MySQL an id: at
/// most 128 ASCII characters) or a `[row]`, which is a list itself: `value ->> 0` is its first column as text.
fn select_items(text: &str, dialect: Dialect) -> String {
    let item_types = [
        ("[number]", "value::bigint AS value FROM json_array_elements_text", "BIGINT"),
        (
            "[text]",
            "value FROM json_array_elements_text",
            "VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin",
        ),
        ("[row]", "value FROM json_array_elements", "JSON"),
    ];
    let mut text = text.to_owned();
    for (item_type, elements, column) in item_types {
        while let Some(end) = text.find(item_type) {
            let start = text[..end].rfind(':').unwrap_or(end);
            let list = &text[start..end];
            let items = match dialect {
                Dialect::Sqlite => format!("SELECT value FROM json_each({list})"),
                Dialect::Postgres => format!("SELECT {elements}(({list})::json)"),
                Dialect::Mysql => format!(
                    "SELECT value FROM JSON_TABLE({list}, '$[*]' COLUMNS (value {column} PATH '$')) AS items"
                ),
            };
            text.replace_range(start..end + item_type.len(), &items);
        }
    }
    text
}

/// Replaces the arguments by a dialect's placeholders.
pub(crate) fn render_arguments(text: &str, dialect: Dialect) -> RenderedQuery {
    let mut arguments = Vec::new();
    let text = replace_arguments(text, |out, name| push_placeholder(out, &mut arguments, name, dialect));
    RenderedQuery { text: text.into(), arguments }
}

/// Calls `replace` for every argument, to write its replacement. Keeps quoted text and casts (`::`), and removes
/// comments.
pub fn replace_arguments(text: &str, mut replace: impl FnMut(&mut String, &str)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    while let Some(at) = rest.find(['\'', ':', '-']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = match from.as_bytes() {
            [b'\'', inside @ ..] => {
                inside.iter().position(|byte| *byte == b'\'').map_or(from.len(), |end| end + 2)
            }
            [b'-', b'-', ..] => {
                rest = from.find('\n').map_or("", |end| &from[end..]);
                continue;
            }
            [b':', b':', ..] => 2,
            [b':', first, ..] if first.is_ascii_lowercase() => {
                let end = from[1..].find(|c: char| !c.is_ascii_lowercase() && c != '_');
                let end = end.map_or(from.len(), |end| end + 1);
                replace(&mut out, &from[1..end]);
                rest = &from[end..];
                continue;
            }
            _ => 1,
        };
        out.push_str(&from[..length]);
        rest = &from[length..];
    }
    out.push_str(rest);
    out
}

fn push_placeholder(out: &mut String, arguments: &mut Vec<String>, name: &str, dialect: Dialect) {
    let known = arguments.iter().position(|known| known == name);
    let number = match known {
        // Placeholders of MySQL have no number, so an argument that is used twice is sent twice.
        Some(index) if dialect != Dialect::Mysql => index + 1,
        _ => {
            arguments.push(name.to_owned());
            arguments.len()
        }
    };
    match dialect {
        Dialect::Sqlite => out.push_str(&format!("?{number}")),
        Dialect::Postgres => out.push_str(&format!("${number}")),
        Dialect::Mysql => out.push('?'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_the_placeholders_of_each_dialect() {
        let text =
            "SELECT ':no', a::text FROM t -- :not here\nWHERE a = :one AND b - 1 = :the_other OR c = :one;";
        let rendered = Dialect::ALL.map(|dialect| render_arguments(text, dialect));
        let texts = rendered.each_ref().map(|query| &*query.text);
        assert_eq!(
            texts,
            [
                "SELECT ':no', a::text FROM t \nWHERE a = ?1 AND b - 1 = ?2 OR c = ?1;",
                "SELECT ':no', a::text FROM t \nWHERE a = $1 AND b - 1 = $2 OR c = $1;",
                "SELECT ':no', a::text FROM t \nWHERE a = ? AND b - 1 = ? OR c = ?;",
            ]
        );
        assert_eq!(rendered[0].arguments, ["one", "the_other"]);
        assert_eq!(rendered[2].arguments, ["one", "the_other", "one"]);
    }

    #[test]
    fn lists_are_selected_in_the_syntax_of_each_dialect() {
        let text = "SELECT a FROM t WHERE a IN (:ids[number]) AND b = :b FOR UPDATE SKIP LOCKED\n";
        let rendered = Dialect::ALL.map(|dialect| render_arguments(&translate(text, dialect), dialect));
        assert_eq!(
            rendered.each_ref().map(|query| &*query.text),
            [
                "SELECT a FROM t WHERE a IN (SELECT value FROM json_each(?1)) AND b = ?2",
                "SELECT a FROM t WHERE a IN (SELECT value::bigint AS value FROM json_array_elements_text(($1)::json)) \
                 AND b = $2 FOR UPDATE SKIP LOCKED",
                "SELECT a FROM t WHERE a IN (SELECT value FROM JSON_TABLE(?, '$[*]' COLUMNS (value BIGINT PATH '$')) AS items) \
                 AND b = ? FOR UPDATE SKIP LOCKED",
            ]
        );
        assert_eq!(rendered[1].arguments, ["ids", "b"]);
    }
}
