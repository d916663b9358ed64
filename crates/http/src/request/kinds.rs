//! The kinds of fields that requests of several parts have.

use std::ops::RangeInclusive;

use bongsu_kernel::json::Object;
use bongsu_kernel::{Code, Id, Reason};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{Given, Kind, Refusal, Request};
use crate::ApiError;
use crate::body::SMALL_BODY;
use crate::fields::{self, Fields};
use crate::openapi::ID_PATTERN;

pub fn id() -> Kind<Id> {
    Kind::new(id_schema(), |given| Ok(given.id()?))
}

pub fn id_schema() -> Value {
    json!({"$ref": "#/components/schemas/Id"})
}

/// An id in a query or a path, where everything is text.
pub fn text_id(example: &str) -> Kind<Id> {
    Kind::new(json!({"type": "string", "pattern": ID_PATTERN, "example": example}), |given| Ok(given.id()?))
}

/// Text without control characters.
pub fn text(max: usize) -> Kind<String> {
    let pattern = r"^[^\x00-\x1f\x7f-\x9f]+$";
    let schema = json!({"type": "string", "minLength": 1, "maxLength": max, "pattern": pattern});
    Kind::new(schema, move |given| Ok(fields::check_text(given.text()?, max, char::is_control)?))
}

/// Text of several lines: line breaks and tabs are the only control characters.
pub fn prose(max: usize) -> Kind<String> {
    let is_refused = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let kind =
        Kind::new(text(max).schema, move |given| Ok(fields::check_text(given.text()?, max, is_refused)?));
    kind.with("pattern", r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+$")
}

pub fn flag() -> Kind<bool> {
    Kind::new(json!({"type": "boolean"}), |given| Ok(fields::parse_flag(given.as_str())?))
}

/// A whole number within its bounds.
pub fn whole<T: TryFrom<u64> + 'static>(min: u64, max: u64) -> Kind<T> {
    Kind::new(json!({"type": "integer", "minimum": min, "maximum": max}), move |given| {
        let text = given.as_str();
        let number =
            text.parse().ok().filter(|number| (min..=max).contains(number) && !text.starts_with('+'));
        Ok(number.and_then(|number| number.try_into().ok()).ok_or(Reason::Whole { min, max })?)
    })
}

/// How many items a page has at most.
pub fn limit<T: TryFrom<u64> + Clone + Serialize + Send + Sync + 'static>(max: u64, usual: T) -> Kind<T> {
    Kind { refuses_empty: true, ..whole(1, max).or(usual) }
}

/// Where a page begins in a list whose items have numbers from 1 on. For a client it is text without a meaning.
pub fn cursor() -> Kind<u64> {
    Kind { schema: json!({"type": "string"}), ..whole(1, i64::MAX as u64) }
}

/// One of a few words.
pub fn word<T: 'static>(known: &'static [&'static str], named: fn(&str) -> Option<T>) -> Kind<T> {
    Kind::new(json!({"type": "string", "enum": known}), move |given| {
        Ok(given.text().ok().and_then(|word| named(&word)).ok_or(Reason::OneOf(known))?)
    })
}

/// The object that an event carries, without its member `except`. In a large body, too, it is no larger than one that comes
/// alone: rings and pages hold whole events.
pub fn event_data(except: &'static str) -> Kind<Object> {
    Kind::new(json!({"type": "object", "additionalProperties": true}), move |given| {
        let Given::Json(raw) = given else { return Err(Reason::NotAnObject.into()) };
        let object = Object::parse(raw, except)?;
        if object.as_str().len() > SMALL_BODY {
            return Err(Refusal::new(Code::Common413, Reason::TooManyBytes(SMALL_BODY)));
        }
        Ok(object)
    })
}

pub fn list<T: 'static>(item: Kind<T>, count: RangeInclusive<usize>) -> Kind<Vec<T>> {
    let (min, max) = count.into_inner();
    let schema = json!({"type": "array", "items": item.schema, "minItems": min, "maxItems": max});
    Kind::new(schema, move |given| {
        let items = fields::list(given.as_str(), max)?;
        if items.len() < min {
            return Err(Reason::Empty.into());
        }
        let read = |(index, raw): (usize, &&RawValue)| {
            (item.read)(Given::Json(raw))
                .map_err(|refusal| Refusal { place: format!("[{index}]{}", refusal.place), ..refusal })
        };
        items.iter().enumerate().map(read).collect()
    })
}

/// A list named `list` of requests, each read or refused on its own.
pub fn each<R: Request + ToSchema + 'static>(
    list: &'static str,
    max: usize,
) -> Kind<Vec<Result<R, ApiError>>> {
    let item = json!({"$ref": format!("#/components/schemas/{}", R::name())});
    Kind::new(json!({"type": "array", "items": item, "maxItems": max}), move |given| {
        let items = fields::list(given.as_str(), max)?;
        let read = |(index, raw): (usize, &&RawValue)| R::read(&Fields::of_item(raw, list, index)?);
        Ok(items.iter().enumerate().map(read).collect())
    })
}
