//! The OpenAPI document: generated from the declarations of the routes, completed here, and shown by [`viewer`].
//!
//! The parts that many operations share (envelope, errors, parameters of streams) are described here once.

mod viewer;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{OpenApi, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::answer::Envelope;

/// Path of the document.
const DOCUMENT_PATH: &str = "/openapi.json";

/// The tags that the document lists, in this order. A tag that no operation uses is not listed.
const TAGS: [(&str, &str); 7] = [
    ("rooms", "Publish events to rooms, follow rooms by SSE or WebSocket, and see who is present."),
    ("streams", "Get a ticket that opens a stream without a token in its URL."),
    ("members", "Follow the personal stream of one person."),
    ("inbox", "Notify people; list, mark and delete a person's notifications; and change their settings."),
    ("outbox", "Follow rows that an application commits to the outbox table."),
    (
        "operating",
        "Read health and metrics, handle dead letters, disconnect people, and revoke their tokens.",
    ),
    (
        "decisions",
        "Make proposals and vote on them: an example application, served with the role `decisions` only.",
    ),
];

/// Prefix of references to schemas of the document.
const SCHEMAS: &str = "#/components/schemas/";

/// Error responses that any operation may return, by status.
const ERROR_RESPONSES: [(&str, &str); 10] = [
    ("400", "The request is malformed, or a field is invalid; the message names the field."),
    ("401", "The credential is missing, invalid, expired or revoked."),
    ("403", "The caller is authenticated, but not allowed to do this."),
    ("404", "The path, or the item that the request names, does not exist."),
    ("405", "The path does not support this method."),
    ("408", "The request body did not arrive in time."),
    ("413", "The request body is too large."),
    ("429", "Too many requests or connections; repeat the request after the seconds in `Retry-After`."),
    ("500", "The request failed because of an internal error, or an engine refused to store or read data."),
    ("503", "The hub or an engine is unavailable; repeat the request after the seconds in `Retry-After`."),
];

/// Adds the parts that the declarations of operations leave out: the envelope around each result, the error
/// responses and the security schemes. Also lists the tags in order.
pub fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    let mut envelopes = Vec::new();
    let mut tags = Vec::new();
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut()) {
        tags.extend(operation["tags"][0].as_str().map(str::to_owned));
        envelopes.extend(add_envelopes(&mut operation["responses"]));
        add_common_responses(&mut operation["responses"]);
    }
    let known = TAGS.iter().filter(|(tag, _)| tags.iter().any(|used| used == tag));
    document["tags"] =
        known.map(|(tag, description)| json!({"name": tag, "description": description})).collect();
    document["components"]["securitySchemes"] = json!({
        "person": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A person's token, such as the one that `bongsu token --user 7` prints.",
        },
        "service": {
            "type": "apiKey",
            "in": "header",
            "name": "X-Internal-Key",
            "description": "One of the keys in the setting `INTERNAL_API_KEY`.",
        },
        "operator": {
            "type": "apiKey",
            "in": "header",
            "name": "X-Admin-Key",
            "description": "One of the keys in the setting `ADMIN_API_KEY`. A person's token with the role `admin` is accepted as well.",
        },
    });
    let schemas = &mut document["components"]["schemas"];
    schemas["Id"] = json!(IdSchema::schema());
    schemas["ErrorResponse"] = error_schema();
    schemas["StreamEvent"] = stream_event_schema();
    for (name, envelope) in envelopes {
        schemas[name] = envelope;
    }
    document
}

/// Wraps the schema of each successful result into the envelope, and returns the schemas of the new
/// envelopes. Each has a name of its own, because client generators name their types after it.
fn add_envelopes(responses: &mut Value) -> Vec<(String, Value)> {
    let mut envelopes = Vec::new();
    for content in ["/200/content/application~1json", "/202/content/application~1json"] {
        let Some(content) = responses.pointer_mut(content) else { continue };
        let result = content["schema"].take();
        let mut envelope = json!(Envelope::<String>::schema());
        let reference = result["$ref"].as_str().map(|result| format!("{result}Envelope"));
        envelope["properties"]["result"] = result;
        match reference {
            Some(reference) => {
                envelopes.push((reference.replace(SCHEMAS, ""), envelope));
                content["schema"] = json!({"$ref": reference});
            }
            None => content["schema"] = envelope,
        }
    }
    envelopes
}

