//! Identity as extractors: where credentials may stand, and in which order they are looked for.
//!
//! The first credential that is there decides: one that is malformed or expired does not fall through to the next.

use axum::extract::{FromRef, FromRequestParts};
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use http::HeaderValue;
use http::header::{AUTHORIZATION, AsHeaderName, COOKIE, ORIGIN};
use http::request::Parts;

use super::{Identity, Person};
use crate::answer::ApiError;
use crate::fields::Query;
use crate::frame::header_items;
use crate::in_flight::RequestSlot;
use crate::server::Peer;

/// A person who opens a stream or a WebSocket, and the connection that becomes one: as [`Person`], and also by
/// `?ticket=` or `?token=`, because an EventSource cannot send headers.
///
/// Only a request makes one, and the hub opens streams for nothing else: so none can be opened past the rule for
/// cookies. On a WebSocket it comes after the [`Upgrade`](crate::websocket::Upgrade) in a handler, so that a ticket is
/// not spent on a refused handshake.
pub struct StreamPerson {
    person: Person,
    peer: Peer,
}

impl StreamPerson {
    pub fn person(&self) -> &Person {
        &self.person
    }

    pub fn into_parts(self) -> (Person, Peer) {
        (self.person, self.peer)
    }
}

/// A service of the same application.
#[derive(Debug)]
pub struct Service;

/// Whether a request brings a service's key beside a person's credentials, as the hub's own tools do: then its stream
/// observes, and is not part of who is there. A person alone cannot hide that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observes(pub bool);

/// Somebody who runs the hub.
#[derive(Debug)]
pub struct Operator;

/// Somebody who runs the hub, or any person: where people may do to what is theirs what operators may do everywhere.
#[derive(Debug)]
pub enum Caller {
    Operator,
    Person(Person),
}

impl Identity {
    async fn verify(&self, token: &str) -> Result<Person, ApiError> {
        let person = self.0.verifier.verify(token).await?;
        self.check_revoked(&person).await?;
        Ok(person)
    }

    /// Whether a person's token still counts. Asked when it is shown, of a ticket because the token that it was got with
    /// may have been revoked since, and again once a stream is open: an order that came between did not find it.
    pub async fn check_revoked(&self, person: &Person) -> Result<(), ApiError> {
        let Some(revocations) = &self.0.revocations else { return Ok(()) };
        let before = revocations.before(&person.id).await.map_err(|error| {
            tracing::error!(error, "nobody knows whether a token was revoked");
            let text =
                Text::new("지금은 로그인 상태를 확인할 수 없습니다.", "Tokens cannot be checked right now.");
            ApiError::new(Code::Redis5001, text)
        })?;
        if before.is_some_and(|before| person.issued_at < before) {
            return Err(ApiError::unauthorized("취소된 토큰입니다.", "The token was revoked."));
        }
        Ok(())
    }

    /// The `Authorization` header, else the cookie. A malformed header does not fall through.
    async fn person(&self, parts: &Parts, is_stream: bool) -> Result<Option<Person>, ApiError> {
        if let Some(header) = parts.headers.get(AUTHORIZATION) {
            let token = bearer(header).filter(|_| is_single(parts, AUTHORIZATION)).ok_or_else(|| {
                ApiError::unauthorized(
                    "Authorization 헤더는 'Bearer <토큰>' 형식이어야 합니다.",
                    "The Authorization header must be 'Bearer <token>'.",
                )
            })?;
            return self.verify(token).await.map(Some);
        }
        let Some(token) = cookie(parts, "access_token") else { return Ok(None) };
        let person = self.verify(token).await?;
        if !self.0.origins.permit_cookie(parts, is_stream) {
            return Err(foreign());
        }
        Ok(Some(person))
    }

    /// Whether the request brings a service's key.
    fn is_service(&self, parts: &Parts) -> bool {
        let key = parts.headers.get("x-internal-key");
        is_single(parts, "x-internal-key") && key.is_some_and(|key| self.0.internal.holds(key.as_bytes()))
    }

    /// Refuses a WebSocket that a page of a foreign origin opens, with whatever credentials: nothing else keeps a
    /// browser from letting that page read along. A client that names no origin is no browser.
    pub(crate) fn permit_socket(&self, parts: &Parts) -> Result<(), ApiError> {
        let permitted = !parts.headers.contains_key(ORIGIN) || self.0.origins.permit(parts);
        if permitted { Ok(()) } else { Err(foreign()) }
    }

