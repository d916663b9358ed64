//! Public keys from a JWKS URL: fetched at start, refreshed in the background and when a token names a new one.
//!
//! A failed refresh keeps the keys that are known. Tokens that name unknown keys cannot make the hub fetch more
//! often than every few seconds.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::sync::Mutex;

use crate::answer::ApiError;

const REFRESH: Duration = Duration::from_secs(300);
const RETRY: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub(super) struct Jwks(Arc<Inner>);

struct Inner {
    url: reqwest::Url,
    algorithm: Algorithm,
    client: reqwest::Client,
    known: RwLock<Option<HashMap<String, DecodingKey>>>,
    /// When the last fetch began; held while one is under way, so that many unknown keys cost one fetch.
    fetched: Mutex<Option<Instant>>,
}

/// No keys could be fetched yet.
#[derive(Debug)]
pub(super) struct Unavailable;

impl Jwks {
    pub(super) fn start(
        url: reqwest::Url,
        algorithm: Algorithm,
        supervisor: &Supervisor,
    ) -> Result<Self, ApiError> {
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            // No redirect leads from https to http.
            .https_only(url.scheme() == "https")
            .redirect(reqwest::redirect::Policy::limited(3))
            .build()
            .map_err(|error| {
                tracing::error!(%error, "no HTTP client for JWKS_URL");
                ApiError::unexpected()
            })?;
        let this = Self(Arc::new(Inner {
            url,
            algorithm,
            client,
            known: RwLock::default(),
            fetched: Mutex::default(),
        }));
        supervisor.run("jwks-refresh", &this, |jwks| async move {
            loop {
                jwks.fetch(Duration::ZERO).await;
                tokio::time::sleep(if jwks.trouble().is_none() { REFRESH } else { RETRY }).await;
            }
        });
        Ok(this)
    }

    /// The key of that name. A token without a name is good when there is only one key.
    pub(super) async fn key(&self, kid: &str) -> Result<Option<DecodingKey>, Unavailable> {
        match self.known(kid) {
            Some(Some(key)) => Ok(Some(key)),
            _ => {
                self.fetch(RETRY).await;
                self.known(kid).ok_or(Unavailable)
            }
        }
    }

    pub(super) fn trouble(&self) -> Option<&'static str> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        known.is_none().then_some("the keys of JWKS_URL could not be fetched")
    }

    /// Outer nothing: no keys at all. Inner nothing: no such key.
    fn known(&self, kid: &str) -> Option<Option<DecodingKey>> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|keys| match keys.get(kid) {
            Some(key) => Some(key.clone()),
            None if kid.is_empty() && keys.len() == 1 => keys.values().next().cloned(),
            None => None,
        })
    }

    /// Fetches, unless that was done less than `pause` ago.
    async fn fetch(&self, pause: Duration) {
        let mut fetched = self.0.fetched.lock().await;
        if fetched.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        *fetched = Some(Instant::now());
        match self.download().await {
            Ok(keys) => {
                *self.0.known.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
            }
            Err(error) => tracing::warn!(error, "the keys of JWKS_URL could not be fetched"),
        }
    }

    async fn download(&self) -> Result<HashMap<String, DecodingKey>, String> {
        // The URL may carry a credential, so an error is told without it.
        let told = |error: reqwest::Error| error.without_url().to_string();
        let answer = self.0.client.get(self.0.url.clone()).send().await.map_err(told)?;
        let mut answer = answer.error_for_status().map_err(told)?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(told)? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Err(format!("more than {MOST_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let set: JwkSet = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        Ok(set
            .keys
            .iter()
            .filter(|key| fits(key, self.0.algorithm))
            .filter_map(|key| {
                Some((key.common.key_id.clone().unwrap_or_default(), DecodingKey::from_jwk(key).ok()?))
            })
            .collect())
    }
}

/// Whether a key is meant for signatures with the pinned algorithm.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let kind = match key.algorithm {
        AlgorithmParameters::RSA(_) => algorithm == Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(_) => algorithm == Algorithm::ES256,
        _ => false,
    };
    let named = match key.common.key_algorithm {
        None => true,
        Some(KeyAlgorithm::RS256) => algorithm == Algorithm::RS256,
        Some(KeyAlgorithm::ES256) => algorithm == Algorithm::ES256,
        Some(_) => false,
    };
    kind && named && !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption))
}