/// Adds the responses that operations share: the errors, and 204 for event streams.
fn add_common_responses(responses: &mut Value) {
    if let Some(stream) = responses.pointer_mut("/200/content/text~1event-stream") {
        // By convention, the schema of a stream describes one event, not the text of all.
        stream["schema"] = json!({"$ref": "#/components/schemas/StreamEvent"});
        let ended =
            "The given position says that the stream has ended for good. An EventSource stops reconnecting.";
        responses["204"] = json!({"description": ended});
    }
    for (status, description) in ERROR_RESPONSES {
        if responses[status].is_null() {
            responses[status] = json!({"description": description});
        }
    }
    let errors =
        responses.as_object_mut().into_iter().flatten().filter(|(status, _)| status.as_str() >= "400");
    for (_, error) in errors {
        error["content"] =
            json!({"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}});
    }
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["isSuccess", "code", "message", "result"],
        "properties": {
            "isSuccess": {"type": "boolean", "const": false},
            "code": {"type": "string", "description": "A stable error code, the same in every language.", "example": "COMMON400"},
            "message": {"type": "string", "description": "A message for people, in the language that the request names."},
            "result": {"type": "null"},
        },
    })
}

fn stream_event_schema() -> Value {
    json!({
        "type": "object",
        "description": "One event of a stream, in the EventSource format.",
        "properties": {
            "event": {"type": "string", "description": "The event type."},
            "id": {"type": "string", "description": "The position of this event. Send it back as `Last-Event-ID` to resume after the event."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"type": "object"},
            },
            "retry": {"type": "integer", "description": "Milliseconds to wait before reconnecting."},
        },
    })
}

/// Gives all operations of a router one tag.
pub fn tagged<S: Clone + Send + Sync + 'static>(tag: &str, mut router: OpenApiRouter<S>) -> OpenApiRouter<S> {
    for path in router.get_openapi_mut().paths.paths.values_mut() {
        let operations =
            [&mut path.get, &mut path.put, &mut path.post, &mut path.patch, &mut path.delete].into_iter();
        operations.flatten().for_each(|operation| operation.tags = Some(vec![tag.to_owned()]));
    }
    router
}

/// The header with which a client resumes a stream.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header")]
pub struct ResumeParams {
    /// The id of the last event that the client received. Overrides the position in the query.
    #[param(rename = "Last-Event-ID")]
    last_event_id: Option<String>,
}

/// Query parameters of every stream and WebSocket: a page in a browser cannot set headers for them.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query")]
pub struct StreamParams {
    /// A stream ticket, which replaces the credential in a header or a cookie.
    ticket: Option<String>,
    /// The person's token (JWT). Prefer a ticket, because logs may record URLs.
    token: Option<String>,
    /// The language of messages, `ko` or `en`. Overrides `Accept-Language`.
    #[param(example = "en")]
    lang: Option<String>,
}

/// The routes of the document and of its viewer.
pub fn routes<S: Clone + Send + Sync + 'static>(document: &Value) -> Router<S> {
    let text = document.to_string();
    let serve = move || {
        let text = text.clone();
        async move { ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response() }
    };
    Router::new().route(DOCUMENT_PATH, get(serve)).merge(viewer::routes())
}

pub(crate) const ID_PATTERN: &str = "^[A-Za-z0-9._@:-]{1,128}$";

/// An id: text, or an integer within ±(2^53−1).
pub struct IdSchema;

impl ToSchema for IdSchema {
    fn name() -> std::borrow::Cow<'static, str> {
        "Id".into()
    }
}

impl PartialSchema for IdSchema {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(ID_PATTERN));
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(-9_007_199_254_740_991_i64))
            .maximum(Some(9_007_199_254_740_991_i64));
        OneOfBuilder::new()
            .item(text)
            .item(number)
            .description(Some(
                "An id: 1 to 128 characters of A-Z a-z 0-9 . _ @ : -, or an integer within ±(2^53−1).",
            ))
            .examples([42])
            .into()
    }
}
