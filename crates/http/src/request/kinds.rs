//! The kinds of fields that are common to the requests of several parts.

use std::ops::RangeInclusive;

use bongsu_kernel::json::Object;
use bongsu_kernel::{Code, Id, Reason};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{FieldError, FieldKind, RawField, RequestShape};
use crate::ApiError;
use crate::body::MAX_SMALL_BODY_SIZE;
use crate::fields::{self, Fields};
use crate::openapi::ID_PATTERN;

pub fn id() -> FieldKind<Id> {
    FieldKind::new(id_schema(), |raw| Ok(raw.id()?))
}

pub fn id_schema() -> Value {
    json!({"$ref": "#/components/schemas/Id"})
}

/// An id in a query or a path, where every value is text.
pub fn text_id(example: &str) -> FieldKind<Id> {
    FieldKind::new(json!({"type": "string", "pattern": ID_PATTERN, "example": example}), |raw| Ok(raw.id()?))
}

/// Text without control characters.
pub fn text(max: usize) -> FieldKind<String> {
    let pattern = r"^[^\x00-\x1f\x7f-\x9f]+$";
    let schema = json!({"type": "string", "minLength": 1, "maxLength": max, "pattern": pattern});
    FieldKind::new(schema, move |raw| Ok(fields::check_text(raw.text()?, max, char::is_control)?))
}

/// Text of several lines: line breaks and tabs are the only control characters allowed.
pub fn multiline_text(max: usize) -> FieldKind<String> {
    let is_forbidden = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let kind =
        FieldKind::new(text(max).schema, move |raw| Ok(fields::check_text(raw.text()?, max, is_forbidden)?));
    kind.with("pattern", r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+$")
}

pub fn flag() -> FieldKind<bool> {
    FieldKind::new(json!({"type": "boolean"}), |raw| Ok(fields::parse_flag(raw.as_str())?))
}

/// A whole number from `min` to `max`.
pub fn whole<T: TryFrom<u64> + 'static>(min: u64, max: u64) -> FieldKind<T> {
    FieldKind::new(json!({"type": "integer", "minimum": min, "maximum": max}), move |raw| {
        let text = raw.as_str();
        let number =
            text.parse().ok().filter(|number| (min..=max).contains(number) && !text.starts_with('+'));
        Ok(number.and_then(|number| number.try_into().ok()).ok_or(Reason::Integer { min, max })?)
    })
}

/// The maximum number of items on a page.
pub fn limit<T: TryFrom<u64> + Clone + Serialize + Send + Sync + 'static>(
    max: u64,
    default: T,
) -> FieldKind<T> {
    FieldKind { refuses_empty: true, ..whole(1, max).or(default) }
}

/// The position of a page in a list whose items are numbered from 1. Opaque text for clients.
pub fn cursor() -> FieldKind<u64> {
    FieldKind { schema: json!({"type": "string"}), ..whole(1, i64::MAX as u64) }
}

/// One of the words in `known`.
pub fn one_of<T: 'static>(known: &'static [&'static str], parse: fn(&str) -> Option<T>) -> FieldKind<T> {
    FieldKind::new(json!({"type": "string", "enum": known}), move |raw| {
        Ok(raw.text().ok().and_then(|value| parse(&value)).ok_or(Reason::OneOf(known))?)
    })
}

/// The data object of an event, without its member `except`. The limit is that of a small body even within a large one,
/// because ring buffers and pages hold whole events.
pub fn event_data(except: &'static str) -> FieldKind<Object> {
    FieldKind::new(json!({"type": "object", "additionalProperties": true}), move |raw| {
        let RawField::Json(json) = raw else { return Err(Reason::NotAnObject.into()) };
        let object = Object::parse(json, except)?;
        if object.as_str().len() > MAX_SMALL_BODY_SIZE {
            return Err(FieldError::new(Code::Common413, Reason::TooManyBytes(MAX_SMALL_BODY_SIZE)));
        }
        Ok(object)
    })
}

pub fn list<T: 'static>(item: FieldKind<T>, count: RangeInclusive<usize>) -> FieldKind<Vec<T>> {
    let (min, max) = count.into_inner();
    let schema = json!({"type": "array", "items": item.schema, "minItems": min, "maxItems": max});
    FieldKind::new(schema, move |raw| {
        let items = fields::list(raw.as_str(), max)?;
        if items.len() < min {
            return Err(Reason::Empty.into());
        }
        let read = |(index, raw): (usize, &&RawValue)| {
            (item.read)(RawField::Json(raw))
                .map_err(|error| FieldError { path: format!("[{index}]{}", error.path), ..error })
        };
        items.iter().enumerate().map(read).collect()
    })
}

/// A list of request shapes named `list`. Each item is read on its own, so that an invalid item does not affect the
/// others.
pub fn item_results<R: RequestShape + ToSchema + 'static>(
    list: &'static str,
    max: usize,
) -> FieldKind<Vec<Result<R, ApiError>>> {
    let item = json!({"$ref": format!("#/components/schemas/{}", R::name())});
    FieldKind::new(json!({"type": "array", "items": item, "maxItems": max}), move |raw| {
        let items = fields::list(raw.as_str(), max)?;
        let read = |(index, raw): (usize, &&RawValue)| R::read(&Fields::parse_item(raw, list, index)?);
        Ok(items.iter().enumerate().map(read).collect())
    })
}
