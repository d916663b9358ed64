//! The names of the tables that the outbox shares with other programs, and the membership query that replaces a table.
//!
//! A program that already has an outbox or a membership table keeps its table: settings give the names. Names are
//! quoted for each database. Indexes are named after their table, with a suffix.

use bongsu_kernel::settings::{Kind, Setting, SettingError, Values};
use bongsu_sql::{Dialect, Identifier, Names, TableName, replace_arguments};

use crate::store::PART;

bongsu_kernel::settings! { "outbox":
    pub(crate) OUTBOX_TABLE = "outbox_events":
        "The table that programs write rows to: its name, or schema.name on a database server. The hub creates it if it is missing.";
    pub(crate) OUTBOX_MEMBERSHIP_TABLE = "memberships":
        "The table that says who may read the stream of an event: its name, or schema.name on a database server. The hub creates it if it is missing.";
    pub(crate) OUTBOX_MEMBERSHIP_COLUMNS = "event_id,user_id,status", kind(Kind::List):
        "The columns of the membership table: event, person and status. Only the status ACCEPTED gives access.";
    pub(crate) OUTBOX_MEMBERSHIP_QUERY = "":
        "Used instead of a membership table: a SELECT that returns a row if the person :user_id may read the stream of the event :event_id. The hub then creates no table and no triggers; the program itself inserts a system.removed row when a membership ends.";
}

const TABLE_ALLOWED: &str = "a name of up to 48 letters, digits and underscores that does not begin with bongsu_, or schema.name with a schema that is not the database server's own";
const COLUMNS_ALLOWED: &str = "three different column names, separated by commas: event, person, status";
const QUERY_FORM: &str = "one SELECT with the parameters :event_id and :user_id, no others, and no semicolon";
const QUERY_ALONE: &str = "only without OUTBOX_MEMBERSHIP_TABLE and OUTBOX_MEMBERSHIP_COLUMNS";

/// The description of the table names that is stored with the migrations when all settings have their defaults.
const DEFAULT_NAMES: &str = "outbox_events, memberships (event_id, user_id, status)";
/// The indexes of the outbox table: the key that queries use, and the suffix of the index name.
const INDEXES: [(&str, &str); 5] = [
    ("outbox_events_unsequenced", "unsequenced"),
    ("outbox_events_order", "order"),
    ("outbox_events_of_target", "of_target"),
    ("outbox_events_failed", "failed"),
    ("outbox_events_status", "status"),
];

/// The tables that the outbox shares with other programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableNames {
    outbox: TableName,
    memberships: Memberships,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Memberships {
    Table { table: TableName, event: Identifier, user: Identifier, status: Identifier },
    Query(String),
}

/// Whether `OUTBOX_MEMBERSHIP_QUERY` is set.
pub fn has_membership_query(values: &Values) -> bool {
    values.get(&OUTBOX_MEMBERSHIP_QUERY).is_some()
}

impl TableNames {
    pub fn from_settings(values: &Values, dialect: Dialect) -> Result<Self, SettingError> {
        let outbox = table(values, &OUTBOX_TABLE, dialect)?;
        if let Some(query) = values.get(&OUTBOX_MEMBERSHIP_QUERY) {
            let is_default = |setting: &Setting| values.text(setting) == setting.default;
            let is_alone = is_default(&OUTBOX_MEMBERSHIP_TABLE) && is_default(&OUTBOX_MEMBERSHIP_COLUMNS);
            let allowed = if is_alone { QUERY_FORM } else { QUERY_ALONE };
            if !is_query(query) || !is_alone {
                return Err(values.not_allowed(&OUTBOX_MEMBERSHIP_QUERY, allowed));
            }
            return Ok(Self { outbox, memberships: Memberships::Query(query.trim().to_owned()) });
        }
        let memberships = table(values, &OUTBOX_MEMBERSHIP_TABLE, dialect)?;
        if memberships.to_string().eq_ignore_ascii_case(&outbox.to_string()) {
            return Err(values.not_allowed(&OUTBOX_MEMBERSHIP_TABLE, "a table other than OUTBOX_TABLE"));
        }
        let columns = values.list(&OUTBOX_MEMBERSHIP_COLUMNS);
        let columns: Option<Vec<Identifier>> = columns.iter().map(|column| Identifier::new(column)).collect();
        let columns = columns.and_then(|columns| <[Identifier; 3]>::try_from(columns).ok());
        let has_duplicate = |[event, user, status]: &[Identifier; 3]| {
            event.eq_ignore_case(user) || user.eq_ignore_case(status) || status.eq_ignore_case(event)
        };
        let Some([event, user, status]) = columns.filter(|columns| !has_duplicate(columns)) else {
            return Err(values.not_allowed(&OUTBOX_MEMBERSHIP_COLUMNS, COLUMNS_ALLOWED));
        };
        Ok(Self { outbox, memberships: Memberships::Table { table: memberships, event, user, status } })
    }

