//! An HTTP client for one hub with one identity: a service, an operator, a person, or no identity.
//!
//! A method panics if no response arrives; the `try_` methods return the error, for tests that kill the hub. Every
//! request opens its own connection. On a reused connection the hub could have been killed or restarted, or be about to
//! close the connection; the client could not tell whether the hub had processed the request, and must not repeat it.

use std::borrow::Borrow;
use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::hub::Hub;
use crate::tokens;

/// The hub's default service key in development.
pub const INTERNAL_KEY: &str = "local_dev_internal_key";
/// The hub's default operator key in development.
pub const ADMIN_KEY: &str = "local_dev_admin_key";

const PUBLISH_PATH: &str = "/api/v1/notifications/publish";

/// Pages that [`Api::stored_ids`] reads of one room at most.
const MAX_PAGES: usize = 10_000;

/// A client. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    identity: HeaderMap,
}

impl Api {
    /// A client as a service, over HTTP/1.1. If the hub has a twin ([`Hub::twin`]), the client sends its
    /// requests to the twin, so that events reach the streams of the hub from another process.
    pub fn new(hub: &Hub) -> Self {
        Self::at(&hub.twin().unwrap_or(hub).url(""))
    }

    /// A client as a service, over HTTP/1.1, at any address (`http://host:port`).
    pub fn at(base: &str) -> Self {
        Self::build(base, reqwest::Client::builder().http1_only())
    }

    /// As [`Api::new`], over HTTP/2 with prior knowledge.
    pub fn http2(hub: &Hub) -> Self {
        Self::http2_at(&hub.twin().unwrap_or(hub).url(""))
    }

    /// As [`Api::at`], over HTTP/2 with prior knowledge.
    pub fn http2_at(base: &str) -> Self {
        Self::build(base, reqwest::Client::builder().http2_prior_knowledge())
    }

    fn build(base: &str, client: reqwest::ClientBuilder) -> Self {
        let client =
            client.no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(Duration::from_secs(60));
        // No idle connection is kept, see the module. On loopback a new connection costs less than a request.
        let client = client.pool_max_idle_per_host(0).build().expect("cannot build an HTTP client");
        let api = Self { client, base: base.to_owned(), identity: HeaderMap::new() };
        api.with_header("x-internal-key", INTERNAL_KEY)
    }

    /// The same client without an identity.
    pub fn anonymous(&self) -> Self {
        Self { identity: HeaderMap::new(), ..self.clone() }
    }

    /// The same client as a person, by a bearer token.
    pub fn person(&self, user: impl Display) -> Self {
        self.bearer(&tokens::token(user))
    }

    /// The same client with this bearer token as its only identity.
    pub fn bearer(&self, token: &str) -> Self {
        self.anonymous().with_header("authorization", &format!("Bearer {token}"))
    }

    /// The same client as an operator.
    pub fn admin(&self) -> Self {
        self.anonymous().with_header("x-admin-key", ADMIN_KEY)
    }

    /// The same client as a service with this key.
    pub fn service(&self, key: &str) -> Self {
        self.anonymous().with_header("x-internal-key", key)
    }

    /// The same client with one more header on every request; it replaces a header of the same name.
    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut api = self.clone();
        api.identity.insert(name.parse::<HeaderName>().expect("an invalid header name"), header_value(value));
        api
    }

    /// Publishes one event; `event` is the request body.
    pub async fn publish(&self, event: impl Borrow<Value>) -> Answer {
        self.post(PUBLISH_PATH, event).await
    }

    /// Publishes one event. The error means that no response arrived; whether the event was stored is then unknown.
    pub async fn try_publish(&self, event: impl Borrow<Value>) -> Result<Answer, reqwest::Error> {
        self.try_post(PUBLISH_PATH, event).await
    }

    /// Publishes `data` to a room, asserts that the hub accepted it, and returns the id of the event.
    #[track_caller]
    pub fn publish_to(
        &self,
        room: impl Display,
        event_type: &str,
        data: Value,
    ) -> impl Future<Output = String> {
        let event = json!({"roomId": room.to_string(), "eventType": event_type, "data": data});
        let caller = std::panic::Location::caller();
        async move {
            let answer = self.publish(event).await;
            let id = answer.result()["streamId"].as_str().filter(|_| answer.status == 200);
            id.unwrap_or_else(|| {
                panic!("the publish at {caller} was not accepted: {} {}", answer.status, answer.text())
            })
            .to_owned()
        }
    }

    pub async fn publish_batch(&self, events: &[Value]) -> Answer {
        self.post(&format!("{PUBLISH_PATH}/batch"), json!({ "events": events })).await
    }

    /// The ids of all events in a room's log, read page by page.
    pub async fn stored_ids(&self, room: impl Display) -> Vec<String> {
        let (mut since, mut ids) = ("0-0".to_owned(), Vec::new());
        for _ in 0..MAX_PAGES {
            let path = format!("/api/v1/rooms/{room}/events?since={since}&count=500");
            let page = self.person(1).get(&path).await.expect(200);
            let events = page.result()["events"].as_array().expect("the page has no list of events").clone();
            ids.extend(
                events.iter().map(|event| event["id"].as_str().expect("the event has no id").to_owned()),
            );
            if page.result()["hasMore"] == false {
                return ids;
            }
            page.result()["lastId"].as_str().expect("the page has no lastId").clone_into(&mut since);
        }
        panic!("room {room} has more than {MAX_PAGES} pages of events, or hasMore never becomes false")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, self.identity.clone(), Bytes::new()).await
    }

    /// Posts a JSON body.
    pub async fn post(&self, path: &str, body: impl Borrow<Value>) -> Answer {
        self.try_post(path, body).await.unwrap_or_else(|error| no_answer(path, &error))
    }

    pub async fn try_post(&self, path: &str, body: impl Borrow<Value>) -> Result<Answer, reqwest::Error> {
        let mut headers = self.identity.clone();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        self.try_send(Method::POST, path, headers, body.borrow().to_string().into()).await
    }

    /// Sends a request with any method and an unchanged body, with this client's identity. The content type is JSON
    /// unless [`Api::with_header`] has set another one.
    pub async fn call(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        self.try_call(method, path, body).await.unwrap_or_else(|error| no_answer(path, &error))
    }

    pub async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, reqwest::Error> {
        let mut headers = self.identity.clone();
        headers.entry("content-type").or_insert(HeaderValue::from_static("application/json"));
        self.try_send(method.parse().expect("an invalid method"), path, headers, body.into()).await
    }

    /// Sends any request with exactly these headers: no identity, no content type.
    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().expect("an invalid header name"), header_value(value));
        }
        self.send(method.parse().expect("an invalid method"), path, map, body.into()).await
    }

    async fn send(&self, method: Method, path: &str, headers: HeaderMap, body: Bytes) -> Answer {
        self.try_send(method, path, headers, body).await.unwrap_or_else(|error| no_answer(path, &error))
    }

    async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, reqwest::Error> {
        let mut request = self.client.request(method, format!("{}{path}", self.base)).headers(headers);
        if !body.is_empty() {
            request = request.body(body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Answer::new(status, headers, response.bytes().await?))
    }
}

fn header_value(value: &str) -> HeaderValue {
    // From bytes, because bytes outside ASCII are allowed on the wire and the hub has to handle them.
    HeaderValue::from_bytes(value.as_bytes()).expect("an invalid header value")
}

fn no_answer(path: &str, error: &reqwest::Error) -> ! {
    panic!("no response to {path}: {error:?}")
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
