//! The contract on every database: changes are durable and atomic, and values are read back unchanged.

use bongsu_sql::{Error, Query, Transaction, Value};

use crate::database::{COUNT, Database, GET, INCREMENT, PUT, counters, item_ids, put};

pub(crate) async fn acknowledged_changes_are_visible_to_all<D: Database>(database: D) {
    let (one, other) = (database.records().await, database.records().await);
    for n in 0..20 {
        put(&one, &format!("item{n:02}")).await.unwrap();
        assert_eq!(item_ids(&other).await.len(), n + 1);
        assert_eq!(item_ids(&one).await.len(), n + 1);
    }
    assert_eq!(other.outage(), None);
    assert!(other.warnings().is_empty(), "{:?}", other.warnings());
}

/// The error type of a change.
#[derive(Debug, PartialEq)]
enum ChangeError {
    GivenUp,
    Sql(String),
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> Self {
        Self::Sql(error.to_string())
    }
}

pub(crate) async fn a_change_that_fails_changes_nothing<D: Database>(database: D) {
    let records = database.records().await;
    async fn change(_: &(), tx: &mut Transaction<'_>) -> Result<(), ChangeError> {
        tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
        tx.run(&PUT, &[("id", "a".into()), ("number", 1_i64.into()), ("text", "".into())]).await?;
        Err(ChangeError::GivenUp)
    }
    for _ in 0..3 {
        assert_eq!(records.write((), change).await, Err(ChangeError::GivenUp));
    }
    assert_eq!(counters(&records).await, [0, 0]);
    assert!(item_ids(&records).await.is_empty());
    put(&records, "a").await.unwrap();
}

pub(crate) async fn a_change_that_goes_on_after_a_failed_query_changes_nothing<D: Database>(database: D) {
    let records = database.records().await;
    put(&records, "a").await.unwrap();
    async fn change(_: &(), tx: &mut Transaction<'_>) -> Result<(), Error> {
        tx.run(&INCREMENT, &[("id", 1_i64.into())]).await?;
        // An item with this id exists already.
        let duplicate = [("id", "a".into()), ("number", 1_i64.into()), ("text", "".into())];
        let _ = tx.run(&PUT, &duplicate).await;
        Ok(())
    }
    let done = records.write((), change).await;
    assert!(matches!(done, Err(Error::Failed(_))), "{done:?}");
    assert_eq!(counters(&records).await, [0, 0]);
}

pub(crate) async fn every_kind_of_value_comes_back<D: Database>(database: D) {
    let records = database.records().await;
    let long = "가".repeat(100_000);
    let values: [(Option<i64>, Option<&str>); 9] = [
        (None, None),
        (Some(0), Some("")),
        (Some(i64::MAX), Some("it's \"quoted\" \\ and ? $1 :name `so`; -- no")),
        (Some(i64::MIN), Some("🔥 봉수 \u{10FFFF}")),
        (Some(-1), Some(" spaces at both ends ")),
        (Some(1), Some("line\nline\r\n\ttab")),
        (Some(2), Some("null")),
        (Some(3), Some("{\"json\": [1, null]}")),
        (Some(4), Some(&long)),
    ];
    for (index, (number, text)) in values.iter().enumerate() {
        let text = Value::Text(text.map(str::to_owned));
        let arguments = [("id", format!("v{index}").into()), ("number", (*number).into()), ("text", text)];
        let written = records.write(arguments, async |arguments: &[_; 3], tx: &mut Transaction<'_>| {
            tx.run(&PUT, arguments).await
        });
        assert_eq!(written.await.unwrap_or_else(|error: Error| panic!("{error}")), 1);
    }
    for (index, (number, text)) in values.into_iter().enumerate() {
        let row = records
            .read([("id", format!("v{index}").into())], async |id: &[_; 1], tx: &mut Transaction<'_>| {
                tx.row(&GET, id).await
            })
            .await;
        let row = row.unwrap_or_else(|error: Error| panic!("{error}")).unwrap();
        assert_eq!(row.id(0).unwrap().as_str(), format!("v{index}"));
        assert_eq!((row.maybe_int(1).unwrap(), row.maybe_text(2).unwrap()), (number, text), "{index}");
    }
}

pub(crate) async fn texts_that_differ_by_case_only_differ<D: Database>(database: D) {
    let records = database.records().await;
    for id in ["a", "A", "b", "B", "a:1", "A:1"] {
        put(&records, id).await.unwrap();
    }
    assert!(put(&records, "a").await.is_err());
    assert_eq!(item_ids(&records).await, ["A", "A:1", "B", "a", "a:1", "b"], "in the order of their bytes");
}

