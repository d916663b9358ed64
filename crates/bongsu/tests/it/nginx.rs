//! A hub behind nginx with the shipped configuration (`deploy/nginx.conf`), seen from a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::tokens::token;
use bongsu_testkit::{Api, Browser, Hub, Nginx, proof, tier};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Defines the list `pages` and `open(url)`, which opens an EventSource in its own page and keeps its events.
const OPEN_PAGE_SCRIPT: &str = "window.pages = [], window.open = url => {
    const frame = document.body.appendChild(document.createElement('iframe'));
    const page = { numbers: {}, opened: 0, errors: 0, source: new frame.contentWindow.EventSource(url) };
    const keep = (room, number) => (page.numbers[room] ??= []).push(number);
    page.source.addEventListener('open', () => page.opened += 1);
    page.source.addEventListener('error', () => page.errors += 1);
    page.source.addEventListener('test.happened', e => keep(JSON.parse(e.data).inRoom, JSON.parse(e.data).number));
    page.source.addEventListener('notification', e => keep('inbox', Number(JSON.parse(e.data).eventId)));
    pages.push(page);
}";

/// Opens a page on nginx's origin that is signed in as person 7 and has `open`.
async fn goto(browser: &Browser, nginx: &Nginx) {
    browser.goto(&format!("https://{}/docs", nginx.addr())).await;
    browser.set_cookie("access_token", &token(7)).await;
    browser.eval(OPEN_PAGE_SCRIPT).await;
}

async fn open(browser: &Browser, url: &str) {
    browser.eval(&format!("open('{url}')")).await;
}

/// Publishes a number to both rooms and to the inbox of person 7.
async fn publish(hub: &Hub, number: u64) {
    let api = Api::new(hub);
    for room in ["a", "b"] {
        api.publish_to(room, "test.happened", json!({"number": number, "inRoom": room})).await;
    }
    let notice = json!({"eventId": number.to_string(), "type": "POST_LIKE", "targetIds": [7], "actorId": 2,
        "refId": 100, "payload": {"actorName": "봉수"}});
    api.post("/api/v1/members/notify", notice).await.expect(202);
}

/// Waits until each of the six pages has received all numbers, and checks that each number came once and in order.
async fn assert_all_received(browser: &Browser, last: u64) {
    let all: Vec<u64> = (1..=last).collect();
    let (room, both, inbox) = (json!({"a": all}), json!({"a": all, "b": all}), json!({"inbox": all}));
    let expected = json!([room, room, both, both, inbox, inbox]);
    // The condition uses the sources that each page should have, because a page without any event has no list to
    // check.
    let condition = format!(
        "{expected}.every((sources, n) => Object.keys(sources).every(source => \
         pages[n].numbers[source]?.at(-1) >= {last}))"
    );
    browser.wait_for(&condition, WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("pages.map(page => page.numbers)").await, expected);
}

/// Waits until every page has lost its stream and has then reconnected to nginx while no hub was running.
async fn assert_all_wait(browser: &Browser, errors_before: &Value) {
    let condition = format!("pages.every((page, n) => page.errors >= {errors_before}[n] + 2)");
    browser.wait_for(&condition, WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("pages.filter(page => page.source.readyState === 2).length").await, 0);
}

#[tokio::test]
async fn pages_come_back_through_nginx_after_kills_and_clean_stops_and_miss_nothing() {
    if !tier::needs_engine("nginx") {
        return;
    }
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).records().env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let nginx = Nginx::shipped(hub.addr()).await;
    goto(&browser, &nginx).await;
    let streams = ["/api/v1/rooms/a/stream", "/api/v1/stream?rooms=a,b", "/api/notifications/stream"];
    for stream in streams.into_iter().flat_map(|stream| [stream; 2]) {
        open(&browser, stream).await;
    }
    browser.wait_for("pages.every(page => page.opened > 0)", WAIT_TIMEOUT).await;
    let mut number = 1;
    publish(&hub, number).await;
    assert_all_received(&browser, number).await;
    let rounds = tier::size(1, 5);
    for round in 0..rounds * 2 {
        let errors = browser.eval("pages.map(page => page.errors)").await;
        if round % 2 == 0 {
            hub.kill9().await;
        } else {
            assert!(hub.terminate().await.success(), "a drained hub must exit with 0");
        }
        assert_all_wait(&browser, &errors).await;
        hub.restart().await;
        for _ in 0..3 {
            number += 1;
            publish(&hub, number).await;
        }
        assert_all_received(&browser, number).await;
    }
    let facts = json!({"pages": 6, "kills": rounds, "cleanStops": rounds, "events": number});
    proof::record(
        "nginx",
        "pages_come_back_through_nginx_after_kills_and_clean_stops_and_miss_nothing",
        &facts,
    );
}

#[tokio::test]
async fn a_web_socket_and_eight_streams_of_one_page_pass_nginx() {
    if !tier::needs_engine("nginx") {
        return;
    }
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let nginx = Nginx::shipped(hub.addr()).await;
    goto(&browser, &nginx).await;
    for _ in 0..8 {
        open(&browser, "/api/v1/rooms/a/stream").await;
    }
    // Over HTTP/1.1 a browser would open six connections at most.
    browser.wait_for("pages.every(page => page.opened > 0)", WAIT_TIMEOUT).await;
    let socket = "window.messages = [], window.socket = new WebSocket(`wss://${location.host}/api/v1/ws`),
        socket.onopen = () => socket.send(JSON.stringify({op: 'subscribe', room: 'a'})),
        socket.onmessage = e => messages.push(JSON.parse(e.data))";
    browser.eval(&format!("({socket}, true)")).await;
    browser.wait_for("messages.some(message => message.event === 'system.subscribed')", WAIT_TIMEOUT).await;
    Api::new(&hub).publish_to("a", "test.happened", json!({"number": 1, "inRoom": "a"})).await;
    browser.wait_for("pages.every(page => page.numbers.a?.length === 1)", WAIT_TIMEOUT).await;
    browser.wait_for("messages.some(message => message.event === 'test.happened')", WAIT_TIMEOUT).await;
}

#[tokio::test]
async fn nginx_answers_with_the_envelope_without_a_hub_and_doctor_tests_the_proxy() {
    if !tier::needs_engine("nginx") {
        return;
    }
    let hub = Hub::builder(BONGSU).start().await;
    let nginx = Nginx::shipped_without_tls(hub.addr()).await;
    let mut doctor = std::process::Command::new(BONGSU);
    doctor.args(["doctor", "--url", &nginx.url()]).env_clear().env("DATA_DIR", hub.data_dir());
    let found = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
    assert_eq!(found.matches("arrives without being buffered").count(), 3, "{found}");
    assert!(found.contains("WebSockets pass") && !found.contains("BAD"), "{found}");
    hub.kill9().await;
    let refused = Api::at(&nginx.url()).get("/api/v1/rooms/a/events").await.expect(503);
    assert_eq!((&refused.body["isSuccess"], &refused.body["code"]), (&json!(false), &json!("COMMON503")));
}
