//! The settings of identity, and the checks of secrets: publicly known and short secrets are allowed only on
//! loopback outside production, and production also needs different keys for services and operators, and an
//! https URL for public keys.

use std::net::IpAddr;

use bongsu_kernel::settings::{Kind, Setting, SettingError, Values};
use jsonwebtoken::Algorithm;

bongsu_kernel::settings! { pub SETTINGS of "identity":
    pub BONGSU_ENV = "development", kind(Kind::OneOf(&["development", "production"])):
        "In production the hub refuses to start with a development value or a short one as a secret, with a key that services and operators share, and with a JWKS_URL that is not https.";
    pub JWT_SECRET = "local_dev_secret", kind(Kind::Secret):
        "The secret that people's tokens are signed with (HS256).";
    pub JWKS_URL = "", kind(Kind::Url):
        "The URL of the public keys that verify people's tokens (RS256, ES256). If it is set, JWT_SECRET is not used.";
    pub JWT_ALGORITHM = "", kind(Kind::OneOf(&["HS256", "RS256", "ES256"])):
        "The algorithm of people's tokens; tokens with another algorithm are refused. Unset: HS256, or RS256 with JWKS_URL.";
    pub INTERNAL_API_KEY = "local_dev_internal_key", kind(Kind::Secret):
        "The key that services send as X-Internal-Key. Several keys, separated by commas, are valid at the same time, for rotation.";
    pub ADMIN_API_KEY = "local_dev_admin_key", kind(Kind::Secret):
        "The key that operators send as X-Admin-Key. Several keys, separated by commas, are valid at the same time, for rotation.";
}

/// Minimum bytes of a secret in production, or on an address other than loopback.
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
    pub fn from_settings(values: &Values) -> Result<Self, SettingError> {
        let jwks_url =
            values.get(&JWKS_URL).map(|url| parse_jwks_url(url, is_production(values))).transpose()?;
        let algorithm = match (values.get(&JWT_ALGORITHM), &jwks_url) {
            (None | Some("HS256"), None) => Algorithm::HS256,
            (None | Some("RS256"), Some(_)) => Algorithm::RS256,
            (Some("ES256"), Some(_)) => Algorithm::ES256,
            (Some(_), Some(_)) => {
                return Err(values.not_allowed(&JWT_ALGORITHM, "RS256 or ES256 with JWKS_URL"));
            }
            (Some(_), None) => return Err(values.not_allowed(&JWT_ALGORITHM, "HS256 without JWKS_URL")),
        };
        Ok(Self {
            secret: values.text(&JWT_SECRET).to_owned(),
            jwks_url,
            algorithm,
            internal_keys: values.list(&INTERNAL_API_KEY),
            admin_keys: values.list(&ADMIN_API_KEY),
        })
    }

    /// The names of the settings whose secrets are development values or too short.
    pub fn weak_secrets(&self) -> Vec<&'static str> {
        let is_weak = |setting: &Setting, keys: &[String]| {
            keys.is_empty() || keys.iter().any(|key| key == setting.default || key.len() < MIN_SECRET_BYTES)
        };
        let mut found = Vec::new();
        if self.jwks_url.is_none() && is_weak(&JWT_SECRET, std::slice::from_ref(&self.secret)) {
            found.push(JWT_SECRET.name);
        }
        if is_weak(&INTERNAL_API_KEY, &self.internal_keys) {
            found.push(INTERNAL_API_KEY.name);
        }
        if is_weak(&ADMIN_API_KEY, &self.admin_keys) {
            found.push(ADMIN_API_KEY.name);
        }
        found
    }

    /// Returns an error if a secret is weak in production or on an address other than loopback, or if services and
    /// operators share a key in production. Otherwise returns the names of the settings with weak secrets.
    pub fn check_secrets(&self, values: &Values, host: IpAddr) -> Result<Vec<&'static str>, SettingError> {
        let weak = self.weak_secrets();
        let production = is_production(values);
        if !weak.is_empty() && (production || !host.is_loopback()) {
            let condition =
                if production { "with BONGSU_ENV=production".to_owned() } else { format!("on {host}") };
            return Err(SettingError(format!(
                "to serve {condition}, set real secrets (at least {MIN_SECRET_BYTES} bytes, not the development values): {}",
                weak.join(", ")
            )));
        }
        if production && self.admin_keys.iter().any(|key| self.internal_keys.contains(key)) {
            return Err(SettingError(format!(
                "{} and {} have a key in common; with BONGSU_ENV=production, services and operators need different keys",
                INTERNAL_API_KEY.name, ADMIN_API_KEY.name
            )));
        }
        Ok(weak)
    }
}

fn is_production(values: &Values) -> bool {
    values.text(&BONGSU_ENV) == "production"
}

/// Parses `JWKS_URL`. Production needs https: an attacker who can change a response over http can sign in as anyone.
fn parse_jwks_url(text: &str, is_production: bool) -> Result<reqwest::Url, SettingError> {
    let (schemes, allowed): (&[&str], _) = if is_production {
        (&["https"], "an https URL with BONGSU_ENV=production")
    } else {
        (&["https", "http"], "an http or https URL")
    };
    let url = reqwest::Url::parse(text).ok();
    let url = url.filter(|url| schemes.contains(&url.scheme()) && url.has_host());
    url.ok_or_else(|| SettingError::invalid_value(&JWKS_URL, text, allowed))
}
