//! Authentication: people by token, cookie or ticket, services by key; and the errors that all others get.

mod errors;
mod hosts;
mod jwks;
mod keys;
mod origins;
mod secrets;
mod tickets;

use std::time::Duration;

use bongsu_testkit::jwks::Key;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::{self, Claims};
use bongsu_testkit::{Answer, Api, Hub};
use serde_json::json;

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const EVENTS_PATH: &str = "/api/v1/rooms/a/events?since=0-0";
const STREAM_PATH: &str = "/api/v1/rooms/a/stream";
const TICKETS_PATH: &str = "/api/v1/stream-tickets";

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

/// Requests a page of events, which needs a person, with exactly these headers.
async fn ask(api: &Api, headers: &[(&str, &str)]) -> Answer {
    api.raw("GET", EVENTS_PATH, headers, "").await
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn cookie(token: &str) -> String {
    format!("theme=dark; access_token={token}; lang=ko")
}

/// Opens a stream with these headers; returns the stream, or the status of the refusal.
async fn open_stream(hub: &Hub, path: &str, headers: &[(&str, &str)]) -> Result<Stream, u16> {
    let mut all = vec![("accept", "*/*")];
    all.extend_from_slice(headers);
    Stream::open(hub, path, &all).await.map_err(|answer| answer.status)
}

#[tokio::test]
async fn a_token_is_accepted_in_the_header_or_the_cookie() {
    let hub = hub().await;
    let token = tokens::token("anna");
    for api in [Api::new(&hub), Api::http2(&hub)] {
        ask(&api, &[("authorization", &bearer(&token))]).await.expect(200);
        ask(&api, &[("authorization", &format!("bearer {token}"))]).await.expect(200);
        ask(&api, &[("cookie", &cookie(&token))]).await.expect(200);
        ask(&api, &[("cookie", "a=b"), ("cookie", &format!("access_token={token}"))]).await.expect(200);
        ask(&api, &[]).await.expect_error(401, "AUTH4001");
        ask(&api, &[("cookie", "access_token=; a=b")]).await.expect_error(401, "AUTH4001");
        ask(&api, &[("cookie", &format!("xaccess_token={token}"))]).await.expect_error(401, "AUTH4001");
    }
}

#[tokio::test]
async fn a_token_in_the_url_is_accepted_on_streams_only() {
    let hub = hub().await;
    let (api, token) = (Api::new(&hub), tokens::token(7));
    assert!(open_stream(&hub, &format!("{STREAM_PATH}?token={token}"), &[]).await.is_ok());
    assert_eq!(open_stream(&hub, &format!("{STREAM_PATH}?token=x{token}"), &[]).await.err(), Some(401));
    api.raw("GET", &format!("{EVENTS_PATH}&token={token}"), &[], "").await.expect_error(401, "AUTH4001");
    api.raw("POST", &format!("{TICKETS_PATH}?token={token}"), &[], "").await.expect_error(401, "AUTH4001");
}

#[tokio::test]
async fn a_malformed_header_is_refused_without_trying_another_credential() {
    let hub = hub().await;
    let (api, token) = (Api::new(&hub), tokens::token(7));
    let good_cookie = cookie(&token);
    let malformed = [
        "",
        "Bearer",
        "Bearer ",
        token.as_str(),
        "Basic dXNlcjpwYXNz",
        "Bearer a b",
        "Bearer  x",
        "Bearer x.y.z",
        "Token x",
        "Bearer é",
        "Bearer null",
    ];
    for header in malformed {
        ask(&api, &[("authorization", header), ("cookie", &good_cookie)]).await.expect_error(401, "AUTH4001");
        let path = format!("{STREAM_PATH}?token={token}");
        let by_address =
            open_stream(&hub, &path, &[("authorization", header), ("cookie", &good_cookie)]).await;
        assert_eq!(by_address.err(), Some(401), "{header:?}");
    }
}

#[tokio::test]
async fn the_header_wins_over_the_cookie_the_cookie_over_the_ticket_the_ticket_over_the_token() {
    // Each person may have one stream: a person who is refused a second one was recognised.
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 1).start().await;
    let api = Api::new(&hub);
    let ticket_of = async |person: &str| {
        let answer = api.person(person).post(TICKETS_PATH, json!({})).await.expect(200);
        answer.result()["ticket"].as_str().unwrap_or_default().to_owned()
    };
    let person =
        |name: &str| (bearer(&tokens::token(name)), cookie(&tokens::token(name)), tokens::token(name));
    let (busy_header, busy_cookie, busy_token) = person("busy");
    let (free_header, free_cookie, free_token) = person("free");
    let _busy = open_stream(&hub, STREAM_PATH, &[("authorization", &busy_header)]).await.ok().unwrap();
    let by = async |query: String, headers: &[(&str, &str)]| {
        let opened = open_stream(&hub, &format!("{STREAM_PATH}{query}"), headers).await.map(Stream::close);
        // The connection must be released before the next attempt.
        bongsu_testkit::wait::until(WAIT_TIMEOUT, async || {
            hub.metrics().await.get("sse_active_connections", &[]) == 1.0
        })
        .await;
        opened
    };
    let (free_ticket, busy_ticket) = (ticket_of("free").await, ticket_of("busy").await);
    let query = |ticket: &str, token: &str| format!("?ticket={ticket}&token={token}");
    let all_busy = query(&busy_ticket, &busy_token);
    assert_eq!(by(all_busy, &[("authorization", &free_header), ("cookie", &busy_cookie)]).await, Ok(()));
    assert_eq!(
        by(query(&free_ticket, &free_token), &[("authorization", &busy_header), ("cookie", &free_cookie)])
            .await,
        Err(429)
    );
    assert_eq!(by(query(&busy_ticket, &busy_token), &[("cookie", &free_cookie)]).await, Ok(()));
    assert_eq!(by(query(&free_ticket, &free_token), &[("cookie", &busy_cookie)]).await, Err(429));
    // None of these attempts has used up the tickets.
    assert_eq!(by(query(&free_ticket, &busy_token), &[]).await, Ok(()));
    assert_eq!(by(query(&busy_ticket, &free_token), &[]).await, Err(429));
}

