//! Tokens of people: verified with one pinned algorithm, whatever the token says of itself.
//!
//! The library checks the signature; times are checked here, by our clock and with words of their own.

use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Clock, Code, Id};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use serde::{Deserialize, Serialize};

use super::jwks::Jwks;
use super::{Options, Person};
use crate::answer::ApiError;

/// What a token says. Fields that the hub has no use for (`jti`, `email`, `provider`) are let pass.
#[derive(Debug, Serialize, Deserialize)]
pub struct Claims {
    /// Written as text, as the standard has it; a number is understood, too.
    #[serde(serialize_with = "as_text")]
    pub sub: Id,
    #[serde(deserialize_with = "seconds")]
    pub iat: u64,
    #[serde(deserialize_with = "seconds")]
    pub exp: u64,
    #[serde(default, deserialize_with = "maybe_seconds", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A time in whole seconds; libraries that write fractions are right, too.
fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    maybe_seconds(deserializer)?.ok_or_else(|| serde::de::Error::custom("a time is null"))
}

fn maybe_seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let fraction = || number.as_f64().filter(|n| (0.0..1e15).contains(n)).map(|n| n as u64);
    number
        .as_u64()
        .or_else(fraction)
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom("a time is out of range"))
}

fn as_text<S: serde::Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_str())
}

/// Signs a token with the shared secret: for the command line, and for development.
pub fn mint(claims: &Claims, secret: &str) -> Result<String, jsonwebtoken::errors::Error> {
    encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret.as_bytes()))
}

/// How far a token may be ahead of our clock: the machine that signed it has one of its own.
/// However late it expires, a token counts no longer than this: nobody could revoke it any more.
pub const LONGEST_LIFE: Duration = Duration::from_secs(400 * 24 * 60 * 60);
const LEEWAY_SECS: u64 = 5;

pub(super) struct Verifier {
    clock: Clock,
    validation: Validation,
    keys: Keys,
}

enum Keys {
    Secret(DecodingKey),
    Published(Jwks),
}

impl Verifier {
    pub(super) fn new(options: &Options, clock: Clock, supervisor: &Supervisor) -> Result<Self, ApiError> {
        let mut validation = Validation::new(options.algorithm);
        validation.validate_aud = false;
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        let keys = match &options.jwks_url {
            None => Keys::Secret(DecodingKey::from_secret(options.secret.as_bytes())),
            Some(url) => Keys::Published(Jwks::start(url.clone(), options.algorithm, supervisor)?),
        };
        Ok(Self { clock, validation, keys })
    }

    pub(super) async fn verify(&self, token: &str) -> Result<Person, ApiError> {
        let claims = match &self.keys {
            Keys::Secret(key) => self.decode(token, key)?,
            Keys::Published(jwks) => {
                let kid = decode_header(token).map_err(|_| forged())?.kid.unwrap_or_default();
                let key = jwks.key(&kid).await.map_err(|_| unavailable())?;
                self.decode(token, &key.ok_or_else(forged)?)?
            }
        };
        let now = self.clock.now() / 1_000;
        let expires = claims.exp.min(claims.iat.saturating_add(LONGEST_LIFE.as_secs()));
        if expires <= now {
            return Err(ApiError::unauthorized("토큰이 만료되었습니다.", "The token has expired."));
        }
        // One from the future would outlast every revocation.
        if claims.iat.max(claims.nbf.unwrap_or(0)) > now + LEEWAY_SECS {
            return Err(ApiError::unauthorized(
                "아직 사용할 수 없는 토큰입니다.",
                "The token is not valid yet.",
            ));
        }
        if claims.token_type.as_deref().is_some_and(|kind| kind != "access") {
            return Err(ApiError::unauthorized("액세스 토큰이 아닙니다.", "This is not an access token."));
        }
        Ok(Person {
            id: claims.sub,
            issued_at: claims.iat.saturating_mul(1_000),
            expires_at: expires.saturating_mul(1_000),
            is_admin: claims.role.as_deref() == Some("admin"),
        })
    }

    fn decode(&self, token: &str, key: &DecodingKey) -> Result<Claims, ApiError> {
        let decoded = decode::<Claims>(token, key, &self.validation);
        let decoded = decoded.map_err(|error| match error.kind() {
            // Only for those whose signature is good.
            ErrorKind::Json(detail) => ApiError::new(
                Code::Auth4001,
                Text::owned(
                    format!("토큰의 클레임을 읽을 수 없습니다: {detail}"),
                    format!("The token's claims cannot be read: {detail}"),
                ),
            ),
            _ => forged(),
        })?;
        if decoded.header.crit.is_some() {
            // RFC 7515, 4.1.11: what is marked critical and not understood makes a token invalid. No extension is known here.
            return Err(ApiError::unauthorized(
                "토큰의 crit 헤더가 지원하지 않는 확장을 요구합니다.",
                "The token's crit header asks for extensions that are not supported.",
            ));
        }
        Ok(decoded.claims)
    }

    pub(super) fn trouble(&self) -> Option<&'static str> {
        match &self.keys {
            Keys::Secret(_) => None,
            Keys::Published(jwks) => jwks.trouble(),
        }
    }
}

fn forged() -> ApiError {
    ApiError::unauthorized(
        "토큰의 서명이나 형식이 올바르지 않습니다.",
        "The token is not valid: its signature or its form is wrong.",
    )
}

fn unavailable() -> ApiError {
    ApiError::new(
        Code::Sse5001,
        Text::new("지금은 로그인을 확인할 수 없습니다.", "Sign-in cannot be checked right now."),
    )
}
