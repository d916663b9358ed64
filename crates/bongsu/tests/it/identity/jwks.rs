//! Tokens signed by published keys (JWKS): rotation, outages, and callers who name keys that do not exist.

use std::time::Duration;

use bongsu_testkit::jwks::{Failure, JwksServer, Key};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::{Claims, SECRET};
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, Hub};
use serde_json::json;

use super::{EVENTS_PATH, STREAM_PATH, WAIT_TIMEOUT};
use crate::BONGSU;

async fn hub(server: &JwksServer, algorithm: &str) -> Hub {
    let builder = Hub::builder(BONGSU).env("JWKS_URL", server.url());
    let builder = if algorithm.is_empty() { builder } else { builder.env("JWT_ALGORITHM", algorithm) };
    builder.start().await
}

async fn status(hub: &Hub, token: &str) -> u16 {
    Api::new(hub).bearer(token).get(EVENTS_PATH).await.status
}

#[tokio::test]
async fn tokens_signed_by_jwks_keys_are_accepted_and_new_keys_are_fetched() {
    for (algorithm, make) in [("", Key::rs256 as fn(&str) -> Key), ("ES256", Key::es256)] {
        let (old, new, stranger) = (make("old"), make("new"), make("old"));
        let server = JwksServer::start(&[&old]).await;
        let hub = hub(&server, algorithm).await;
        let by_old = Claims::new(7).sign_by(&old);
        until(WAIT_TIMEOUT, async || status(&hub, &by_old).await == 200).await;
        assert_eq!(
            status(&hub, &Claims::new(7).sign_by(&stranger)).await,
            401,
            "another key with the same key id"
        );
        assert_eq!(status(&hub, &Claims::new(7).expires_in(-5).sign_by(&old)).await, 401);
        assert_eq!(status(&hub, &Claims::new(7).token_type("refresh").sign_by(&old)).await, 401);
        server.rotate(&[&old, &new]);
        let by_new = Claims::new(7).sign_by(&new);
        until(WAIT_TIMEOUT, async || status(&hub, &by_new).await == 200).await;
        assert_eq!(status(&hub, &by_old).await, 200);
        // A stream accepts the same token.
        assert!(Stream::request(&hub, STREAM_PATH).bearer(&by_new).open().await.is_ok());
    }
}

#[tokio::test]
async fn the_algorithm_is_pinned_whatever_a_token_says() {
    let (rsa, ec) = (Key::rs256("rsa"), Key::es256("ec"));
    let server = JwksServer::start(&[&rsa, &ec]).await;
    let hub = hub(&server, "RS256").await;
    let good = Claims::new(7);
    until(WAIT_TIMEOUT, async || status(&hub, &good.sign_by(&rsa)).await == 200).await;
    let public = rsa.jwk()["n"].as_str().unwrap().to_owned();
    let forged = [
        good.sign_by(&ec),
        good.sign_with(SECRET),
        good.unsigned(),
        // The well-known attack: the public key used as an HMAC secret, under the RSA key's id.
        good.clone().header("kid", json!("rsa")).sign_with(&public),
        good.clone().header("kid", json!("rsa")).header("alg", json!("RS256")).sign_with(&public),
        good.clone().header("kid", json!("rsa")).unsigned(),
        good.clone().header("kid", json!("ec")).sign_by(&rsa),
        good.clone().header("kid", json!(5)).sign_by(&rsa),
        good.clone().header("alg", json!("ES256")).sign_by(&rsa),
        good.clone().header("crit", json!(["b64"])).header("b64", json!(true)).sign_by(&rsa),
    ];
    for (which, token) in forged.iter().enumerate() {
        assert_eq!(status(&hub, token).await, 401, "forgery {which}");
    }
}

#[tokio::test]
async fn unknown_keys_do_not_invalidate_the_others() {
    let key = Key::es256("known");
    let server = JwksServer::start(&[]).await;
    server.replace(json!({"keys": [
        {"kty": "OKP", "crv": "X448", "kid": "other", "x": "AAAA"},
        {"kty": "AKP", "alg": "ML-DSA-44", "kid": "tomorrow", "pub": "AAAA"},
        {"kty": "EC", "crv": "P-256", "kid": "broken", "x": "AAAA", "y": "!"},
        {"kty": "RSA", "kid": "cipher", "use": "enc", "alg": "RSA-OAEP-512", "n": "AAAA", "e": "AQAB"},
        key.jwk(),
    ]}));
    let hub = hub(&server, "ES256").await;
    let token = Claims::new(7).sign_by(&key);
    until(WAIT_TIMEOUT, async || status(&hub, &token).await == 200).await;
}

