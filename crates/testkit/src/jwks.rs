//! RS256 and ES256 key pairs, their JWKS document, and a server for this document that can rotate keys and simulate
//! failures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::local_http::{LocalHttp, Reply};

/// A key pair with its key id.
pub struct Key {
    kid: String,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl Key {
    /// A new RSA key of 2048 bits.
    pub fn rs256(kid: &str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("cannot generate a key");
        Self { kid: kid.to_owned(), pair: Pair::Rsa(pair) }
    }

    /// A new key on P-256.
    pub fn es256(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("cannot generate a key");
        Self { kid: kid.to_owned(), pair: Pair::Ec(pair) }
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// `RS256` or `ES256`.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
        }
    }

    /// The public key as a JWK.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public = pair.public_key();
                let [n, e] = [public.modulus(), public.exponent()]
                    .map(|part| encode(part.big_endian_without_leading_zero()));
                json!({"kty": "RSA", "n": n, "e": e})
            }
            Pair::Ec(pair) => {
                // An uncompressed point: the byte 4, then x and y with 32 bytes each.
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..65])})
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["alg"] = json!(self.algorithm());
        jwk["use"] = json!("sig");
        jwk
    }

    pub(crate) fn sign(&self, text: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).expect("cannot sign");
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, text).expect("cannot sign").as_ref().to_vec(),
        }
    }
}

/// The JWKS document with the public keys.
pub fn document(keys: &[&Key]) -> Value {
    json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()})
}

/// A failure that the server simulates.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Responds with this status and no keys.
    Status(u16),
    /// Responds correctly, but after this delay.
    Slow(Duration),
    /// Responds 200 with this body instead of a key set.
    Body(String),
}

struct ServerState {
    document: Mutex<Value>,
    failure: Mutex<Option<Failure>>,
    requests: AtomicUsize,
}

/// Serves a JWKS document on a free loopback port until it is dropped.
pub struct JwksServer {
    server: LocalHttp,
    shared: Arc<ServerState>,
}

impl JwksServer {
    pub async fn start(keys: &[&Key]) -> Self {
        let shared = Arc::new(ServerState {
            document: Mutex::new(document(keys)),
            failure: Mutex::new(None),
            requests: AtomicUsize::new(0),
        });
        let answering = Arc::clone(&shared);
        let server = LocalHttp::start(move |_| answering.reply()).await;
        Self { server, shared }
    }

    /// The value for the setting `JWKS_URL`.
    pub fn url(&self) -> String {
        format!("http://{}/.well-known/jwks.json", self.server.addr())
    }

    /// Replaces the served keys.
    pub fn rotate(&self, keys: &[&Key]) {
        self.replace(document(keys));
    }

    /// Replaces the served document by any JSON.
    pub fn replace(&self, document: Value) {
        *self.shared.document.lock().unwrap() = document;
    }

    /// Makes all later requests fail this way; None ends the failure.
    pub fn fail(&self, failure: Option<Failure>) {
        *self.shared.failure.lock().unwrap() = failure;
    }

    /// The number of requests received.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl ServerState {
    fn reply(&self) -> Reply {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let document = self.document.lock().unwrap().to_string();
        let mut reply = Reply::new(200, "application/json", document);
        match self.failure.lock().unwrap().clone() {
            None => {}
            Some(Failure::Status(status)) => reply = Reply::new(status, "text/plain", "simulated failure"),
            Some(Failure::Slow(delay)) => reply.delay = delay,
            Some(Failure::Body(text)) => reply = Reply::new(200, "application/json", text),
        }
        reply
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_rotate_and_failures_are_simulated() {
        let (old, new) = (Key::es256("old"), Key::es256("new"));
        let server = JwksServer::start(&[&old]).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let ask = async || {
            let answer = client.get(server.url()).send().await.unwrap();
            (answer.status().as_u16(), serde_json::from_str::<Value>(&answer.text().await.unwrap()).ok())
        };
        assert_eq!(ask().await, (200, Some(document(&[&old]))));
        server.rotate(&[&old, &new]);
        assert_eq!(ask().await, (200, Some(document(&[&old, &new]))));
        server.fail(Some(Failure::Status(500)));
        assert_eq!(ask().await, (500, None));
        server.fail(Some(Failure::Body("{".to_owned())));
        assert_eq!(ask().await, (200, None));
        server.fail(Some(Failure::Slow(Duration::from_millis(50))));
        let asked = tokio::time::Instant::now();
        assert_eq!(ask().await.0, 200);
        assert!(asked.elapsed() >= Duration::from_millis(50));
        assert_eq!(server.requests(), 5);
    }
}
