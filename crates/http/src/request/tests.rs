//! Tests of request shapes: one declaration reads a request, names the wrong field and describes the shape.

use bongsu_kernel::json::Object;
use utoipa::{IntoParams, PartialSchema};

use super::*;
use crate::body::MAX_SMALL_BODY_SIZE;
use crate::openapi::ID_PATTERN;

request! {
    /// Something that happened.
    #[derive(Debug, PartialEq)]
    body Sample {
        room_id as "roomId": Id = id(),
        actor: Option<Id> = id().optional(),
        /// For people,
        /// in a line.
        title: Option<String> = text(4).optional(),
        notes: Option<String> = multiline_text(4).optional(),
        percent: u64 = whole(1, 100).or(50),
        targets: Option<Vec<Id>> = list(id(), 1..=2).optional(),
        data: Option<Object> = event_data("at").optional(),
    }

    body State {
        state: usize = one_of(&["ON", "OFF"], |word| ["ON", "OFF"].iter().position(|known| *known == word)),
    }

    body Samples {
        samples: Vec<Result<Sample, ApiError>> = item_results("samples", 2),
    }

    #[derive(Debug, PartialEq)]
    query SearchQuery {
        /// The maximum number of items.
        limit: usize = limit(500, 20),
        after: Option<Id> = text_id("7").optional(),
        unread: bool = flag().or(false),
        since: Id = text_id("1"),
    }
}

fn sample(body: &str) -> Result<Sample, String> {
    Sample::read(&Fields::parse_body(body).unwrap()).map_err(|error| error.text.en.into_owned())
}