#[tokio::test]
async fn known_keys_are_used_while_the_jwks_server_is_down() {
    let key = Key::es256("k");
    let server = JwksServer::start(&[&key]).await;
    let hub = hub(&server, "ES256").await;
    let token = Claims::new(7).sign_by(&key);
    until(WAIT_TIMEOUT, async || status(&hub, &token).await == 200).await;
    let unknown = Claims::new(7).sign_by(&Key::es256("unknown"));
    for failure in [Failure::Status(500), Failure::Body("{\"keys\":".to_owned())] {
        server.fail(Some(failure));
        let before = server.requests();
        // An unknown key makes the hub fetch the keys again, in vain.
        until(WAIT_TIMEOUT, async || status(&hub, &unknown).await == 401 && server.requests() > before).await;
        assert_eq!(status(&hub, &token).await, 200);
    }
    drop(server);
    assert_eq!((status(&hub, &token).await, status(&hub, &unknown).await), (200, 401));
    assert_eq!(Api::new(&hub).get("/health").await.expect(200).result()["status"], "healthy");
}

#[tokio::test]
async fn without_any_jwks_keys_no_client_is_refused_permanently() {
    let key = Key::es256("k");
    let server = JwksServer::start(&[&key]).await;
    server.fail(Some(Failure::Status(503)));
    let hub = hub(&server, "ES256").await;
    let token = Claims::new(7).sign_by(&key);
    let refused = Api::new(&hub).bearer(&token).get(EVENTS_PATH).await.expect_error(503, "SSE5001");
    assert!(refused.header("retry-after").parse::<u64>().is_ok());
    for request in [Stream::request(&hub, STREAM_PATH), Stream::request(&hub, STREAM_PATH).http2()] {
        let mut passing = request.bearer(&token).open().await.ok().unwrap();
        let close = passing.expect_event("system.close", WAIT_TIMEOUT).await.json();
        assert!(close["code"].as_u64().is_some_and(|code| (3_000..3_500).contains(&code)), "{close}");
        assert_eq!((&close["reconnect"], passing.next_event(WAIT_TIMEOUT).await), (&json!(true), None));
    }
    let health = Api::new(&hub).get("/health").await.expect(200);
    assert_eq!(health.result()["status"], "degraded");
    assert!(health.result()["degraded"].to_string().contains("JWKS_URL"));
    // Requests that need no person work, and everything recovers without a restart.
    Api::new(&hub).publish_to("a", "a.b", json!({})).await;
    server.fail(None);
    until(WAIT_TIMEOUT, async || status(&hub, &token).await == 200).await;
    let health = async || Api::new(&hub).get("/health").await.expect(200).result()["status"].clone();
    until(WAIT_TIMEOUT, async || health().await == "healthy").await;
}

#[tokio::test]
async fn unknown_key_ids_do_not_cause_many_jwks_requests() {
    let key = Key::es256("k");
    let server = JwksServer::start(&[&key]).await;
    let hub = hub(&server, "ES256").await;
    let token = Claims::new(7).sign_by(&key);
    until(WAIT_TIMEOUT, async || status(&hub, &token).await == 200).await;
    let (before, started) = (server.requests(), tokio::time::Instant::now());
    let stranger = Key::es256("x");
    let api = Api::new(&hub);
    let made_up: Vec<String> = (0..300)
        .map(|n| Claims::new(n).header("kid", json!(format!("made-up-{n}"))).sign_by(&stranger))
        .collect();
    let ask = async |token: &String| api.bearer(token).get(EVENTS_PATH).await.expect_error(401, "AUTH4001");
    for part in made_up.chunks(50) {
        futures_util::future::join_all(part.iter().map(ask)).await;
    }
    let most = 1 + started.elapsed().as_secs() / 5;
    let asked = (server.requests() - before) as u64;
    assert!(asked <= most, "{asked} times within {:?}", started.elapsed());
    // A key server that does not answer delays no token whose key is known.
    server.fail(Some(Failure::Slow(Duration::from_secs(30))));
    until(WAIT_TIMEOUT, async || {
        let waits = tokio::time::timeout(Duration::from_millis(500), ask(&made_up[0])).await.is_err();
        let before = tokio::time::Instant::now();
        assert_eq!(status(&hub, &token).await, 200);
        assert!(before.elapsed() < WAIT_TIMEOUT);
        waits
    })
    .await;
}
