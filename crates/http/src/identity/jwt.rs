//! Verifies people's tokens with the one configured algorithm; a token that names another one is refused.
//!
//! The library checks the signature. Times are checked here, with the hub's clock and with specific error messages.

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

/// The claims of a token. Claims that the hub does not use (`jti`, `email`, `provider`) are ignored.
#[derive(Debug, Serialize, Deserialize)]
pub struct Claims {
    /// Written as text, as the standard demands; a number is accepted as well.
    #[serde(serialize_with = "serialize_as_text")]
    pub sub: Id,
    #[serde(deserialize_with = "seconds")]
    pub iat: u64,
    #[serde(deserialize_with = "seconds")]
    pub exp: u64,
    #[serde(default, deserialize_with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A time in whole seconds. Fractions, which some libraries write, are allowed and cut off.
fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    optional_seconds(deserializer)?.ok_or_else(|| serde::de::Error::custom("a time is null"))
}

fn optional_seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let fraction = || number.as_f64().filter(|n| (0.0..1e15).contains(n)).map(|n| n as u64);
    number
        .as_u64()
        .or_else(fraction)
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom("a time is out of range"))
}

fn serialize_as_text<S: serde::Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_str())
}

/// Signs a token with the shared secret: for the command line, and for development.
pub fn mint(claims: &Claims, secret: &str) -> Result<String, jsonwebtoken::errors::Error> {
    encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret.as_bytes()))
}

/// A token is valid no longer than this after its `iat`, even if its `exp` is later, because revocations are not
/// remembered for longer.
pub const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// Seconds by which a token's `iat` or `nbf` may be ahead of the hub's clock, because the clock of the machine that
/// signed the token may be fast.
const MAX_CLOCK_SKEW_SECS: u64 = 5;

pub(super) struct Verifier {
    clock: Clock,
    validation: Validation,
    keys: Keys,
}

enum Keys {
    Secret(DecodingKey),
    Jwks(Jwks),
}

impl Verifier {
    pub(super) fn new(options: &Options, clock: Clock, supervisor: &Supervisor) -> Result<Self, ApiError> {
        let mut validation = Validation::new(options.algorithm);
        validation.validate_aud = false;
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        let keys = match &options.jwks_url {
            None => Keys::Secret(DecodingKey::from_secret(options.secret.as_bytes())),
            Some(url) => Keys::Jwks(Jwks::start(url.clone(), options.algorithm, supervisor)?),
        };
        Ok(Self { clock, validation, keys })
    }

    pub(super) async fn verify(&self, token: &str) -> Result<Person, ApiError> {
        let claims = match &self.keys {
            Keys::Secret(key) => self.decode(token, key)?,
            Keys::Jwks(jwks) => {
                let kid = decode_header(token).map_err(|_| invalid_token())?.kid.unwrap_or_default();
                let key = jwks.key(&kid).await.map_err(|_| unavailable())?;
                self.decode(token, &key.ok_or_else(invalid_token)?)?
            }
        };
        let now = self.clock.now() / 1_000;
        let expires = claims.exp.min(claims.iat.saturating_add(MAX_TOKEN_LIFETIME.as_secs()));
        if expires <= now {
            return Err(ApiError::unauthorized("토큰이 만료되었습니다.", "The token has expired."));
        }
        // A token with an `iat` in the future would remain valid after a revocation.
        if claims.iat.max(claims.nbf.unwrap_or(0)) > now + MAX_CLOCK_SKEW_SECS {
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
            // Reached only if the signature is valid, so the detail is not revealed to a forger.
            ErrorKind::Json(detail) => ApiError::new(
                Code::Auth4001,
                Text::owned(
                    format!("토큰의 클레임을 읽을 수 없습니다: {detail}"),
                    format!("The token's claims cannot be read: {detail}"),
                ),
            ),
            _ => invalid_token(),
        })?;
        if decoded.header.crit.is_some() {
            // RFC 7515, 4.1.11: a token is invalid if its `crit` header names an extension that is not supported. The
            // hub supports none.
            return Err(ApiError::unauthorized(
                "토큰의 crit 헤더가 지원하지 않는 확장을 요구합니다.",
                "The token's crit header requires extensions that are not supported.",
            ));
        }
        Ok(decoded.claims)
    }

    pub(super) fn degraded_reason(&self) -> Option<&'static str> {
        match &self.keys {
            Keys::Secret(_) => None,
            Keys::Jwks(jwks) => jwks.degraded_reason(),
        }
    }
}

fn invalid_token() -> ApiError {
    ApiError::unauthorized(
        "토큰의 서명이나 형식이 올바르지 않습니다.",
        "The token is not valid: its signature or its format is wrong.",
    )
}

fn unavailable() -> ApiError {
    ApiError::new(
        Code::Sse5001,
        Text::new("지금은 로그인을 확인할 수 없습니다.", "Tokens cannot be verified right now."),
    )
}
