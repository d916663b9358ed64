//! The settings of identity, and the refusal to run with secrets that anybody knows; in production also with keys that
//! are shared, or fetched over a line that anybody can change.

use std::net::IpAddr;

use bongsu_kernel::settings::{Bad, Kind, Setting, Values};
use jsonwebtoken::Algorithm;

bongsu_kernel::settings! { pub SETTINGS of "identity":
    pub BONGSU_ENV = "development", kind(Kind::OneOf(&["development", "production"])):
        "In production the hub refuses to start with a development value or a short one as a secret, with a key that services and operators share, and with a JWKS_URL that is not https.";
    pub JWT_SECRET = "local_dev_secret", kind(Kind::Secret):
        "The secret that people's tokens are signed with (HS256).";
    pub JWKS_URL = "", kind(Kind::Url):
        "Where the public keys for people's tokens are published (RS256, ES256). Then JWT_SECRET is not used.";
    pub JWT_ALGORITHM = "", kind(Kind::OneOf(&["HS256", "RS256", "ES256"])):
        "The one algorithm that tokens may have, whatever they say themselves. Unset: HS256, or RS256 with JWKS_URL.";
    pub INTERNAL_API_KEY = "local_dev_internal_key", kind(Kind::Secret):
        "What services send as X-Internal-Key. Several, separated by commas, are valid at once, for rotation.";
    pub ADMIN_API_KEY = "local_dev_admin_key", kind(Kind::Secret):
        "What operators send as X-Admin-Key. Several, separated by commas, are valid at once, for rotation.";
}

/// A secret is at least so long where others can reach the hub.
pub const MIN_SECRET_BYTES: usize = 32;

/// How credentials are checked.
#[derive(Clone)]
pub struct Options {
    pub secret: String,
    pub jwks_url: Option<reqwest::Url>,
    pub algorithm: Algorithm,
    pub internal_keys: Vec<String>,
    pub admin_keys: Vec<String>,
}

impl Options {
    pub fn from_settings(values: &Values) -> Result<Self, Bad> {
        let jwks_url =
            values.given(&JWKS_URL).map(|given| read_jwks_url(given, is_production(values))).transpose()?;
        let algorithm = match (values.given(&JWT_ALGORITHM), &jwks_url) {
            (None | Some("HS256"), None) => Algorithm::HS256,
            (None | Some("RS256"), Some(_)) => Algorithm::RS256,
            (Some("ES256"), Some(_)) => Algorithm::ES256,
            (Some(other), Some(_)) => {
                return Err(Bad::value(&JWT_ALGORITHM, other, "RS256 or ES256 with JWKS_URL"));
            }
            (Some(other), None) => {
                return Err(Bad::value(&JWT_ALGORITHM, other, "HS256 without JWKS_URL"));
            }
        };
        Ok(Self {
            secret: values.text(&JWT_SECRET).to_owned(),
            jwks_url,
            algorithm,
            internal_keys: values.list(&INTERNAL_API_KEY),
            admin_keys: values.list(&ADMIN_API_KEY),
        })
    }

    /// The settings whose secrets anybody knows or could guess.
    pub fn unsafe_secrets(&self) -> Vec<&'static str> {
        let weak = |setting: &Setting, keys: &[String]| {
            keys.is_empty() || keys.iter().any(|key| key == setting.default || key.len() < MIN_SECRET_BYTES)
        };
        let mut found = Vec::new();
        if self.jwks_url.is_none() && weak(&JWT_SECRET, std::slice::from_ref(&self.secret)) {
            found.push(JWT_SECRET.name);
        }
        if weak(&INTERNAL_API_KEY, &self.internal_keys) {
            found.push(INTERNAL_API_KEY.name);
        }
        if weak(&ADMIN_API_KEY, &self.admin_keys) {
            found.push(ADMIN_API_KEY.name);
        }
        found
    }

    /// Refuses to be reachable by others, or to be in production, with such secrets. On loopback they are named.
    pub fn check_secrets(&self, values: &Values, host: IpAddr) -> Result<Vec<&'static str>, Bad> {
        let found = self.unsafe_secrets();
        let production = is_production(values);
        if !found.is_empty() && (production || !host.is_loopback()) {
            let place =
                if production { "with BONGSU_ENV=production".to_owned() } else { format!("on {host}") };
            return Err(Bad(format!(
                "to serve {place}, real secrets are needed (at least {MIN_SECRET_BYTES} bytes, not the development values): {}",
                found.join(", ")
            )));
        }
        if production && self.admin_keys.iter().any(|key| self.internal_keys.contains(key)) {
            return Err(Bad(format!(
                "{} and {} have a key in common: with BONGSU_ENV=production services and operators need different ones",
                INTERNAL_API_KEY.name, ADMIN_API_KEY.name
            )));
        }
        Ok(found)
    }
}

fn is_production(values: &Values) -> bool {
    values.text(&BONGSU_ENV) == "production"
}

/// Whoever can change what an http URL answers can sign in as anyone.
fn read_jwks_url(given: &str, is_production: bool) -> Result<reqwest::Url, Bad> {
    let (schemes, allowed): (&[&str], _) = if is_production {
        (&["https"], "an https URL with BONGSU_ENV=production")
    } else {
        (&["https", "http"], "an http or https URL")
    };
    let url = reqwest::Url::parse(given).ok();
    let url = url.filter(|url| schemes.contains(&url.scheme()) && url.has_host());
    url.ok_or_else(|| Bad::value(&JWKS_URL, given, allowed))
}