fn refused(members: &str) -> String {
    sample(&format!(r#"{{"roomId":1,{members}}}"#)).unwrap_err()
}

#[test]
fn a_missing_field_is_refused_or_gets_its_default() {
    assert_eq!(sample("{}").unwrap_err(), "roomId: required");
    assert_eq!(sample(r#"{"roomId":null}"#).unwrap_err(), "roomId: required");
    let read = sample(r#"{"roomId":"a","percent":null,"title":null,"unknown":1}"#).unwrap();
    assert_eq!((read.room_id.as_str(), read.percent, read.title, read.targets), ("a", 50, None, None));
}

#[test]
fn an_error_names_its_field_and_what_is_allowed() {
    assert!(sample(r#"{"roomId":"a b"}"#).unwrap_err().starts_with("roomId: must have only"));
    for (members, error) in [
        (r#""title":" ""#, "title: must not be empty"),
        (r#""title":"12345""#, "title: at most 4 characters"),
        (r#""title":"a\nb""#, "title: must not have control characters"),
        (r#""title":1"#, "title: must be text"),
        (r#""notes":"a\u0000""#, "notes: must not have control characters"),
        (r#""targets":{}"#, "targets: must be a list"),
        (r#""targets":[]"#, "targets: must not be empty"),
        (r#""targets":[1,2,3]"#, "targets: at most 2 items"),
        (r#""targets":[1,[]]"#, "targets[1]: must be text, or an integer within ±(2^53−1)"),
        (r#""data":[]"#, "data: must be an object"),
    ] {
        assert_eq!(refused(members), error);
    }
    for number in ["0", "101", "-1", "1.0", "1e1", "\"7\"", "true", "[]"] {
        let error = refused(&format!(r#""percent":{number}"#));
        assert_eq!(error, "percent: must be a whole number from 1 to 100");
    }
    let state = |body| State::read(&Fields::parse_body(body).unwrap()).map_err(|error| error.text.en);
    assert_eq!(state(r#"{"state":"OFF"}"#).unwrap().state, 1);
    for other in [r#"{"state":"on"}"#, r#"{"state":""}"#, r#"{"state":1}"#, r#"{"state":{}}"#] {
        assert_eq!(state(other).err().unwrap(), "state: must be one of ON, OFF", "{other}");
    }
    assert_eq!(sample(r#"{"roomId":1,"notes":"a\n\tb","percent":100}"#).unwrap().percent, 100);
    let large = format!(r#"{{"roomId":1,"data":{{"x":"{}"}}}}"#, "x".repeat(MAX_SMALL_BODY_SIZE));
    let error = Sample::read(&Fields::parse_body(&large).unwrap()).unwrap_err();
    assert_eq!((error.code, &*error.text.en), (Code::Common413, "data: at most 64 KiB"));
}

#[test]
fn an_invalid_item_does_not_affect_the_others_and_is_named_with_its_index() {
    let body = r#"{"samples":[{"roomId":1,"targets":[2,"a b"]},{"roomId":1}]}"#;
    let samples = Samples::read(&Fields::parse_body(body).unwrap()).unwrap().samples;
    let error = samples[0].as_ref().unwrap_err();
    assert!(error.text.en.starts_with("samples[0].targets[1]: "), "{}", error.text.en);
    assert!(samples[1].is_ok());
    let body = r#"{"samples":[{},{},{}]}"#;
    assert!(Samples::read(&Fields::parse_body(body).unwrap()).is_err());
}

#[test]
fn an_empty_parameter_counts_as_missing_except_for_limit() {
    let search = |query| {
        SearchQuery::read(&UrlQuery::parse(Some(query)).unwrap()).map_err(|error| error.text.en.into_owned())
    };
    let id = |id| Id::new(id).unwrap();
    let all = SearchQuery { limit: 500, after: Some(id("7")), unread: true, since: id("1") };
    assert_eq!(search("limit=500&after=7&unread=true&since=1"), Ok(all));
    let defaults = SearchQuery { limit: 20, after: None, unread: false, since: id("1") };
    assert_eq!(search("after=&unread=&since=1"), Ok(defaults));
    assert_eq!(search("since=").unwrap_err(), "since: required");
    assert_eq!(search("since=1&limit=").unwrap_err(), "limit: must be a whole number from 1 to 500");
    assert_eq!(search("since=1&unread=1").unwrap_err(), "unread: must be true or false");
}

#[test]
fn the_openapi_schema_describes_what_is_allowed() {
    let reference = json!({"$ref": "#/components/schemas/Id"});
    let text = |pattern: &str| json!({"type": ["string", "null"], "minLength": 1, "maxLength": 4, "pattern": pattern});
    let mut title = text(r"^[^\x00-\x1f\x7f-\x9f]+$");
    title["description"] = json!("For people,\nin a line.");
    assert_eq!(
        json!(Sample::schema()),
        json!({
            "type": "object",
            "description": "Something that happened.",
            "required": ["roomId"],
            "properties": {
                "roomId": reference,
                "actor": {"oneOf": [reference, {"type": "null"}]},
                "title": title,
                "notes": text(r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+$"),
                "percent": {"type": ["integer", "null"], "minimum": 1, "maximum": 100, "default": 50},
                "targets": {"type": ["array", "null"], "items": reference, "minItems": 1, "maxItems": 2},
                "data": {"type": ["object", "null"], "additionalProperties": true},
            },
        })
    );
    let state = json!({"type": "string", "enum": ["ON", "OFF"]});
    assert_eq!(json!(State::schema())["properties"]["state"], state);
    let samples = json!({"type": "array", "items": {"$ref": "#/components/schemas/Sample"}, "maxItems": 2});
    assert_eq!(json!(Samples::schema())["properties"]["samples"], samples);
    let id = json!({"type": "string", "pattern": ID_PATTERN});
    assert_eq!(
        json!(SearchQuery::into_params(|| None)),
        json!([
            {"name": "limit", "in": "query", "required": false, "description": "The maximum number of items.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 20}},
            {"name": "after", "in": "query", "required": false, "schema": id, "example": "7"},
            {"name": "unread", "in": "query", "required": false,
                "schema": {"type": "boolean", "default": false}},
            {"name": "since", "in": "query", "required": true, "schema": id, "example": "1"},
        ])
    );
}
