//! Requests, each declared once: [`request!`](crate::request!) makes the type, what reads it, and what the OpenAPI document
//! says of it out of the same lines.
//!
//! A field is a name, a type and a [`Kind`], which reads a value, says why it refuses one, and describes what it takes. An
//! error names its field with its place in the request, such as `events[3].recipients[0]`.

mod kinds;

use std::borrow::Cow;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, path::ErrorKind};
use bongsu_kernel::{Code, Id, Invalid, Reason};
use http::request::Parts;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::Schema;

pub use self::kinds::{
    cursor, each, event_data, flag, id, id_schema, limit, list, prose, text, text_id, whole, word,
};
use crate::answer::{ApiError, invalid};
use crate::fields::{Fields, Query};

/// Declares requests: `body` (JSON, read by [`Utf8::read`](crate::body::Utf8::read)), `query` and `path` (extractors, for
/// `params(...)` of an operation). Fields are read in the order in which they stand. `as` gives the name in the request,
/// where it is another than the field's.
///
/// ```ignore
/// request! {
///     /// What the document says of the body.
///     pub(super) body Body {
///         /// What the document says of the field.
///         room_id as "roomId": Id = id(),
///         percent: u64 = whole(1, 100).or(50),
///     }
/// }
/// ```
#[macro_export]
macro_rules! request {
    (@body $name:ident) => {
        impl utoipa::ToSchema for $name {}

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::request::object_schema::<Self>()
            }
        }
    };
    (@query $name:ident) => { $crate::request!(@parameters $name Query); };
    (@path $name:ident) => { $crate::request!(@parameters $name Path); };
    (@parameters $name:ident $place:ident) => {
        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                $crate::request::described::<Self>(&utoipa::openapi::path::ParameterIn::$place)
            }
        }

        impl<S: Send + Sync> axum::extract::FromRequestParts<S> for $name {
            type Rejection = $crate::ApiError;

            async fn from_request_parts(
                parts: &mut http::request::Parts,
                _: &S,
            ) -> Result<Self, $crate::ApiError> {
                let place = utoipa::openapi::path::ParameterIn::$place;
                $crate::request::Request::read(&$crate::request::parameters(parts, &place).await?)
            }
        }
    };
    ($($(#[doc = $about:literal])* $(#[derive($($derive:ident),*)])? $visibility:vis $place:ident $name:ident {
        $($(#[doc = $doc:literal])* $field:ident $(as $json:literal)?: $type:ty = $kind:expr,)*
    })*) => {$(
        $(#[doc = $about])*
        $(#[derive($($derive),*)])?
        $visibility struct $name {
            $($(#[doc = $doc])* $visibility $field: $type,)*
        }

        impl $crate::request::Request for $name {
            const ABOUT: &'static [&'static str] = &[$($about),*];

            fn read(source: &impl $crate::request::Source) -> Result<Self, $crate::ApiError> {
                Ok(Self {
                    $($field: {
                        // Built once: a request only reads.
                        static KIND: std::sync::LazyLock<$crate::request::Kind<$type>> =
                            std::sync::LazyLock::new(|| $kind);
                        source.read([$($json,)? stringify!($field)][0], &KIND)?
                    },)*
                })
            }

            fn fields() -> Vec<$crate::request::Field> {
                vec![$($crate::request::Field::new::<$type>(
                    [$($json,)? stringify!($field)][0], &[$($doc),*], $kind,
                )),*]
            }
        }

        $crate::request!(@$place $name);
    )*};
}

/// A request shape that [`request!`](crate::request!) declared.
pub trait Request: Sized {
    /// The lines of its description in the OpenAPI document.
    const ABOUT: &'static [&'static str];

    fn read(source: &impl Source) -> Result<Self, ApiError>;

    fn fields() -> Vec<Field>;
}

/// A value as it came: JSON in a body, text in a query or a path.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl<'a> Given<'a> {
    /// As it was written; of text in JSON with its quotation marks.
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Json(raw) => raw.get(),
            Self::Text(text) => text,
        }
    }

    pub fn text(self) -> Result<Cow<'a, str>, Reason> {
        match self {
            Self::Json(raw) => serde_json::from_str(raw.get()).map(Cow::Owned).map_err(|_| Reason::NotText),
            Self::Text(text) => Ok(text.into()),
        }
    }

    pub fn id(self) -> Result<Id, Reason> {
        match self {
            Self::Json(raw) => Id::from_json(raw.get()),
            Self::Text(text) => Id::new(text),
        }
    }
}

