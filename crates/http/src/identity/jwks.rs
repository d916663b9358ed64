//! Public keys from a JWKS URL: fetched at start, and refreshed in the background and when a token names an unknown
//! key.
//!
//! A failed refresh keeps the previous keys. Tokens that name unknown keys cannot cause more than one fetch per
//! `RETRY_DELAY`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::sync::Mutex;

use crate::answer::ApiError;

const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
const RETRY_DELAY: Duration = Duration::from_secs(5);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_RESPONSE_SIZE: usize = 1 << 20;

#[derive(Clone)]
pub(super) struct Jwks(Arc<Inner>);

struct Inner {
    url: reqwest::Url,
    algorithm: Algorithm,
    client: reqwest::Client,
    keys: RwLock<Option<HashMap<String, DecodingKey>>>,
    /// When the last fetch began. Locked during a fetch, so that many tokens with unknown keys cause one fetch.
    last_fetch: Mutex<Option<Instant>>,
}

/// No fetch of the keys has succeeded yet.
#[derive(Debug)]
pub(super) struct KeysUnavailable;

impl Jwks {
    pub(super) fn start(
        url: reqwest::Url,
        algorithm: Algorithm,
        supervisor: &Supervisor,
    ) -> Result<Self, ApiError> {
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIMEOUT)
            // A redirect must not lead from https to http.
            .https_only(url.scheme() == "https")
            .redirect(reqwest::redirect::Policy::limited(3))
            .build()
            .map_err(|error| {
                tracing::error!(%error, "failed to create the HTTP client for JWKS_URL; the hub does not start");
                ApiError::unexpected()
            })?;
        let (keys, last_fetch) = (RwLock::default(), Mutex::default());
        let this = Self(Arc::new(Inner { url, algorithm, client, keys, last_fetch }));
        supervisor.run("jwks-refresh", &this, |jwks| async move {
            loop {
                jwks.fetch(Duration::ZERO).await;
                let is_degraded = jwks.degraded_reason().is_some();
                tokio::time::sleep(if is_degraded { RETRY_DELAY } else { REFRESH_INTERVAL }).await;
            }
        });
        Ok(this)
    }

    /// The key with this id. An empty id matches if there is only one key.
    pub(super) async fn key(&self, kid: &str) -> Result<Option<DecodingKey>, KeysUnavailable> {
        match self.find(kid) {
            Some(Some(key)) => Ok(Some(key)),
            _ => {
                self.fetch(RETRY_DELAY).await;
                self.find(kid).ok_or(KeysUnavailable)
            }
        }
    }

    pub(super) fn degraded_reason(&self) -> Option<&'static str> {
        let known = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        known.is_none().then_some("the keys of JWKS_URL could not be fetched")
    }

    /// The key with this id. The outer Option is None before the first successful fetch, the inner one if no
    /// key has this id.
    fn find(&self, kid: &str) -> Option<Option<DecodingKey>> {
        let known = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|keys| match keys.get(kid) {
            Some(key) => Some(key.clone()),
            None if kid.is_empty() && keys.len() == 1 => keys.values().next().cloned(),
            None => None,
        })
    }

    /// Fetches the keys, unless the last fetch began less than `min_age` ago.
    async fn fetch(&self, min_age: Duration) {
        let mut last_fetch = self.0.last_fetch.lock().await;
        if last_fetch.is_some_and(|at| at.elapsed() < min_age) {
            return;
        }
        *last_fetch = Some(Instant::now());
        match self.download().await {
            Ok(keys) => {
                *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
            }
            Err(error) => tracing::warn!(error, "failed to fetch the keys from JWKS_URL; retrying"),
        }
    }

    async fn download(&self) -> Result<HashMap<String, DecodingKey>, String> {
        // The URL may contain a credential, so errors are reported without it.
        let error_text = |error: reqwest::Error| error.without_url().to_string();
        let response = self.0.client.get(self.0.url.clone()).send().await.map_err(error_text)?;
        let mut response = response.error_for_status().map_err(error_text)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(error_text)? {
            if body.len() + chunk.len() > MAX_RESPONSE_SIZE {
                return Err(format!("more than {MAX_RESPONSE_SIZE} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let set: JwkSet = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        Ok(set
            .keys
            .iter()
            .filter(|key| is_usable(key, self.0.algorithm))
            .filter_map(|key| {
                Some((key.common.key_id.clone().unwrap_or_default(), DecodingKey::from_jwk(key).ok()?))
            })
            .collect())
    }
}

/// Whether a key is for signatures with the configured algorithm.
fn is_usable(key: &Jwk, algorithm: Algorithm) -> bool {
    let type_matches = match key.algorithm {
        AlgorithmParameters::RSA(_) => algorithm == Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(_) => algorithm == Algorithm::ES256,
        _ => false,
    };
    let algorithm_matches = match key.common.key_algorithm {
        None => true,
        Some(KeyAlgorithm::RS256) => algorithm == Algorithm::RS256,
        Some(KeyAlgorithm::ES256) => algorithm == Algorithm::ES256,
        Some(_) => false,
    };
    type_matches && algorithm_matches && !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption))
}