    async fn stream_person(&self, parts: &Parts) -> Result<Option<Person>, ApiError> {
        if let Some(person) = self.person(parts, true).await? {
            return Ok(Some(person));
        }
        let query = Query::of(parts.uri.query())?;
        if let Some(ticket) = query.get("ticket") {
            let person = self.0.tickets.redeem(ticket).await?.ok_or_else(|| {
                ApiError::unauthorized(
                    "티켓이 올바르지 않거나 이미 사용되었습니다.",
                    "The ticket is not valid, has expired or was used already.",
                )
            })?;
            self.check_revoked(&person).await?;
            return Ok(Some(person));
        }
        match query.get("token") {
            Some(token) => self.verify(token).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Of two credentials, a proxy may have looked at the other one.
fn is_single(parts: &Parts, name: impl AsHeaderName) -> bool {
    parts.headers.get_all(name).iter().count() == 1
}

fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

fn cookie<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let mut pairs = header_items(&parts.headers, COOKIE, ';').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value)
}

fn foreign() -> ApiError {
    ApiError::forbidden("허용되지 않은 Origin입니다.", "This origin is not allowed to do this.")
}

fn sign_in() -> ApiError {
    ApiError::unauthorized("로그인이 필요합니다.", "Sign in first.")
}

/// The person whose request this is, which counts as one of theirs from here on.
fn signed_in(person: Option<Person>, parts: &Parts) -> Result<Person, ApiError> {
    let person = person.ok_or_else(sign_in)?;
    if let Some(slot) = parts.extensions.get::<RequestSlot>() {
        slot.enter(&person.id)?;
    }
    Ok(person)
}

/// Makes an extractor of every type that reads itself from a request with `read`.
macro_rules! extractors {
    ($($extracted:ty),*) => {
        $(impl<S: Sync> FromRequestParts<S> for $extracted
        where
            Identity: FromRef<S>,
        {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
                Self::read(&Identity::from_ref(state), parts).await
            }
        })*
    };
}

extractors!(Person, StreamPerson, Service, Observes, Caller, Operator);

impl Person {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        signed_in(identity.person(parts, false).await?, parts)
    }
}

impl StreamPerson {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        let person = signed_in(identity.stream_person(parts).await?, parts)?;
        let peer = parts.extensions.get::<Peer>().cloned().ok_or_else(ApiError::unexpected)?;
        Ok(Self { person, peer })
    }
}

impl Service {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        if identity.is_service(parts) {
            return Ok(Self);
        }
        Err(ApiError::unauthorized(
            "X-Internal-Key 헤더가 없거나 올바르지 않습니다.",
            "The X-Internal-Key header is missing or not valid.",
        ))
    }
}

impl Observes {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        Ok(Self(identity.is_service(parts)))
    }
}

impl Caller {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        if let Some(key) = parts.headers.get("x-admin-key") {
            return if identity.0.admin.holds(key.as_bytes()) {
                Ok(Self::Operator)
            } else {
                Err(ApiError::unauthorized(
                    "X-Admin-Key가 올바르지 않습니다.",
                    "The X-Admin-Key is not valid.",
                ))
            };
        }
        let person = Person::read(identity, parts).await?;
        Ok(if person.is_admin { Self::Operator } else { Self::Person(person) })
    }
}

impl Operator {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        match Caller::read(identity, parts).await? {
            Caller::Operator => Ok(Self),
            Caller::Person(_) => {
                Err(ApiError::forbidden("운영자만 할 수 있습니다.", "Only an operator may do this."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use bongsu_kernel::settings::{Input, load};
    use bongsu_kernel::task::Supervisor;
    use bongsu_kernel::{Clock, Id};
    use http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::identity::{ADMIN_API_KEY, Claims, Options, SETTINGS, mint};
    use crate::origins::Origins;

    fn app() -> Router {
        let environment = [(ADMIN_API_KEY.name.to_owned(), "old key, new key".to_owned())];
        let input = Input { environment: environment.into(), ..Input::default() };
        let values = load(SETTINGS, &input).unwrap();
        let options = Options::from_settings(&values).unwrap();
        let origins = Origins::from_settings(&values).unwrap();
        let tickets = std::sync::Arc::new(crate::identity::OwnTickets::new(Clock::system()));
        let identity =
            Identity::new(&options, origins, tickets, None, Clock::system(), &Supervisor::new()).unwrap();
        Router::new().route("/", get(|_: Operator| async {})).with_state(identity)
    }

    async fn status(name: &str, value: &str) -> u16 {
        let request = Request::get("/").header(name, value).body(Body::empty()).unwrap();
        app().oneshot(request).await.unwrap().status().as_u16()
    }

    fn bearer_of(role: Option<&str>) -> String {
        let now = Clock::system().now() / 1_000;
        let role = role.map(str::to_owned);
        let claims =
            Claims { sub: Id::new("1").unwrap(), iat: now, exp: now + 60, nbf: None, token_type: None, role };
        format!("Bearer {}", mint(&claims, "local_dev_secret").unwrap())
    }

    #[tokio::test]
    async fn an_operator_comes_with_a_key_old_or_new_or_with_the_admin_role() {
        assert_eq!(status("x-admin-key", "old key").await, 200);
        assert_eq!(status("x-admin-key", "new key").await, 200);
        assert_eq!(status("authorization", &bearer_of(Some("admin"))).await, 200);
        assert_eq!(status("authorization", &bearer_of(Some("user"))).await, 403);
        assert_eq!(status("authorization", &bearer_of(None)).await, 403);
        assert_eq!(status("x-admin-key", "no key").await, 401);
        assert_eq!(status("x-internal-key", "old key").await, 401);
        assert_eq!(status("accept", "*/*").await, 401);
    }
}