/// Where the fields of a request are read from.
pub trait Source {
    /// None when it is not given. `null` is as good as missing.
    fn find(&self, name: &str) -> Option<Given<'_>>;

    /// The prefix of field names in errors, such as `events[3].`.
    fn path(&self) -> &str {
        ""
    }

    fn read<T>(&self, name: &str, kind: &Kind<T>) -> Result<T, ApiError> {
        let is_given = |given: &Given<'_>| kind.refuses_empty || !given.as_str().is_empty();
        let read = match (self.find(name).filter(is_given), &kind.missing) {
            (Some(given), _) => (kind.read)(given),
            (None, Some(missing)) => Ok(missing()),
            (None, None) => Err(Reason::Required.into()),
        };
        read.map_err(|Refusal { code, place, reason }| {
            ApiError::new(code, Invalid::new(format!("{}{name}{place}", self.path()), reason).text())
        })
    }
}

impl Source for Fields<'_> {
    fn find(&self, name: &str) -> Option<Given<'_>> {
        self.get(name).map(Given::Json)
    }

    fn path(&self) -> &str {
        &self.path
    }
}

impl Source for Query {
    fn find(&self, name: &str) -> Option<Given<'_>> {
        self.get(name).map(Given::Text)
    }
}

/// The parameters of a request in its query or its path.
pub async fn parameters(parts: &mut Parts, place: &ParameterIn) -> Result<Query, ApiError> {
    if *place != ParameterIn::Path {
        return Ok(Query::of(parts.uri.query())?);
    }
    match Path::from_request_parts(parts, &()).await {
        Ok(Path(pairs)) => Ok(Query(pairs)),
        Err(PathRejection::FailedToDeserializePathParams(error)) => match error.into_kind() {
            ErrorKind::InvalidUtf8InPathParam { key } => Err(invalid(&key, Reason::Utf8)),
            _ => Err(ApiError::unexpected()),
        },
        Err(_) => Err(ApiError::unexpected()),
    }
}

/// Why a value is refused, and where in it.
#[derive(Debug)]
pub struct Refusal {
    code: Code,
    place: String,
    reason: Reason,
}

impl Refusal {
    /// With another code than the usual one.
    pub fn new(code: Code, reason: Reason) -> Self {
        Self { code, place: String::new(), reason }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::new(Code::Common400, reason)
    }
}

type Read<T> = Box<dyn Fn(Given<'_>) -> Result<T, Refusal> + Send + Sync>;

/// What a field takes: how a value is read, and how the document describes it.
pub struct Kind<T> {
    read: Read<T>,
    schema: Value,
    /// What a field stands for that is not given; None when it is required.
    missing: Option<Box<dyn Fn() -> T + Send + Sync>>,
    /// An empty parameter is usually as good as missing.
    refuses_empty: bool,
}

impl<T: 'static> Kind<T> {
    /// `schema` is what JSON Schema says of the same.
    pub fn new(
        schema: Value,
        read: impl Fn(Given<'_>) -> Result<T, Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), schema, missing: None, refuses_empty: false }
    }

    /// A value that is more than its JSON type says.
    pub fn then<U: 'static>(self, read: impl Fn(T) -> Result<U, Refusal> + Send + Sync + 'static) -> Kind<U> {
        Kind::new(self.schema, move |given| read((self.read)(given)?))
    }

    /// Says something more of it in the document.
    pub fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.schema[keyword] = value.into();
        self
    }

    pub fn example(self, example: impl Into<Value>) -> Self {
        self.with("example", example)
    }

    pub fn optional(self) -> Kind<Option<T>> {
        let refuses_empty = self.refuses_empty;
        let missing: Box<dyn Fn() -> Option<T> + Send + Sync> = Box::new(|| None);
        Kind { missing: Some(missing), refuses_empty, ..self.then(|value| Ok(Some(value))) }
    }

    /// A field that stands for `value` when it is not given.
    pub fn or(self, value: T) -> Self
    where
        T: Clone + Serialize + Send + Sync,
    {
        let kind = self.with("default", json!(value));
        Self { missing: Some(Box::new(move || value.clone())), ..kind }
    }
}

