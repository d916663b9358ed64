//! Development secrets: allowed on loopback, refused everywhere else.

use bongsu_testkit::{Api, Hub, hub::Builder};
use serde_json::json;

use crate::BONGSU;

const SECRET_SETTINGS: [&str; 3] = ["JWT_SECRET", "INTERNAL_API_KEY", "ADMIN_API_KEY"];
const LONG_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A hub with three different secrets that are long enough.
pub(super) fn with_real_secrets() -> Builder {
    SECRET_SETTINGS
        .iter()
        .fold(Hub::builder(BONGSU), |builder, name| builder.env(name, format!("{name} {LONG_SECRET}")))
}

/// A hub with these secrets; all others are real ones.
fn hub(secrets: &[(&str, &str)]) -> Builder {
    let builder = with_real_secrets();
    secrets.iter().fold(builder, |builder, (name, value)| builder.env(name, value))
}

/// Starts a hub that must be refused with one line and the exit code of a bad configuration; returns that line.
async fn refusal(builder: Builder) -> String {
    let (status, output) = builder.start_expecting_failure().await;
    assert_eq!(status.code(), Some(2), "{output}");
    assert_eq!(output.trim().lines().count(), 1, "{output}");
    output
}

#[tokio::test]
async fn development_secrets_are_refused_on_any_other_address_and_in_production() {
    for (name, value) in [("SERVER_HOST", "0.0.0.0"), ("SERVER_HOST", "::"), ("BONGSU_ENV", "production")] {
        let line = refusal(Hub::builder(BONGSU).env(name, value)).await;
        assert!(SECRET_SETTINGS.iter().all(|name| line.contains(name)) && line.contains(value), "{line}");
        assert!(!line.contains("local_dev"), "{line}");
    }
}

#[tokio::test]
async fn each_weak_secret_alone_is_enough_to_be_refused() {
    let weak = [
        ("JWT_SECRET", "local_dev_secret".to_owned()),
        ("JWT_SECRET", LONG_SECRET[1..].to_owned()),
        ("INTERNAL_API_KEY", "local_dev_internal_key".to_owned()),
        ("INTERNAL_API_KEY", format!("{LONG_SECRET},short")),
        ("INTERNAL_API_KEY", ",".to_owned()),
        ("ADMIN_API_KEY", "local_dev_admin_key".to_owned()),
        ("ADMIN_API_KEY", format!("{LONG_SECRET},{}", &LONG_SECRET[1..])),
    ];
    for (name, value) in &weak {
        let line = refusal(hub(&[(name, value)]).env("BONGSU_ENV", "production")).await;
        let others = SECRET_SETTINGS.iter().filter(|other| *other != name);
        assert!(line.contains(name) && others.clone().all(|other| !line.contains(other)), "{value}: {line}");
        assert!(!line.contains(value.as_str()) || value == ",", "the line has a secret: {line}");
    }
}

#[tokio::test]
async fn in_production_services_and_operators_have_different_keys() {
    let second = "fedcba9876543210fedcba9876543210";
    let shared =
        [("INTERNAL_API_KEY", format!("{LONG_SECRET},{second}")), ("ADMIN_API_KEY", second.to_owned())];
    let builder = || hub(&shared.each_ref().map(|(name, value)| (*name, value.as_str())));
    let line = refusal(builder().env("BONGSU_ENV", "production")).await;
    assert!(line.contains("INTERNAL_API_KEY") && line.contains("ADMIN_API_KEY"), "{line}");
    assert!(!line.contains(second), "the line has a secret: {line}");
    builder().start().await;
}

#[tokio::test]
async fn in_production_public_keys_come_over_https() {
    let url = "http://me:pass-word@keys.example/jwks.json?key=s3cret";
    let line = refusal(with_real_secrets().env("JWKS_URL", url).env("BONGSU_ENV", "production")).await;
    assert!(
        line.contains("JWKS_URL") && line.contains("https") && line.contains("keys.example/jwks.json"),
        "{line}"
    );
    assert!(!line.contains("pass-word") && !line.contains("s3cret"), "{line}");
    // The keys are not fetched before the first token arrives, so the address need not exist.
    let https = with_real_secrets().env("JWKS_URL", "https://127.0.0.1:1/jwks.json");
    https.env("BONGSU_ENV", "production").start().await;
}

#[tokio::test]
async fn strong_secrets_are_accepted_in_every_mode() {
    let second = "fedcba9876543210fedcba9876543210";
    let builder = hub(&[("INTERNAL_API_KEY", &format!("{LONG_SECRET},{second}"))]);
    let hub = builder.env("SERVER_HOST", "0.0.0.0").env("BONGSU_ENV", "production").start().await;
    Api::new(&hub).service(second).publish_to("a", "a.b", json!({})).await;
    assert!(!hub.log().contains("development secrets"));
}

#[tokio::test]
async fn development_secrets_on_loopback_are_logged_as_a_warning() {
    let hub = Hub::builder(BONGSU).start().await;
    let log = hub.log();
    let line =
        log.lines().find(|line| line.contains("development secrets")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("WARN") && SECRET_SETTINGS.iter().all(|name| line.contains(name)), "{line}");
    assert!(!log.contains("local_dev"));
}
