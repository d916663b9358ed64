//! An HTTP client that is bound to a hub and to somebody: a service, an operator, a person or nobody.
//!
//! A method panics when no answer comes at all; the `try_` ones give the error back, for tests that kill the hub.
//! Every request has a connection of its own, so that none goes out on one whose hub was killed, restarted or about to
//! close it: the client could not tell whether such a request was taken, and must not repeat it.

use std::borrow::Borrow;
use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::hub::Hub;
use crate::tokens;

/// The hub's keys in development.
pub const INTERNAL_KEY: &str = "local_dev_internal_key";
pub const ADMIN_KEY: &str = "local_dev_admin_key";

const PUBLISH: &str = "/api/v1/notifications/publish";

/// The most pages that [`Api::stored_ids`] reads of one room.
const MAX_PAGES: usize = 10_000;

/// A client. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    identity: HeaderMap,
}

impl Api {
    /// A service, over HTTP/1.1. When the hub has a twin it talks to that one, so that what it does reaches the
    /// hub's streams from another process.
    pub fn new(hub: &Hub) -> Self {
        Self::at(&hub.twin().unwrap_or(hub).url(""))
    }

    /// A service, over HTTP/1.1, at any address (`http://host:port`).
    pub fn at(base: &str) -> Self {
        Self::built(base, reqwest::Client::builder().http1_only())
    }

    /// A service, over HTTP/2 from the first byte; to the twin, if there is one.
    pub fn http2(hub: &Hub) -> Self {
        Self::http2_at(&hub.twin().unwrap_or(hub).url(""))
    }

    /// A service, over HTTP/2 from the first byte, at any address (`http://host:port`).
    pub fn http2_at(base: &str) -> Self {
        Self::built(base, reqwest::Client::builder().http2_prior_knowledge())
    }

    fn built(base: &str, client: reqwest::ClientBuilder) -> Self {
        let client =
            client.no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(Duration::from_secs(60));
        // No idle connection is kept, see above. On loopback a new one costs a fraction of a request.
        let client = client.pool_max_idle_per_host(0).build().expect("an HTTP client");
        let api = Self { client, base: base.to_owned(), identity: HeaderMap::new() };
        api.with_header("x-internal-key", INTERNAL_KEY)
    }

    /// The same client as nobody.
    pub fn anonymous(&self) -> Self {
        Self { identity: HeaderMap::new(), ..self.clone() }
    }

    /// The same client as a person, by a bearer token.
    pub fn person(&self, user: impl Display) -> Self {
        self.bearer(&tokens::token(user))
    }

    /// The same client with this bearer token and nothing else.
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

    /// The same client with one more header on every request (it replaces one of that name).
    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut api = self.clone();
        api.identity.insert(name.parse::<HeaderName>().expect("a header's name"), header_value(value));
        api
    }

    /// Publishes one event: the body as it is.
    pub async fn publish(&self, event: impl Borrow<Value>) -> Answer {
        self.post(PUBLISH, event).await
    }

    /// Publishes one event; the error when no answer came. What became of the event is then unknown.
    pub async fn try_publish(&self, event: impl Borrow<Value>) -> Result<Answer, reqwest::Error> {
        self.try_post(PUBLISH, event).await
    }

    /// Publishes `data` to a room, makes sure that it was accepted, and gives the event's id.
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
            id.unwrap_or_else(|| panic!("not accepted at {caller}: {} {}", answer.status, answer.text()))
                .to_owned()
        }
    }

    pub async fn publish_batch(&self, events: &[Value]) -> Answer {
        self.post(&format!("{PUBLISH}/batch"), json!({ "events": events })).await
    }

    /// The ids of everything that a room's log holds, page by page.
    pub async fn stored_ids(&self, room: impl Display) -> Vec<String> {
        let (mut since, mut ids) = ("0-0".to_owned(), Vec::new());
        for _ in 0..MAX_PAGES {
            let path = format!("/api/v1/rooms/{room}/events?since={since}&count=500");
            let page = self.person(1).get(&path).await.expect(200);
            let events = page.result()["events"].as_array().expect("a list").clone();
            ids.extend(events.iter().map(|event| event["id"].as_str().expect("an id").to_owned()));
            if page.result()["hasMore"] == false {
                return ids;
            }
            page.result()["lastId"].as_str().expect("an id").clone_into(&mut since);
        }
        panic!("room {room} has more than {MAX_PAGES} pages, or its pages have no end")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, self.identity.clone(), Bytes::new()).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: impl Borrow<Value>) -> Answer {
        self.try_post(path, body).await.unwrap_or_else(|error| no_answer(path, &error))
    }

    pub async fn try_post(&self, path: &str, body: impl Borrow<Value>) -> Result<Answer, reqwest::Error> {
        let mut headers = self.identity.clone();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        self.try_send(Method::POST, path, headers, body.borrow().to_string().into()).await
    }

    /// Any method, with this client's identity and a body as it is (with a JSON content type unless another one
    /// was set with [`Api::with_header`]).
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
        self.try_send(method.parse().expect("a method"), path, headers, body.into()).await
    }

    /// Any request with exactly these headers: no identity, no content type.
    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().expect("a header's name"), header_value(value));
        }
        self.send(method.parse().expect("a method"), path, map, body.into()).await
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
    // From bytes: what is not ASCII is allowed on the wire, and the hub has to cope with it.
    HeaderValue::from_bytes(value.as_bytes()).expect("a header's value")
}

fn no_answer(path: &str, error: &reqwest::Error) -> ! {
    panic!("no answer to {path}: {error:?}")
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
