//! Valid and forged tokens: any claims, any header, any key.
//!
//! Tokens are assembled and signed here, not with the library with which the hub verifies them.

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::jwks::Key;

/// The hub's default JWT secret in development.
pub const SECRET: &str = "local_dev_secret";

/// An access token that is valid for one hour, signed with the development secret.
pub fn token(user: impl Display) -> String {
    Claims::new(user).sign()
}

/// Seconds since 1970, as in `iat` and `exp`.
pub fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is before 1970");
    i64::try_from(elapsed.as_secs()).expect("the time does not fit into an i64")
}

/// The claims and the header of a token.
#[derive(Clone, Debug)]
pub struct Claims {
    claims: Map<String, Value>,
    header: Map<String, Value>,
}

impl Claims {
    /// Claims with `sub`, `iat` = now and `exp` in one hour.
    pub fn new(user: impl Display) -> Self {
        let empty = Self { claims: Map::new(), header: Map::new() };
        empty.subject(user).iat(now()).exp(now() + 3600)
    }

    /// Sets the person id as text. For a number use `extra("sub", json!(7))`.
    pub fn subject(self, user: impl Display) -> Self {
        self.extra("sub", json!(user.to_string()))
    }

    pub fn iat(self, seconds: i64) -> Self {
        self.extra("iat", json!(seconds))
    }

    pub fn exp(self, seconds: i64) -> Self {
        self.extra("exp", json!(seconds))
    }

    /// Sets `exp` to this number of seconds from now; negative for the past.
    pub fn expires_in(self, seconds: i64) -> Self {
        self.exp(now() + seconds)
    }

    pub fn token_type(self, name: &str) -> Self {
        self.extra("token_type", json!(name))
    }

    pub fn role(self, name: &str) -> Self {
        self.extra("role", json!(name))
    }

    /// Sets any claim to any value.
    pub fn extra(mut self, name: &str, value: Value) -> Self {
        self.claims.insert(name.to_owned(), value);
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.claims.remove(name);
        self
    }

    /// Sets a header field; it overrides the values that signing sets (`alg`, `kid`, `typ`).
    pub fn header(mut self, name: &str, value: Value) -> Self {
        self.header.insert(name.to_owned(), value);
        self
    }

    /// A token signed with HS256 and the development secret.
    pub fn sign(&self) -> String {
        self.sign_with(SECRET)
    }

    /// A token signed with HS256 and this secret.
    pub fn sign_with(&self, secret: impl AsRef<[u8]>) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        self.assemble(json!({"alg": "HS256", "typ": "JWT"}), |text| hmac::sign(&key, text).as_ref().to_vec())
    }

    /// A token signed with this key and its algorithm; the header contains the key id.
    pub fn sign_by(&self, key: &Key) -> String {
        let header = json!({"alg": key.algorithm(), "typ": "JWT", "kid": key.kid()});
        self.assemble(header, |text| key.sign(text))
    }

    /// A token without a signature: algorithm `none`.
    pub fn unsigned(&self) -> String {
        self.assemble(json!({"alg": "none", "typ": "JWT"}), |_| Vec::new())
    }

    fn assemble(&self, mut header: Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
        for (name, value) in &self.header {
            header[name] = value.clone();
        }
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let claims = Value::Object(self.claims.clone()).to_string();
        let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.as_bytes()));
        let signature = sign(signed.as_bytes());
        format!("{signed}.{}", encode(&signature))
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, jwk::Jwk};

    use super::*;

    fn verified(token: &str, key: &DecodingKey, algorithm: Algorithm) -> Option<Value> {
        decode::<Value>(token, key, &Validation::new(algorithm)).ok().map(|decoded| decoded.claims)
    }

    #[test]
    fn a_verifier_takes_an_hs256_token() {
        let key = DecodingKey::from_secret(SECRET.as_bytes());
        let claims = verified(&token(7), &key, Algorithm::HS256).unwrap();
        assert_eq!(claims["sub"], "7");
        assert!(claims["exp"].as_i64() > claims["iat"].as_i64());
        let other = Claims::new(7).sign_with("another secret");
        assert_eq!(verified(&other, &key, Algorithm::HS256), None);
        assert_eq!(verified(&Claims::new(7).expires_in(-600).sign(), &key, Algorithm::HS256), None);
        assert_eq!(verified(&Claims::new(7).unsigned(), &key, Algorithm::HS256), None);
    }

    #[test]
    fn any_claims_and_header_can_be_set() {
        let token = Claims::new("a")
            .role("admin")
            .token_type("refresh")
            .extra("sub", json!(9))
            .without("exp")
            .header("kid", json!("k"))
            .sign();
        let parts: Vec<Value> = token
            .split('.')
            .take(2)
            .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        assert_eq!(parts[0], json!({"alg": "HS256", "typ": "JWT", "kid": "k"}));
        assert_eq!(
            parts[1],
            json!({"sub": 9, "iat": parts[1]["iat"], "role": "admin", "token_type": "refresh"})
        );
    }

    #[test]
    fn a_verifier_takes_tokens_by_published_keys() {
        for (key, algorithm) in [(Key::rs256("r"), Algorithm::RS256), (Key::es256("e"), Algorithm::ES256)] {
            let jwk: Jwk = serde_json::from_value(key.jwk()).unwrap();
            let public = DecodingKey::from_jwk(&jwk).unwrap();
            let token = Claims::new("someone").sign_by(&key);
            assert_eq!(jsonwebtoken::decode_header(&token).unwrap().kid.as_deref(), Some(key.kid()));
            assert_eq!(verified(&token, &public, algorithm).unwrap()["sub"], "someone");
            let stranger = if algorithm == Algorithm::RS256 { Key::rs256("r") } else { Key::es256("e") };
            assert_eq!(verified(&Claims::new("x").sign_by(&stranger), &public, algorithm), None);
        }
    }
}