    /// Whether a query is used instead of a membership table.
    pub fn has_query(&self) -> bool {
        matches!(self.memberships, Memberships::Query(_))
    }

    /// The replacements for the names in braces in queries and migrations, for one database.
    pub fn on(&self, dialect: Dialect) -> Names {
        let outbox = &self.outbox;
        let mut given =
            vec![("outbox_events", outbox.quoted(dialect)), ("outbox_name", outbox.name.as_str().to_owned())];
        given.extend(outbox.schema.iter().map(|schema| ("outbox_schema", format!("'{}'", schema.as_str()))));
        for (key, suffix) in INDEXES {
            let quote = if dialect == Dialect::Postgres { '"' } else { '`' };
            given.push((key, format!("{quote}{}_{suffix}{quote}", outbox.name.as_str())));
        }
        match &self.memberships {
            Memberships::Table { table, event, user, status } => {
                given.extend([
                    ("memberships", table.quoted(dialect)),
                    ("memberships_name", table.name.as_str().to_owned()),
                    ("member_event", event.quoted(dialect)),
                    ("member_user", user.quoted(dialect)),
                    ("member_status", status.quoted(dialect)),
                    ("member_event_name", event.as_str().to_owned()),
                    ("member_user_name", user.as_str().to_owned()),
                    ("member_status_name", status.as_str().to_owned()),
                ]);
                if let Some(schema) = &table.schema {
                    given.push(("memberships_schema", format!("'{}'", schema.as_str())));
                    given.push(("beside_memberships", format!("{}.", schema.quoted(dialect))));
                }
                let columns = [event, user, status].map(Identifier::as_str).join(", ");
                Names::new(given).part(PART, format!("{outbox}, {table} ({columns})"), DEFAULT_NAMES)
            }
            Memberships::Query(query) => {
                // The line feed ends a `--` comment at the end of the query, which would otherwise hide the closing
                // parenthesis.
                given.push(("membership_query", format!("{query}\n")));
                given.push(("listed_membership_query", format!("{}\n", for_listed_streams(query, dialect))));
                let listed = for_listed_streams(query, dialect);
                // The query is probed for one stream and for a list of streams, because a database may accept
                // only one of these forms: MariaDB has no outer columns within a WITH.
                Names::new(given)
                    .part(PART, format!("{outbox}, a query for memberships"), DEFAULT_NAMES)
                    .probe(OUTBOX_MEMBERSHIP_QUERY.name, format!("SELECT 1 WHERE EXISTS ({query}\n)"))
                    .probe(
                        OUTBOX_MEMBERSHIP_QUERY.name,
                        format!("SELECT 1 FROM {} WHERE NOT EXISTS ({listed}\n)", empty_stream_list(dialect)),
                    )
            }
        }
    }
}

fn table(values: &Values, setting: &Setting, dialect: Dialect) -> Result<TableName, SettingError> {
    let table = TableName::parse(values.text(setting))
        .filter(|table| !table.name.as_str().to_ascii_lowercase().starts_with("bongsu_"))
        .filter(|table| !table.schema.as_ref().is_some_and(Identifier::is_system_schema));
    let table = table.ok_or_else(|| values.not_allowed(setting, TABLE_ALLOWED))?;
    if dialect == Dialect::Sqlite && table.schema.is_some() {
        let allowed =
            "a name without a schema, because the records are in the data folder (SQLite has no schemas)";
        return Err(values.not_allowed(setting, allowed));
    }
    Ok(table)
}

/// Whether a text looks like one query with both parameters. The probe on the database finds out whether the
/// text is valid SQL.
fn is_query(text: &str) -> bool {
    let mut arguments = Vec::new();
    replace_arguments(text, |_, name| arguments.push(name.to_owned()));
    let is_known = |name: &String| ["event_id", "user_id"].contains(&name.as_str());
    let has_query_keyword = ["select", "with"].iter().any(|word| {
        let first_word = text.trim_start().get(..word.len());
        first_word.is_some_and(|first| first.eq_ignore_ascii_case(word))
    });
    let has_both = ["event_id", "user_id"].iter().all(|name| arguments.iter().any(|given| given == name));
    has_query_keyword && has_both && arguments.iter().all(is_known) && !text.contains(';')
}

/// An empty list of streams, in the form that `missing_membership_by_query` selects from.
fn empty_stream_list(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "json_each('[]') AS listed",
        Dialect::Postgres => "json_array_elements('[]'::json) AS listed (one)",
        Dialect::Mysql => {
            "JSON_TABLE('[]', '$[*]' COLUMNS (event VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]', \
             person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]')) AS listed"
        }
    }
}