/// A field, as the document describes it.
pub struct Field {
    name: &'static str,
    /// With its description.
    schema: Value,
    is_required: bool,
}

impl Field {
    pub fn new<T: 'static>(name: &'static str, about: &[&str], kind: Kind<T>) -> Self {
        let is_required = kind.missing.is_none();
        let about = lines(about);
        let kind = if about.is_empty() { kind } else { kind.with("description", about) };
        Self { name, schema: kind.schema, is_required }
    }

    /// In a body `null` is as good as missing.
    fn property(self) -> (String, Value) {
        let Self { name, mut schema, is_required } = self;
        if !is_required {
            match schema.as_object_mut().and_then(|members| members.remove("$ref")) {
                Some(reference) => schema["oneOf"] = json!([{"$ref": reference}, {"type": "null"}]),
                None => schema["type"] = json!([schema["type"], "null"]),
            }
        }
        (name.to_owned(), schema)
    }

    fn parameter(self, place: &ParameterIn) -> Value {
        let Self { name, mut schema, is_required } = self;
        let mut take = |keyword| schema.as_object_mut().and_then(|members| members.remove(keyword));
        let (about, example) = (take("description"), take("example"));
        json!({"name": name, "in": place, "required": is_required, "description": about, "example": example,
            "schema": schema})
    }
}

/// The schema of a body.
pub fn object_schema<R: Request>() -> RefOr<Schema> {
    let fields = R::fields();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    let properties: Value = fields.into_iter().map(Field::property).collect();
    let mut schema = json!({"type": "object", "required": required, "properties": properties});
    if !R::ABOUT.is_empty() {
        schema["description"] = lines(R::ABOUT).into();
    }
    // A test holds what comes of every kind against what it should be.
    serde_json::from_value(schema).unwrap_or_default()
}

/// The parameters of a query or a path.
pub fn described<R: Request>(place: &ParameterIn) -> Vec<Parameter> {
    let parameters: Value = R::fields().into_iter().map(|field| field.parameter(place)).collect();
    serde_json::from_value(parameters).unwrap_or_default()
}

