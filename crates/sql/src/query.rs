//! Queries: files with named arguments, one for all dialects or one for each.
//!
//! A query names its arguments as `:name`, and what settings name as `{name}` ([`Names`]). Each dialect gets it with
//! placeholders of its own, worked out once, and its own way to read a list ([`select_items`]).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::Histogram;

use crate::Names;

/// What a database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Mysql];
}

/// A query, declared by [`query!`](crate::query) as a static beside what it does.
pub struct Query {
    name: &'static str,
    texts: [&'static str; 3],
    written: [OnceLock<Arc<Written>>; 3],
    seconds: OnceLock<Histogram>,
}

/// A query as a dialect takes it.
#[derive(Debug)]
pub struct Written {
    pub text: Arc<str>,
    /// Which argument stands at which placeholder.
    pub arguments: Vec<String>,
}

impl Query {
    /// The texts in the order of [`Dialect::ALL`].
    pub const fn new(name: &'static str, texts: [&'static str; 3]) -> Self {
        Self { name, texts, written: [const { OnceLock::new() }; 3], seconds: OnceLock::new() }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn written(&self, dialect: Dialect, names: &Names) -> Arc<Written> {
        let at = dialect as usize;
        let text = self.texts[at];
        if text.contains('{') {
            return names.written(text, dialect);
        }
        self.written[at].get_or_init(|| Arc::new(write(&translate(text, dialect), dialect))).clone()
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
    (@ $name:literal, $($end:literal),*) => {
        $crate::Query::new($name, [
            $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/queries/", $name, $end))),*
        ])
    };
}

/// Declares the queries of a part, and `QUERIES`, all of them.
#[macro_export]
macro_rules! queries {
    ($($name:ident = $query:expr;)*) => {
        $(pub(crate) static $name: $crate::Query = $query;)*

        /// All of them, for the test that every database understands them.
        pub static QUERIES: &[&$crate::Query] = &[$(&$name),*];
    };
}

/// A query file in the words of a dialect. SQLite locks no rows: only one transaction writes at a time.
pub(crate) fn translate(text: &str, dialect: Dialect) -> String {
    let text = text.trim_end();
    let unlocked = ["FOR UPDATE SKIP LOCKED", "FOR UPDATE"].iter().find_map(|lock| text.strip_suffix(lock));
    select_items(unlocked.filter(|_| dialect == Dialect::Sqlite).unwrap_or(text), dialect)
}

/// Has the items of a JSON list selected, in a column `value`, where a query says `IN (:ids[number])` or
/// `FROM (:marks[row]) AS mark`. A text is an id on MariaDB: at most 128 characters, all ASCII. A row is a list itself:
/// `value ->> 0` is its first column, as text.
fn select_items(text: &str, dialect: Dialect) -> String {
    let kinds = [
        ("[number]", "value::bigint AS value FROM json_array_elements_text", "BIGINT"),
        (
            "[text]",
            "value FROM json_array_elements_text",
            "VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin",
        ),
        ("[row]", "value FROM json_array_elements", "JSON"),
    ];
    let mut text = text.to_owned();
    for (kind, elements, column) in kinds {
        while let Some(end) = text.find(kind) {
            let start = text[..end].rfind(':').unwrap_or(end);
            let list = &text[start..end];
            let items = match dialect {
                Dialect::Sqlite => format!("SELECT value FROM json_each({list})"),
                Dialect::Postgres => format!("SELECT {elements}(({list})::json)"),
                Dialect::Mysql => format!(
                    "SELECT value FROM JSON_TABLE({list}, '$[*]' COLUMNS (value {column} PATH '$')) AS items"
                ),
            };
            text.replace_range(start..end + kind.len(), &items);
        }
    }
    text
}

/// Puts a dialect's placeholders where the arguments are.
pub(crate) fn write(text: &str, dialect: Dialect) -> Written {
    let mut arguments = Vec::new();
    let text = replace_arguments(text, |out, name| place(out, &mut arguments, name, dialect));
    Written { text: text.into(), arguments }
}

/// Has something written in the place of every argument; text in quotes, comments and casts (`::`) are left alone.
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

fn place(out: &mut String, arguments: &mut Vec<String>, name: &str, dialect: Dialect) {
    let known = arguments.iter().position(|known| known == name);
    let number = match known {
        // There a placeholder has no number, so an argument that is used twice is given twice.
        Some(at) if dialect != Dialect::Mysql => at + 1,
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
        let written = Dialect::ALL.map(|dialect| write(text, dialect));
        let texts = written.each_ref().map(|written| &*written.text);
        assert_eq!(
            texts,
            [
                "SELECT ':no', a::text FROM t \nWHERE a = ?1 AND b - 1 = ?2 OR c = ?1;",
                "SELECT ':no', a::text FROM t \nWHERE a = $1 AND b - 1 = $2 OR c = $1;",
                "SELECT ':no', a::text FROM t \nWHERE a = ? AND b - 1 = ? OR c = ?;",
            ]
        );
        assert_eq!(written[0].arguments, ["one", "the_other"]);
        assert_eq!(written[2].arguments, ["one", "the_other", "one"]);
    }

    #[test]
    fn lists_are_read_in_the_way_of_each_dialect() {
        let text = "SELECT a FROM t WHERE a IN (:ids[number]) AND b = :b FOR UPDATE SKIP LOCKED\n";
        let written = Dialect::ALL.map(|dialect| write(&translate(text, dialect), dialect));
        assert_eq!(
            written.each_ref().map(|written| &*written.text),
            [
                "SELECT a FROM t WHERE a IN (SELECT value FROM json_each(?1)) AND b = ?2",
                "SELECT a FROM t WHERE a IN (SELECT value::bigint AS value FROM json_array_elements_text(($1)::json)) \
                 AND b = $2 FOR UPDATE SKIP LOCKED",
                "SELECT a FROM t WHERE a IN (SELECT value FROM JSON_TABLE(?, '$[*]' COLUMNS (value BIGINT PATH '$')) AS items) \
                 AND b = ? FOR UPDATE SKIP LOCKED",
            ]
        );
        assert_eq!(written[1].arguments, ["ids", "b"]);
    }
}