/// The membership query with its parameters replaced by the columns of the streams that `missing_membership_by_query`
/// lists.
fn for_listed_streams(query: &str, dialect: Dialect) -> String {
    let [event, user] = match dialect {
        Dialect::Sqlite => ["json_extract(listed.value, '$[1]')", "json_extract(listed.value, '$[2]')"],
        Dialect::Postgres => ["(listed.one ->> 1)", "(listed.one ->> 2)"],
        Dialect::Mysql => ["listed.event", "listed.person"],
    };
    replace_arguments(query, |out, name| out.push_str(if name == "event_id" { event } else { user }))
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;

    fn names(dialect: Dialect, given: &[(&str, &str)]) -> Result<TableNames, String> {
        let environment =
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let values = load(crate::SETTINGS, &Input { environment, ..Input::default() }).unwrap();
        TableNames::from_settings(&values, dialect).map_err(|bad| bad.to_string())
    }

    #[test]
    fn names_go_into_queries_in_the_quotes_of_each_database() {
        let text = "{outbox_events} {outbox_events_order} {memberships} {member_user:user_id} \
            {outbox_schema:DATABASE()} {beside_memberships:}x";
        let given = [
            ("OUTBOX_TABLE", "app.Order"),
            ("OUTBOX_MEMBERSHIP_TABLE", "group"),
            ("OUTBOX_MEMBERSHIP_COLUMNS", "event, user ,state"),
        ];
        let filled = |dialect| names(dialect, &given).unwrap().on(dialect).fill(text).into_owned();
        assert_eq!(filled(Dialect::Postgres), "\"app\".\"Order\" \"Order_order\" \"group\" \"user\" 'app' x");
        assert_eq!(filled(Dialect::Mysql), "`app`.`Order` `Order_order` `group` `user` 'app' x");
        let of_default = names(Dialect::Mysql, &[("OUTBOX_MEMBERSHIP_TABLE", "app.members")]).unwrap();
        let filled = of_default.on(Dialect::Mysql).fill(text).into_owned();
        assert_eq!(
            filled,
            "`outbox_events` `outbox_events_order` `app`.`members` `user_id` DATABASE() `app`.x"
        );
    }

    #[test]
    fn names_that_cannot_be_are_refused_with_what_is_allowed() {
        let query = "SELECT 1 FROM m WHERE e = :event_id AND u = :user_id";
        for (dialect, given) in [
            (Dialect::Postgres, ("OUTBOX_TABLE", "outbox events")),
            (Dialect::Postgres, ("OUTBOX_TABLE", "a.b.c")),
            (Dialect::Postgres, ("OUTBOX_TABLE", "Bongsu_rooms")),
            (Dialect::Postgres, ("OUTBOX_TABLE", "a\";DROP TABLE b;--")),
            (Dialect::Sqlite, ("OUTBOX_TABLE", "app.outbox")),
            (Dialect::Mysql, ("OUTBOX_TABLE", "information_schema.outbox")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_TABLE", "pg_temp.members")),
            (Dialect::Mysql, ("OUTBOX_MEMBERSHIP_TABLE", "Outbox_Events")),
            (Dialect::Mysql, ("OUTBOX_MEMBERSHIP_COLUMNS", "A,a,c")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_TABLE", "app.")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_TABLE", "outbox_events")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_COLUMNS", "event_id,user_id")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_COLUMNS", "event_id,user_id,user_id")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_COLUMNS", "event_id,user id,status")),
            (
                Dialect::Postgres,
                ("OUTBOX_MEMBERSHIP_QUERY", "DELETE FROM m WHERE e = :event_id AND u = :user_id"),
            ),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_QUERY", "SELECT 1 FROM m WHERE e = :event_id")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_QUERY", "SELECT :event_id, :user_id, :role")),
            (Dialect::Postgres, ("OUTBOX_MEMBERSHIP_QUERY", "SELECT :event_id, :user_id; SELECT 1")),
        ] {
            let refused = names(dialect, &[given]).unwrap_err();
            assert!(
                refused.starts_with(&format!("{}=", given.0)) && refused.contains("not allowed"),
                "{refused}"
            );
        }
        let both = [("OUTBOX_MEMBERSHIP_QUERY", query), ("OUTBOX_MEMBERSHIP_TABLE", "m")];
        assert!(names(Dialect::Postgres, &both).unwrap_err().starts_with("OUTBOX_MEMBERSHIP_QUERY="));
        assert!(names(Dialect::Postgres, &both[..1]).unwrap().has_query());
    }

    #[test]
    fn a_query_is_asked_about_one_person_and_about_many() {
        let query = "SELECT 1 FROM m WHERE e::text = :event_id AND u::text = :user_id -- mine";
        let names =
            names(Dialect::Postgres, &[("OUTBOX_MEMBERSHIP_QUERY", query)]).unwrap().on(Dialect::Postgres);
        assert_eq!(names.fill("EXISTS ({membership_query:})"), format!("EXISTS ({query}\n)"));
        let many =
            "EXISTS (SELECT 1 FROM m WHERE e::text = (listed.one ->> 1) AND u::text = (listed.one ->> 2) \n)";
        assert_eq!(names.fill("EXISTS ({listed_membership_query:})"), many);
    }
}