fn lines(about: &[&str]) -> String {
    about.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::json::Object;
    use utoipa::{IntoParams, PartialSchema};

    use super::*;
    use crate::body::SMALL_BODY;
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
            notes: Option<String> = prose(4).optional(),
            percent: u64 = whole(1, 100).or(50),
            targets: Option<Vec<Id>> = list(id(), 1..=2).optional(),
            data: Option<Object> = event_data("at").optional(),
        }

        body State {
            state: usize = word(&["ON", "OFF"], |word| ["ON", "OFF"].iter().position(|known| *known == word)),
        }

        body Samples {
            samples: Vec<Result<Sample, ApiError>> = each("samples", 2),
        }

        #[derive(Debug, PartialEq)]
        query Sought {
            /// How many at most.
            limit: usize = limit(500, 20),
            after: Option<Id> = text_id("7").optional(),
            unread: bool = flag().or(false),
            since: Id = text_id("1"),
        }
    }

    fn sample(body: &str) -> Result<Sample, String> {
        Sample::read(&Fields::of_body(body).unwrap()).map_err(|error| error.text.en.into_owned())
    }

    fn refused(members: &str) -> String {
        sample(&format!(r#"{{"roomId":1,{members}}}"#)).unwrap_err()
    }

    #[test]
    fn a_missing_field_is_refused_or_stands_for_its_default() {
        assert_eq!(sample("{}").unwrap_err(), "roomId: required");
        assert_eq!(sample(r#"{"roomId":null}"#).unwrap_err(), "roomId: required");
        let read = sample(r#"{"roomId":"a","percent":null,"title":null,"unknown":1}"#).unwrap();
        assert_eq!((read.room_id.as_str(), read.percent, read.title, read.targets), ("a", 50, None, None));
    }

    #[test]
    fn an_error_names_its_field_and_what_is_allowed() {
        assert!(sample(r#"{"roomId":"a b"}"#).unwrap_err().starts_with("roomId: an id has only"));
        for (members, error) in [
            (r#""title":" ""#, "title: must not be empty"),
            (r#""title":"12345""#, "title: at most 4 characters"),
            (r#""title":"a\nb""#, "title: must not have control characters"),
            (r#""title":1"#, "title: must be text"),
            (r#""notes":"a\u0000""#, "notes: must not have control characters"),
            (r#""targets":{}"#, "targets: must be a list"),
            (r#""targets":[]"#, "targets: must not be empty"),
            (r#""targets":[1,2,3]"#, "targets: at most 2 items"),
            (r#""targets":[1,[]]"#, "targets[1]: an id is text, or an integer within ±(2^53−1)"),
            (r#""data":[]"#, "data: must be an object"),
        ] {
            assert_eq!(refused(members), error);
        }
        for number in ["0", "101", "-1", "1.0", "1e1", "\"7\"", "true", "[]"] {
            assert_eq!(
                refused(&format!(r#""percent":{number}"#)),
                "percent: must be a whole number from 1 to 100"
            );
        }
        let state = |body| State::read(&Fields::of_body(body).unwrap()).map_err(|error| error.text.en);
        assert_eq!(state(r#"{"state":"OFF"}"#).unwrap().state, 1);
        for other in [r#"{"state":"on"}"#, r#"{"state":""}"#, r#"{"state":1}"#, r#"{"state":{}}"#] {
            assert_eq!(state(other).err().unwrap(), "state: must be one of ON, OFF", "{other}");
        }
        assert_eq!(sample(r#"{"roomId":1,"notes":"a\n\tb","percent":100}"#).unwrap().percent, 100);
        let large = format!(r#"{{"roomId":1,"data":{{"x":"{}"}}}}"#, "x".repeat(SMALL_BODY));
        let error = Sample::read(&Fields::of_body(&large).unwrap()).unwrap_err();
        assert_eq!((error.code, &*error.text.en), (Code::Common413, "data: at most 64 KiB"));
    }

    #[test]
    fn an_item_of_a_list_is_refused_alone_and_named_with_its_place() {
        let body = r#"{"samples":[{"roomId":1,"targets":[2,"a b"]},{"roomId":1}]}"#;
        let samples = Samples::read(&Fields::of_body(body).unwrap()).unwrap().samples;
        let error = samples[0].as_ref().unwrap_err();
        assert!(error.text.en.starts_with("samples[0].targets[1]: "), "{}", error.text.en);
        assert!(samples[1].is_ok());
        let body = r#"{"samples":[{},{},{}]}"#;
        assert!(Samples::read(&Fields::of_body(body).unwrap()).is_err());
    }

    #[test]
    fn an_empty_parameter_is_missing_unless_it_is_a_number_of_items() {
        let sought = |query| {
            Sought::read(&Query::of(Some(query)).unwrap()).map_err(|error| error.text.en.into_owned())
        };
        let id = |id| Id::new(id).unwrap();
        let all = Sought { limit: 500, after: Some(id("7")), unread: true, since: id("1") };
        assert_eq!(sought("limit=500&after=7&unread=true&since=1"), Ok(all));
        let usual = Sought { limit: 20, after: None, unread: false, since: id("1") };
        assert_eq!(sought("after=&unread=&since=1"), Ok(usual));
        assert_eq!(sought("since=").unwrap_err(), "since: required");
        assert_eq!(sought("since=1&limit=").unwrap_err(), "limit: must be a whole number from 1 to 500");
        assert_eq!(sought("since=1&unread=1").unwrap_err(), "unread: must be true or false");
    }

    #[test]
    fn the_document_says_what_is_allowed() {
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
        let samples =
            json!({"type": "array", "items": {"$ref": "#/components/schemas/Sample"}, "maxItems": 2});
        assert_eq!(json!(Samples::schema())["properties"]["samples"], samples);
        let id = json!({"type": "string", "pattern": ID_PATTERN});
        assert_eq!(
            json!(Sought::into_params(|| None)),
            json!([
                {"name": "limit", "in": "query", "required": false, "description": "How many at most.",
                    "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 20}},
                {"name": "after", "in": "query", "required": false, "schema": id, "example": "7"},
                {"name": "unread", "in": "query", "required": false,
                    "schema": {"type": "boolean", "default": false}},
                {"name": "since", "in": "query", "required": true, "schema": id, "example": "1"},
            ])
        );
    }
}