#[tokio::test]
async fn a_token_that_is_expired_forged_or_of_the_wrong_kind_is_refused() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let good = Claims::new(7);
    let rsa = Key::rs256("k");
    let confused = |algorithm: &str| good.clone().header("alg", json!(algorithm)).sign();
    let refused = [
        ("expired", good.clone().expires_in(-1).sign()),
        ("expired long ago", good.clone().exp(0).sign()),
        ("issued too long ago", good.clone().iat(tokens::now() - 401 * 86_400).sign()),
        ("issued in the future", good.clone().iat(tokens::now() + 60).sign()),
        ("another secret", good.sign_with("another secret")),
        ("an empty secret", good.sign_with("")),
        ("not signed", good.unsigned()),
        ("not signed, in capitals", good.clone().header("alg", json!("NONE")).unsigned()),
        ("says RS256", confused("RS256")),
        ("says ES256", confused("ES256")),
        ("says HS512", confused("HS512")),
        ("says none but is signed", confused("none")),
        ("signed by a key of its own", good.sign_by(&rsa)),
        ("brings its key along", good.clone().header("jwk", rsa.jwk()).sign_by(&rsa)),
        (
            "asks for what is not understood",
            good.clone().header("crit", json!(["exp"])).header("exp", json!(1)).sign(),
        ),
        ("asks for nothing, but asks", good.clone().header("crit", json!([])).sign()),
        ("asks in no known way", good.clone().header("crit", json!("exp")).sign()),
        ("a refresh token", good.clone().token_type("refresh").sign()),
        ("an entry token", good.clone().token_type("entry").sign()),
        ("an empty kind", good.clone().token_type("").sign()),
        ("a kind that is no text", good.clone().extra("token_type", json!(5)).sign()),
        ("no sub", good.clone().without("sub").sign()),
        ("no iat", good.clone().without("iat").sign()),
        ("no exp", good.clone().without("exp").sign()),
        ("exp as text", good.clone().extra("exp", json!("9999999999")).sign()),
        ("an empty sub", good.clone().subject("").sign()),
        ("a sub with a space", good.clone().subject("a b").sign()),
        ("a sub that is too long", good.clone().subject("x".repeat(129)).sign()),
        (
            "a sub that JavaScript would change",
            good.clone().extra("sub", json!(9_007_199_254_740_993_i64)).sign(),
        ),
        ("a sub that is a list", good.clone().extra("sub", json!([7])).sign()),
        ("not valid yet", good.clone().extra("nbf", json!(tokens::now() + 600)).sign()),
        ("cut", good.sign().trim_end_matches(|c| c != '.').to_owned()),
        ("with more behind it", format!("{}x", good.sign())),
        ("two dots", "..".to_owned()),
    ];
    for (what, token) in &refused {
        for headers in [[("authorization", bearer(token))], [("cookie", format!("access_token={token}"))]] {
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            let answer = ask(&api, &headers).await;
            assert_eq!((answer.status, answer.code()), (401, "AUTH4001"), "{what}");
        }
    }
    let taken = [
        good.clone().token_type("access"),
        good.clone().extra("sub", json!(7)),
        good.clone()
            .extra("jti", json!("x"))
            .extra("email", json!("a@b.c"))
            .extra("provider", json!("kakao")),
        good.clone().role("admin"),
        good.clone().subject("x".repeat(128)),
        good.clone().extra("aud", json!("somebody else")),
        good.clone().exp(i64::MAX),
        good.clone().iat(tokens::now() - 399 * 86_400),
    ];
    for claims in taken {
        let answer = ask(&api, &[("authorization", &bearer(&claims.sign()))]).await;
        assert_eq!(answer.status, 200, "{claims:?}: {}", answer.text());
    }
}
