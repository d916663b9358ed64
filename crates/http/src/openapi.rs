//! OpenAPI: generated from the code, completed here, shown on a page that needs nothing from elsewhere.
//!
//! What all operations share (envelope, refusals, parameters of streams) is described here once.

use axum::Router;
use axum::response::{Html, IntoResponse, Redirect};
use axum::routing::get;
use http::HeaderValue;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{OpenApi, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::answer::Envelope;

const PAGE: &str = include_str!("openapi/page.html");

/// Where the document has its schemas.
const SCHEMAS: &str = "#/components/schemas/";

/// Refusals that any operation may give: documented once, here.
const REFUSALS: [(&str, &str); 10] = [
    ("400", "Malformed or invalid; the message names the field."),
    ("401", "The credential is missing, expired, of the wrong kind or forged."),
    ("403", "Signed in, but not allowed."),
    ("404", "No such thing."),
    ("405", "No such method here."),
    ("408", "The body arrives too slowly."),
    ("413", "The body is too large."),
    ("429", "Too many requests or connections; see Retry-After."),
    ("500", "Unexpected, or the event could not be stored."),
    ("503", "Unavailable right now; see Retry-After."),
];

/// Adds what every operation shares: the envelope around its result, its refusals, the form of a stream.
pub fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["components"]["schemas"]["Id"] = json!(IdSchema::schema());
    document["components"]["schemas"]["Refusal"] = json!({
        "type": "object",
        "required": ["isSuccess", "code", "message", "result"],
        "properties": {
            "isSuccess": {"type": "boolean", "const": false},
            "code": {"type": "string"},
            "message": {"type": "string"},
            "result": {"type": "null"},
        },
    });
    document["components"]["schemas"]["StreamEvent"] = json!({
        "type": "object",
        "description": "One event of a stream, as the EventSource format has it.",
        "properties": {
            "event": {"type": "string", "description": "Its type."},
            "id": {"type": "string", "description": "Where it stands; send it back as Last-Event-ID."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"type": "object"},
            },
            "retry": {"type": "integer", "description": "How long to wait before coming back, in milliseconds."},
        },
    });
    document["components"]["securitySchemes"] = json!({
        "person": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "service": {"type": "apiKey", "in": "header", "name": "X-Internal-Key"},
        "operator": {"type": "apiKey", "in": "header", "name": "X-Admin-Key"},
    });
    let mut envelopes = Vec::new();
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut()) {
        let responses = &mut operation["responses"];
        for answer in ["/200/content/application~1json", "/202/content/application~1json"] {
            if let Some(content) = responses.pointer_mut(answer) {
                let result = content["schema"].take();
                let mut envelope = json!(Envelope::<String>::schema());
                // A named schema, because client generators name their types after it.
                let name = result["$ref"].as_str().map(|result| format!("{result}Envelope"));
                envelope["properties"]["result"] = result;
                content["schema"] = name.as_ref().map_or(envelope.clone(), |name| json!({"$ref": name}));
                envelopes.extend(name.map(|name| (name.replace(SCHEMAS, ""), envelope)));
            }
        }
        if let Some(stream) = responses.pointer_mut("/200/content/text~1event-stream") {
            // Not the text as a whole: readers of the document take the schema of a stream as that of its events.
            stream["schema"] = json!({"$ref": "#/components/schemas/StreamEvent"});
            let ended = "The stream ended for good; a plain EventSource stops on this.";
            responses["204"] = json!({"description": ended});
        }
        for (status, description) in REFUSALS {
            if responses[status].is_null() {
                responses[status] = json!({"description": description});
            }
        }
        let refusals =
            responses.as_object_mut().into_iter().flatten().filter(|(status, _)| status.as_str() >= "400");
        for (_, refusal) in refusals {
            refusal["content"] =
                json!({"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}});
        }
    }
    for (name, envelope) in envelopes {
        document["components"]["schemas"][name] = envelope;
    }
    document
}

/// Lists all operations of a router under one heading.
pub fn tagged<S: Clone + Send + Sync + 'static>(tag: &str, mut router: OpenApiRouter<S>) -> OpenApiRouter<S> {
    for path in router.get_openapi_mut().paths.paths.values_mut() {
        let operations =
            [&mut path.get, &mut path.put, &mut path.post, &mut path.patch, &mut path.delete].into_iter();
        operations.flatten().for_each(|operation| operation.tags = Some(vec![tag.to_owned()]));
    }
    router
}

/// The header by which a client comes back to a stream.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header")]
pub struct ResumeParams {
    /// The last id that the client had; wins over the parameter of the query.
    #[param(rename = "Last-Event-ID")]
    last_event_id: Option<String>,
}

/// What every stream and WebSocket takes beside headers and cookies, which a browser does not let a page send.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query")]
pub struct StreamParams {
    /// A stream ticket, instead of a header or cookie.
    ticket: Option<String>,
    /// A JWT; prefer a ticket, because URLs end up in logs.
    token: Option<String>,
    /// The language of texts: ko or en; wins over Accept-Language.
    #[param(example = "en")]
    lang: Option<String>,
}

/// `/openapi.json` and `/docs`.
pub fn routes<S: Clone + Send + Sync + 'static>(document: &Value) -> Router<S> {
    let text = document.to_string();
    let serve = move || {
        let text = text.clone();
        async move { ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response() }
    };
    // The page needs nothing from elsewhere, and nobody else's page needs it.
    let policy = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";
    let page =
        move || async move { ([(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy))], Html(PAGE)) };
    Router::new()
        .route("/openapi.json", get(serve))
        .route("/docs", get(page))
        .route("/", get(|| async { Redirect::temporary("/docs") }))
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