pub(crate) async fn sums_and_counts_are_numbers<D: Database>(database: D) {
    static SUMS: Query = Query::new(
        "sums",
        ["SELECT sum(n), count(*), max(n), sum(n) > 1, sum(n - 30000), 1, (SELECT sum(n) FROM test_counters WHERE id = 9)
          FROM test_counters"; 3],
    );
    let records = database.records().await;
    for id in [1_i64, 1, 1, 2] {
        let done = records.write(id, async |id: &i64, tx: &mut Transaction<'_>| {
            tx.run(&INCREMENT, &[("id", (*id).into())]).await
        });
        assert_eq!(done.await.unwrap_or_else(|error: Error| panic!("{error}")), 1);
    }
    let rows = records.read((), async |(): &(), tx: &mut Transaction<'_>| tx.rows(&SUMS, &[]).await).await;
    let rows = rows.unwrap_or_else(|error: Error| panic!("{error}"));
    let numbers: Vec<_> = (0..7).map(|at| rows[0].maybe_int(at).unwrap()).collect();
    assert_eq!(numbers, [Some(4), Some(2), Some(3), Some(1), Some(-59_996), Some(1), None]);
    assert_eq!(rows[0].maybe_text(6).unwrap(), None, "a NULL can be read as any type");
}

pub(crate) async fn values_that_are_neither_integer_nor_text_are_refused<D: Database>(database: D) {
    static HALF: Query = Query::new("half", ["SELECT 0.5", "SELECT 0.5::float8", "SELECT 0.5E0"]);
    static HALF_OF_A_SUM: Query =
        Query::new("half_of_a_sum", ["SELECT 0.5", "SELECT 0.5::numeric", "SELECT 0.5"]);
    let records = database.records().await;
    for query in [&HALF, &HALF_OF_A_SUM] {
        let read = records
            .read(query, async |query: &&'static Query, tx: &mut Transaction<'_>| tx.rows(query, &[]).await)
            .await;
        let Err(Error::Failed(why)) = read else { panic!("{read:?}") };
        assert!(why.contains("neither a whole number nor text"), "{why}");
    }
    assert_eq!(item_ids(&records).await.len(), 0, "the connection still works");
}

pub(crate) async fn a_missing_argument_is_named<D: Database>(database: D) {
    let records = database.records().await;
    let done = records.write((), async |(): &(), tx: &mut Transaction<'_>| tx.run(&PUT, &[]).await).await;
    assert!(matches!(&done, Err(Error::Failed(why)) if why == "put needs id"), "{done:?}");
    let counted = records.read((), async |(): &(), tx: &mut Transaction<'_>| tx.row(&COUNT, &[]).await).await;
    assert_eq!(counted.unwrap_or_else(|error: Error| panic!("{error}")).unwrap().count(0).unwrap(), 0);
}

/// Parts insert and read many rows by one statement with one JSON list. On MariaDB a column of that list has the
/// character set of the database unless the statement names one, and characters that the set lacks silently become
/// question marks.
pub(crate) async fn many_rows_go_in_as_one_list<D: Database>(database: D) {
    static PUT_ALL: Query = Query::new(
        "put_all",
        [
            "INSERT INTO test_items (id, number, text)
             SELECT value ->> 'id', value ->> 'number', value ->> 'text' FROM json_each(:rows)",
            "INSERT INTO test_items (id, number, text)
             SELECT id, number, text FROM json_to_recordset(:rows::json) AS listed (id text, number bigint, text text)",
            "INSERT INTO test_items (id, number, text)
             SELECT id, number, text FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                 id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', number BIGINT PATH '$.number',
                 text LONGTEXT CHARACTER SET utf8mb4 PATH '$.text')) AS listed",
        ],
    );
    static GET_ALL: Query = Query::new(
        "get_all",
        [
            "SELECT id, number, text FROM test_items WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id",
            "SELECT id, number, text FROM test_items
             WHERE id IN (SELECT json_array_elements_text(:ids::json)) ORDER BY id",
            "SELECT id, number, text FROM test_items
             WHERE id IN (SELECT listed.id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (
                 id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed) ORDER BY id",
        ],
    );
    let records = database.records().await;
    let rows = serde_json::json!([
        {"id": "A", "number": 1, "text": "it's \"quoted\" \\ 🔥 봉수 \n"},
        {"id": "a", "number": i64::MAX, "text": ""},
        {"id": "b", "number": null, "text": null},
        {"id": "c", "number": i64::MIN, "text": "null"},
    ]);
    let put = records.write(rows.to_string(), async |rows: &String, tx: &mut Transaction<'_>| {
        tx.run(&PUT_ALL, &[("rows", rows.as_str().into())]).await
    });
    assert_eq!(put.await.unwrap_or_else(|error: Error| panic!("{error}")), 4);
    let got = records.read((), async |(): &(), tx: &mut Transaction<'_>| {
        tx.rows(&GET_ALL, &[("ids", r#"["a", "c", "A", "b", "B", "nobody"]"#.into())]).await
    });
    let got = got.await.unwrap_or_else(|error: Error| panic!("{error}"));
    let got: Vec<_> = got
        .iter()
        .map(|row| {
            let (number, text) = (row.maybe_int(1).unwrap(), row.maybe_text(2).unwrap());
            serde_json::json!({"id": row.text(0).unwrap(), "number": number, "text": text})
        })
        .collect();
    assert_eq!(serde_json::Value::from(got), rows);
}
