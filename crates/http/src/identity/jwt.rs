//! Tokens of people: verified with one pinned algorithm, whatever the token says of itself.

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Id};
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
    pub iat: u64,
    pub exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

fn as_text<S: serde::Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_str())
}

/// Signs a token with the shared secret: for the command line, and for development.
pub fn mint(claims: &Claims, secret: &str) -> Result<String, jsonwebtoken::errors::Error> {
    encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret.as_bytes()))
}

pub(super) struct Verifier {
    validation: Validation,
    keys: Keys,
}

enum Keys {
    Secret(DecodingKey),
    Published(Jwks),
}

impl Verifier {
    pub(super) fn new(options: &Options, supervisor: &Supervisor) -> Result<Self, ApiError> {
        let mut validation = Validation::new(options.algorithm);
        validation.leeway = 0;
        validation.validate_aud = false;
        validation.validate_nbf = true;
        // `sub` is required by the type of the claims; the library would refuse one that is a number.
        validation.set_required_spec_claims(&["exp"]);
        let keys = match &options.jwks_url {
            None => Keys::Secret(DecodingKey::from_secret(options.secret.as_bytes())),
            Some(url) => Keys::Published(Jwks::start(url.clone(), options.algorithm, supervisor)?),
        };
        Ok(Self { validation, keys })
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
        if claims.token_type.as_deref().is_some_and(|kind| kind != "access") {
            return Err(ApiError::unauthorized("액세스 토큰이 아닙니다.", "This is not an access token."));
        }
        Ok(Person {
            id: claims.sub,
            expires_at: claims.exp.saturating_mul(1_000),
            is_admin: claims.role.as_deref() == Some("admin"),
        })
    }

    fn decode(&self, token: &str, key: &DecodingKey) -> Result<Claims, ApiError> {
        decode::<Claims>(token, key, &self.validation).map(|data| data.claims).map_err(|error| {
            match error.kind() {
                ErrorKind::ExpiredSignature => {
                    ApiError::unauthorized("토큰이 만료되었습니다.", "The token has expired.")
                }
                _ => forged(),
            }
        })
    }

    pub(super) fn trouble(&self) -> Option<&'static str> {
        match &self.keys {
            Keys::Secret(_) => None,
            Keys::Published(jwks) => jwks.trouble(),
        }
    }
}

fn forged() -> ApiError {
    ApiError::unauthorized("토큰이 올바르지 않습니다.", "The token is not valid.")
}

fn unavailable() -> ApiError {
    ApiError::new(
        Code::Sse5001,
        Text::new("지금은 로그인을 확인할 수 없습니다.", "Sign-in cannot be checked right now."),
    )
}
