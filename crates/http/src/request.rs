//! Request shapes: [`request!`](crate::request!) generates the type, the code that reads it, and its OpenAPI
//! description from one declaration.
//!
//! A field has a name, a type and a [`FieldKind`], which reads and checks the value and describes the allowed values.
//! An error names the field with its path in the request, such as `events[3].recipients[0]`.

mod kinds;

use std::borrow::Cow;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, path::ErrorKind};
use bongsu_kernel::{Code, Id, InvalidField, Reason};
use http::request::Parts;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::Schema;

pub use self::kinds::{
    cursor, event_data, flag, id, id_schema, item_results, limit, list, multiline_text, one_of, text,
    text_id, whole,
};
use crate::answer::{ApiError, invalid};
use crate::fields::{Fields, UrlQuery};

/// Declares request shapes: `body` (JSON, read by [`BodyText::read`](crate::body::BodyText::read)), `query` and `path`
/// (extractors, also for `params(...)` of an operation). Fields are read in the order of their declaration. `as` sets
/// the name in the request if it differs from the name of the Rust field.
///
/// ```ignore
/// request! {
///     /// The description of the body in the OpenAPI document.
///     pub(super) body Body {
///         /// The description of the field in the OpenAPI document.
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
    (@parameters $name:ident $location:ident) => {
        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                $crate::request::parameter_list::<Self>(&utoipa::openapi::path::ParameterIn::$location)
            }
        }

        impl<S: Send + Sync> axum::extract::FromRequestParts<S> for $name {
            type Rejection = $crate::ApiError;

            async fn from_request_parts(
                parts: &mut http::request::Parts,
                _: &S,
            ) -> Result<Self, $crate::ApiError> {
                let location = utoipa::openapi::path::ParameterIn::$location;
                $crate::request::RequestShape::read(&$crate::request::read_parameters(parts, &location).await?)
            }
        }
    };
    ($($(#[doc = $about:literal])* $(#[derive($($derive:ident),*)])? $visibility:vis $location:ident $name:ident {
        $($(#[doc = $doc:literal])* $field:ident $(as $json:literal)?: $type:ty = $kind:expr,)*
    })*) => {$(
        $(#[doc = $about])*
        $(#[derive($($derive),*)])?
        $visibility struct $name {
            $($(#[doc = $doc])* $visibility $field: $type,)*
        }

        impl $crate::request::RequestShape for $name {
            const DESCRIPTION: &'static [&'static str] = &[$($about),*];

            fn read(source: &impl $crate::request::FieldSource) -> Result<Self, $crate::ApiError> {
                Ok(Self {
                    $($field: {
                        // Built once and not for every request.
                        static KIND: std::sync::LazyLock<$crate::request::FieldKind<$type>> =
                            std::sync::LazyLock::new(|| $kind);
                        source.read([$($json,)? stringify!($field)][0], &KIND)?
                    },)*
                })
            }

            fn fields() -> Vec<$crate::request::FieldSchema> {
                vec![$($crate::request::FieldSchema::new::<$type>(
                    [$($json,)? stringify!($field)][0], &[$($doc),*], $kind,
                )),*]
            }
        }

        $crate::request!(@$location $name);
    )*};
}

/// A request shape that [`request!`](crate::request!) declared.
pub trait RequestShape: Sized {
    /// The lines of the shape's description in the OpenAPI document.
    const DESCRIPTION: &'static [&'static str];

    fn read(source: &impl FieldSource) -> Result<Self, ApiError>;

    fn fields() -> Vec<FieldSchema>;
}

/// A value as it was received: JSON in a body, text in a query or a path.
#[derive(Clone, Copy, Debug)]
pub enum RawField<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl<'a> RawField<'a> {
    /// The value as it was written; a JSON string with its quotation marks.
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

/// The part of a request that fields are read from: the members of a body, or parameters.
pub trait FieldSource {
    /// The value of a field; None if the field is missing or `null`.
    fn find(&self, name: &str) -> Option<RawField<'_>>;

    /// The prefix of field names in errors, such as `events[3].`.
    fn path(&self) -> &str {
        ""
    }

    fn read<T>(&self, name: &str, kind: &FieldKind<T>) -> Result<T, ApiError> {
        let is_present = |raw: &RawField<'_>| kind.refuses_empty || !raw.as_str().is_empty();
        let read = match (self.find(name).filter(is_present), &kind.default) {
            (Some(raw), _) => (kind.read)(raw),
            (None, Some(default)) => Ok(default()),
            (None, None) => Err(Reason::Required.into()),
        };
        read.map_err(|FieldError { code, path, reason }| {
            ApiError::new(code, InvalidField::new(format!("{}{name}{path}", self.path()), reason).text())
        })
    }
}

impl FieldSource for Fields<'_> {
    fn find(&self, name: &str) -> Option<RawField<'_>> {
        self.get(name).map(RawField::Json)
    }

    fn path(&self) -> &str {
        &self.path
    }
}

impl FieldSource for UrlQuery {
    fn find(&self, name: &str) -> Option<RawField<'_>> {
        self.get(name).map(RawField::Text)
    }
}

/// Reads the parameters in the query or the path of a request.
pub async fn read_parameters(parts: &mut Parts, location: &ParameterIn) -> Result<UrlQuery, ApiError> {
    if *location != ParameterIn::Path {
        return Ok(UrlQuery::parse(parts.uri.query())?);
    }
    match Path::from_request_parts(parts, &()).await {
        Ok(Path(pairs)) => Ok(UrlQuery(pairs)),
        Err(PathRejection::FailedToDeserializePathParams(error)) => match error.into_kind() {
            ErrorKind::InvalidUtf8InPathParam { key } => Err(invalid(&key, Reason::Utf8)),
            _ => Err(ApiError::unexpected()),
        },
        Err(_) => Err(ApiError::unexpected()),
    }
}

/// Why a value is invalid, and where within the value.
#[derive(Debug)]
pub struct FieldError {
    code: Code,
    path: String,
    reason: Reason,
}

impl FieldError {
    /// An error with another code than COMMON400.
    pub fn new(code: Code, reason: Reason) -> Self {
        Self { code, path: String::new(), reason }
    }
}

impl From<Reason> for FieldError {
    fn from(reason: Reason) -> Self {
        Self::new(Code::Common400, reason)
    }
}

type Read<T> = Box<dyn Fn(RawField<'_>) -> Result<T, FieldError> + Send + Sync>;

/// The kind of a field: how a value is read, and how the OpenAPI document describes it.
pub struct FieldKind<T> {
    read: Read<T>,
    schema: Value,
    /// The value of a field that is missing; None if the field is required.
    default: Option<Box<dyn Fn() -> T + Send + Sync>>,
    /// Whether an empty parameter is an error. For most kinds it counts as missing.
    refuses_empty: bool,
}

impl<T: 'static> FieldKind<T> {
    /// `schema` is the JSON Schema of the values that `read` accepts.
    pub fn new(
        schema: Value,
        read: impl Fn(RawField<'_>) -> Result<T, FieldError> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), schema, default: None, refuses_empty: false }
    }

    /// Converts the value further, with an error for values that the schema does not exclude.
    pub fn then<U: 'static>(
        self,
        read: impl Fn(T) -> Result<U, FieldError> + Send + Sync + 'static,
    ) -> FieldKind<U> {
        FieldKind::new(self.schema, move |raw| read((self.read)(raw)?))
    }

    /// Sets a keyword of the schema.
    pub fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.schema[keyword] = value.into();
        self
    }

    pub fn example(self, example: impl Into<Value>) -> Self {
        self.with("example", example)
    }

    pub fn optional(self) -> FieldKind<Option<T>> {
        let refuses_empty = self.refuses_empty;
        let default: Box<dyn Fn() -> Option<T> + Send + Sync> = Box::new(|| None);
        FieldKind { default: Some(default), refuses_empty, ..self.then(|value| Ok(Some(value))) }
    }

    /// Makes the field optional, with `value` as its default.
    pub fn or(self, value: T) -> Self
    where
        T: Clone + Serialize + Send + Sync,
    {
        let kind = self.with("default", json!(value));
        Self { default: Some(Box::new(move || value.clone())), ..kind }
    }
}

