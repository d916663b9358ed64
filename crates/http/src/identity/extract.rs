//! Extractors of identity: where a request may carry credentials, and which of them counts.
//!
//! The first credential that is present counts: if it is malformed or expired, the request is refused, and the next one
//! is not tried.

use axum::extract::{FromRef, FromRequestParts};
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use http::HeaderValue;
use http::header::{AUTHORIZATION, AsHeaderName, COOKIE, ORIGIN};
use http::request::Parts;

use super::{Identity, Person};
use crate::answer::ApiError;
use crate::fields::UrlQuery;
use crate::in_flight::RequestSlot;
use crate::request_scope::header_items;
use crate::server::ConnectionControl;

/// A person who opens a stream or a WebSocket, and the connection for it. Authenticated like [`Person`], and also by
/// `?ticket=` or `?token=`, because an EventSource cannot send headers.
///
/// Only the extractor creates this type, and streams are opened only with it, so that the rule for cookies
/// applies to every stream. A handler of a WebSocket takes this extractor after the
/// [`Upgrade`](crate::websocket::Upgrade), so that a refused handshake does not use up a ticket.
pub struct StreamPerson {
    person: Person,
    peer: ConnectionControl,
}

impl StreamPerson {
    pub fn person(&self) -> &Person {
        &self.person
    }

    pub fn into_parts(self) -> (Person, ConnectionControl) {
        (self.person, self.peer)
    }
}

/// A service, authenticated by `X-Internal-Key`.
#[derive(Debug)]
pub struct Service;

/// Whether a request carries the key of a service in addition to a person's credentials, as the hub's own tools do.
/// Then its stream does not make the person present. A person without a service's key cannot hide in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserverFlag(pub bool);

/// An operator, authenticated by `X-Admin-Key` or a token with the role `admin`.
#[derive(Debug)]
pub struct Operator;

/// An operator or a person, for routes that an operator may use for every person, and a person only for themselves.
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

    /// Returns an error if the person's token was revoked, or if that is unknown. Called for every token; for
    /// every ticket, whose token may have been revoked since; and for a stream that has just opened, because
    /// a revocation before that does not close the stream.
    pub async fn check_revoked(&self, person: &Person) -> Result<(), ApiError> {
        let Some(revocations) = &self.0.revocations else { return Ok(()) };
        let before = revocations.revoked_before(&person.id).await.map_err(|error| {
            tracing::error!(error, "failed to check whether a token was revoked; refusing the request");
            let text =
                Text::new("지금은 로그인 상태를 확인할 수 없습니다.", "Tokens cannot be checked right now.");
            ApiError::new(Code::Redis5001, text)
        })?;
        if before.is_some_and(|before| person.issued_at < before) {
            return Err(ApiError::unauthorized("취소된 토큰입니다.", "The token was revoked."));
        }
        Ok(())
    }

    /// The person of the `Authorization` header, or else of the cookie. A malformed header is an error.
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
        if !self.0.origins.permits_cookie(parts, is_stream) {
            return Err(foreign_origin(parts));
        }
        Ok(Some(person))
    }

    /// Whether the request carries the key of a service.
    fn is_service(&self, parts: &Parts) -> bool {
        let key = parts.headers.get("x-internal-key");
        is_single(parts, "x-internal-key") && key.is_some_and(|key| self.0.internal.contains(key.as_bytes()))
    }

    /// Refuses a WebSocket from a page of a foreign origin, whatever its credentials are, because CORS does not apply
    /// to WebSockets. A client that sends no Origin is not a browser.
    pub(crate) fn check_socket_origin(&self, parts: &Parts) -> Result<(), ApiError> {
        let is_permitted = !parts.headers.contains_key(ORIGIN) || self.0.origins.permits_origin(parts);
        if is_permitted { Ok(()) } else { Err(foreign_origin(parts)) }
    }

    async fn stream_person(&self, parts: &Parts) -> Result<Option<Person>, ApiError> {
        if let Some(person) = self.person(parts, true).await? {
            return Ok(Some(person));
        }
        let query = UrlQuery::parse(parts.uri.query())?;
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

/// Whether a header occurs exactly once. Of two values, a proxy may have checked one and the hub the other.
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

fn foreign_origin(parts: &Parts) -> ApiError {
    if parts.headers.contains_key(ORIGIN) {
        let text = "The Origin of this request is not in ALLOWED_ORIGINS.";
        return ApiError::forbidden("허용되지 않은 Origin입니다.", text);
    }
    ApiError::forbidden(
        "쿠키로 인증하는 이 요청에는 허용된 Origin 헤더가 필요합니다.",
        "With a cookie, this request needs an Origin header that is in ALLOWED_ORIGINS.",
    )
}

/// Counts the request as one of this person's requests in flight. An error if the request has no person, or
/// the person too many requests.
fn admit(person: Option<Person>, parts: &Parts) -> Result<Person, ApiError> {
    let not_signed_in = || ApiError::unauthorized("로그인이 필요합니다.", "Sign in first.");
    let person = person.ok_or_else(not_signed_in)?;
    if let Some(slot) = parts.extensions.get::<RequestSlot>() {
        slot.assign(&person.id)?;
    }
    Ok(person)
}

/// Implements the extractor for types with a function `read`, which reads the value from a request.
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

extractors!(Person, StreamPerson, Service, ObserverFlag, Caller, Operator);

impl Person {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        admit(identity.person(parts, false).await?, parts)
    }
}

impl StreamPerson {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        let person = admit(identity.stream_person(parts).await?, parts)?;
        let peer = parts.extensions.get::<ConnectionControl>().cloned().ok_or_else(ApiError::unexpected)?;
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

impl ObserverFlag {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        Ok(Self(identity.is_service(parts)))
    }
}

impl Caller {
    async fn read(identity: &Identity, parts: &Parts) -> Result<Self, ApiError> {
        if let Some(key) = parts.headers.get("x-admin-key") {
            return if is_single(parts, "x-admin-key") && identity.0.admin.contains(key.as_bytes()) {
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
        let tickets = std::sync::Arc::new(crate::identity::MemoryTickets::new(Clock::system()));
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
    async fn an_operator_has_a_key_or_the_admin_role() {
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