/// A field as the OpenAPI document describes it.
pub struct FieldSchema {
    name: &'static str,
    /// The schema, with the field's description.
    schema: Value,
    is_required: bool,
}

impl FieldSchema {
    pub fn new<T: 'static>(name: &'static str, description: &[&str], kind: FieldKind<T>) -> Self {
        let is_required = kind.default.is_none();
        let description = join_lines(description);
        let kind = if description.is_empty() { kind } else { kind.with("description", description) };
        Self { name, schema: kind.schema, is_required }
    }

    /// The field as a property of a body. There an optional field may be `null`, which counts as missing.
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

    fn parameter(self, location: &ParameterIn) -> Value {
        let Self { name, mut schema, is_required } = self;
        let mut take = |keyword| schema.as_object_mut().and_then(|members| members.remove(keyword));
        let (description, example) = (take("description"), take("example"));
        json!({"name": name, "in": location, "required": is_required, "description": description, "example": example,
            "schema": schema})
    }
}

/// The schema of a body.
pub fn object_schema<R: RequestShape>() -> RefOr<Schema> {
    let fields = R::fields();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    let properties: Value = fields.into_iter().map(FieldSchema::property).collect();
    let mut schema = json!({"type": "object", "required": required, "properties": properties});
    if !R::DESCRIPTION.is_empty() {
        schema["description"] = join_lines(R::DESCRIPTION).into();
    }
    // The default is never used: a test checks the schema of every kind.
    serde_json::from_value(schema).unwrap_or_default()
}

/// The OpenAPI parameters of a query or a path.
pub fn parameter_list<R: RequestShape>(location: &ParameterIn) -> Vec<Parameter> {
    let parameters: Value = R::fields().into_iter().map(|field| field.parameter(location)).collect();
    serde_json::from_value(parameters).unwrap_or_default()
}

fn join_lines(description: &[&str]) -> String {
    description.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
