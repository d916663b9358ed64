//! The hub with a real EventSource in a real browser. An EventSource reconnects on its own, with the last id
//! that it received, after every end of a stream, and gives up for good on any status other than 200, such as
//! 204. The API page (`/docs`) is tested here as well.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is a panic with its reason")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::{Claims, token};
use bongsu_testkit::{Api, Browser, Fixture, Hub, tier, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const STREAM_PATH: &str = "/api/v1/rooms/42/stream";
const IS_CLOSED_SCRIPT: &str = "stream.source.readyState === 2";

/// Defines `follow(url, options)`, which opens an EventSource and records its events in `stream`.
const FOLLOW_SCRIPT: &str = "window.follow = (url, options) => {
    const seen = { numbers: [], ids: [], codes: [], opened: 0, source: new EventSource(url, options) };
    seen.source.addEventListener('open', () => seen.opened += 1);
    seen.source.addEventListener('system.close', e => seen.codes.push(JSON.parse(e.data).code));
    seen.source.addEventListener('test.happened', e => {
        seen.numbers.push(JSON.parse(e.data).number);
        seen.ids.push(e.lastEventId);
    });
    window.stream = seen;
}";

/// Opens a page at this address and defines `follow` in it.
async fn goto(browser: &Browser, url: &str) {
    browser.goto(url).await;
    browser.eval(FOLLOW_SCRIPT).await;
}

/// Opens a page on the hub's own origin whose EventSource reads room 42, with this token as its cookie.
async fn open_following_page(browser: &Browser, hub: &Hub, token: &str) {
    goto(browser, &hub.url("/docs")).await;
    follow(browser, token).await;
}

/// Sets the cookie and opens the EventSource on a page that already has `follow`.
async fn follow(browser: &Browser, token: &str) {
    browser.set_cookie("access_token", token).await;
    browser.eval(&format!("follow('{STREAM_PATH}')")).await;
    browser.wait_for("stream.opened > 0", WAIT_TIMEOUT).await;
}

async fn publish(hub: &Hub, numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let (api, mut ids) = (Api::new(hub), Vec::new());
    for number in numbers {
        ids.push(api.publish_to(42, "test.happened", json!({ "number": number })).await);
    }
    ids
}

async fn received(browser: &Browser, count: u64) -> Value {
    browser.wait_for(&format!("stream.numbers.length >= {count}"), WAIT_TIMEOUT).await;
    browser.eval("stream.numbers").await
}

fn numbers_to(last: u64) -> Value {
    json!((1..=last).collect::<Vec<_>>())
}

/// How often the hub answered requests to this path with this status.
async fn answers(hub: &Hub, path: &str, status: &str) -> u64 {
    hub.metrics().await.get("http_requests_total", &[("path", path), ("status", status)]) as u64
}

const STREAM_ROUTE_PATH: &str = "/api/v1/rooms/{roomId}/stream";

#[tokio::test]
async fn an_event_source_reconnects_after_kill_9_and_receives_every_event_once() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).start().await;
    open_following_page(&browser, &hub, &token(7)).await;
    let mut ids = publish(&hub, 1..=10).await;
    assert_eq!(received(&browser, 10).await, numbers_to(10));

    hub.kill9().await;
    browser.wait_for("stream.source.readyState === 0", WAIT_TIMEOUT).await;
    let event = json!({"roomId": 42, "eventType": "test.happened", "data": {"number": 99}});
    Api::new(&hub).try_publish(event).await.expect_err("no hub runs that accepts an event");
    hub.restart().await;

    // Some events are published before the EventSource is connected again, some after.
    ids.extend(publish(&hub, 11..=20).await);
    assert_eq!(received(&browser, 20).await, numbers_to(20));
    ids.extend(publish(&hub, 21..=25).await);
    assert_eq!(received(&browser, 25).await, numbers_to(25));
    assert_eq!(browser.eval("stream.ids").await, json!(ids), "every event carries its id");
    assert_eq!(browser.eval("[stream.opened > 1, stream.source.readyState]").await, json!([true, 1]));
}

#[tokio::test]
async fn an_event_source_misses_no_event_while_the_hub_is_restarted_under_load() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).start().await;
    open_following_page(&browser, &hub, &token(7)).await;
    let done = AtomicBool::new(false);
    let publishing = async {
        let (api, mut number) = (Api::new(&hub), 0);
        while !done.load(Ordering::Relaxed) {
            number += 1;
            let event = json!({"roomId": 42, "eventType": "test.happened", "data": {"number": number},
                "idempotencyKey": format!("number {number}")});
            // Like a service, the test repeats the publish with the same key until it is acknowledged.
            let acknowledged =
                async || api.try_publish(&event).await.is_ok_and(|answer| answer.status == 200);
            wait::until(WAIT_TIMEOUT, acknowledged).await;
        }
        number
    };
    let draining = async {
        for _ in 0..2 {
            let opened = browser.eval("stream.opened").await;
            let before = browser.eval("stream.numbers.length").await;
            browser.wait_for(&format!("stream.numbers.length > {before}"), WAIT_TIMEOUT).await;
            assert!(hub.terminate().await.success(), "a drained hub must exit with 0");
            hub.restart().await;
            browser.wait_for(&format!("stream.opened > {opened}"), WAIT_TIMEOUT).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(publishing, draining);
    assert_eq!(received(&browser, last).await, numbers_to(last));
    let codes = browser.eval("[...new Set(stream.codes)]").await;
    assert_eq!(codes, json!([3000]), "the hub must close with 3000");
}

#[tokio::test]
async fn an_event_source_with_an_expired_token_is_answered_204_and_does_not_reconnect() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).movable_clock().start().await;
    goto(&browser, &hub.url("/docs")).await;
    follow(&browser, &Claims::new(7).expires_in(600).sign()).await;
    publish(&hub, [1]).await;
    assert_eq!(received(&browser, 1).await, numbers_to(1));
    hub.move_clock(Duration::from_secs(600)).await;

    browser.wait_for(IS_CLOSED_SCRIPT, WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("stream.codes").await, json!([3502]));
    let stopped = answers(&hub, STREAM_ROUTE_PATH, "204").await;
    assert!(stopped > 0, "the EventSource was not answered 204");

    // The page starts again with a new token; the old EventSource must not reconnect meanwhile.
    browser.eval("window.old = stream").await;
    follow(&browser, &token(7)).await;
    publish(&hub, [2]).await;
    assert_eq!(received(&browser, 1).await, json!([2]));
    assert_eq!(browser.eval("[old.numbers, old.source.readyState, old.opened]").await, json!([[1], 2, 1]));
    wait::until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 1.0).await;
    assert_eq!(answers(&hub, STREAM_ROUTE_PATH, "204").await, stopped, "the EventSource must not reconnect");
}

#[tokio::test]
async fn an_event_source_over_the_limit_retries_until_a_connection_is_free() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).start().await;
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(
            Stream::request(&hub, STREAM_PATH).person(7).open().await.expect("five streams are allowed"),
        );
    }
    open_following_page(&browser, &hub, &token(7)).await;
    browser.wait_for("stream.codes.length >= 2", WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("[...new Set(stream.codes)]").await, json!([3004]));
    assert_ne!(browser.eval("stream.source.readyState").await, 2, "the EventSource must not give up");
    assert_eq!(browser.eval("stream.numbers").await, json!([]));

    others.pop();
    // From the moment it is connected, the EventSource receives every event.
    let published = AtomicU64::new(0);
    let publish_next = async || publish(&hub, [published.fetch_add(1, Ordering::Relaxed) + 1]).await;
    wait::until(WAIT_TIMEOUT, async || {
        publish_next().await;
        browser.eval("stream.numbers.length > 0").await == true
    })
    .await;
    publish_next().await;
    let last = published.into_inner();
    browser.wait_for(&format!("stream.numbers.at(-1) === {last}"), WAIT_TIMEOUT).await;
    let numbers = browser.eval("stream.numbers").await;
    let first = numbers[0].as_u64().unwrap();
    assert_eq!(numbers, json!((first..=last).collect::<Vec<_>>()));
}

#[tokio::test]
async fn pages_of_allowed_origins_open_streams_with_a_ticket_or_a_cookie() {
    let Some(browser) = Browser::start().await else { return };
    let page = Fixture::page("<!doctype html><title>another origin</title>").await;
    let origins = format!("{},{}", page.origin(), page.other_site());
    let hub = Hub::builder(BONGSU).env("ALLOWED_ORIGINS", origins).start().await;

    // A page on another site sends no cookie, so it requests a ticket with its token.
    goto(&browser, &page.other_site()).await;
    let ask = format!(
        "const answer = await fetch('{}', {{ method: 'POST', headers: {{ Authorization: 'Bearer {}' }} }});
         return (await answer.json()).result;",
        hub.url("/api/v1/stream-tickets"),
        token(7)
    );
    let ticket = browser.eval_async(&ask).await;
    assert_eq!(ticket["expiresIn"], 30);
    let ticket = ticket["ticket"].as_str().unwrap();
    let follow = format!("follow('{}?ticket={ticket}', {{ withCredentials: true }})", hub.url(STREAM_PATH));
    browser.eval(&follow).await;
    browser.wait_for("stream.opened > 0", WAIT_TIMEOUT).await;
    let ids = publish(&hub, 1..=3).await;
    assert_eq!(received(&browser, 3).await, numbers_to(3));
    assert_eq!(browser.eval("stream.ids").await, json!(ids));

    // A ticket can be used once only.
    browser.eval(&follow).await;
    browser.wait_for(IS_CLOSED_SCRIPT, WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("stream.opened").await, 0);

    // With a new ticket the page resumes at its position.
    let ticket = browser.eval_async(&ask).await["ticket"].as_str().unwrap().to_owned();
    let on = format!("{}?ticket={ticket}&lastEventId={}", hub.url(STREAM_PATH), ids[0]);
    browser.eval(&format!("follow('{on}')")).await;
    assert_eq!(received(&browser, 2).await, json!([2, 3]));

    // A page on another origin of the same site: the browser sends the cookie if the page asks for credentials.
    goto(&browser, &page.origin()).await;
    browser.set_cookie("access_token", &token(7)).await;
    browser.eval(&format!("follow('{}', {{ withCredentials: true }})", hub.url(STREAM_PATH))).await;
    browser.wait_for("stream.opened > 0", WAIT_TIMEOUT).await;
    publish(&hub, [4]).await;
    assert_eq!(received(&browser, 1).await, json!([4]));
}

#[tokio::test]
async fn pages_of_foreign_origins_are_refused() {
    let Some(browser) = Browser::start().await else { return };
    let page = Fixture::page("<!doctype html><title>a foreign page</title>").await;
    let hub = Hub::builder(BONGSU).env("ALLOWED_ORIGINS", "https://app.example.com").start().await;
    // The page is on the same site, so the browser would send the cookie.
    goto(&browser, &page.origin()).await;
    browser.set_cookie("access_token", &token(7)).await;
    browser
        .eval(&format!("follow('{}?lastEventId=0-0', {{ withCredentials: true }})", hub.url(STREAM_PATH)))
        .await;
    publish(&hub, 1..=3).await;
    browser.wait_for(IS_CLOSED_SCRIPT, WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("[stream.opened, stream.numbers]").await, json!([0, []]));

    let tickets = hub.url("/api/v1/stream-tickets");
    let signed =
        format!("fetch('{tickets}', {{ method: 'POST', headers: {{ Authorization: 'Bearer x' }} }})");
    let refused = browser.try_eval(&signed).await.unwrap_err();
    assert!(refused.contains("Failed to fetch"), "{refused}");
    assert_eq!(answers(&hub, "/api/v1/stream-tickets", "401").await, 0, "the browser must send no request");
    // A POST that browsers send without a preflight request, with the cookie of the person who visits the page.
    let forged = format!("fetch('{tickets}', {{ method: 'POST', mode: 'no-cors', credentials: 'include' }})");
    browser.eval_async(&format!("await {forged}")).await;
    assert_eq!(answers(&hub, "/api/v1/stream-tickets", "403").await, 1);
    assert_eq!(answers(&hub, "/api/v1/stream-tickets", "200").await, 0);
}

#[tokio::test]
async fn the_api_page_shows_every_operation() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).start().await;
    let document = Api::new(&hub).anonymous().get("/openapi.json").await.expect(200).body;
    let mut operations: Vec<String> = Vec::new();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        operations
            .extend(verbs.as_object().unwrap().keys().map(|verb| format!("{} {path}", verb.to_uppercase())));
    }
    operations.sort_unstable();
    assert!(operations.contains(&format!("GET {STREAM_ROUTE_PATH}")), "{operations:?}");

    browser.goto(&hub.url("/docs")).await;
    browser.wait_for("document.querySelectorAll('.opblock').length", WAIT_TIMEOUT).await;
    let shown = "[...document.querySelectorAll('.opblock')].map(o => o.querySelector('.opblock-summary-method').textContent
        + ' ' + o.querySelector('.opblock-summary-path').dataset.path).sort()";
    assert_eq!(browser.eval(shown).await, json!(operations));
    let first = "document.querySelector('.opblock-tag').dataset.tag";
    assert_eq!(browser.eval(first).await, "rooms", "the tag rooms must come first");
    let folder = env!("CARGO_TARGET_TMPDIR");
    browser.screenshot(format!("{folder}/docs.png")).await;

    // Trying an operation: authorize as a service, and publish the example of the document.
    browser.eval("ui.preauthorizeApiKey('service', 'local_dev_internal_key')").await;
    let publish = "[...document.querySelectorAll('.opblock')]
        .find(o => o.querySelector('.opblock-summary-path').dataset.path == '/api/v1/notifications/publish')";
    browser.eval(&format!("{publish}.querySelector('.opblock-summary-control').click()")).await;
    browser.wait_for(&format!("{publish}.querySelector('.execute')"), WAIT_TIMEOUT).await;
    browser.eval(&format!("{publish}.querySelector('.execute').click()")).await;
    let status =
        format!("{publish}.querySelector('.live-responses-table tbody .response-col_status')?.textContent");
    browser.wait_for(&status, WAIT_TIMEOUT).await;
    assert_eq!(browser.eval(&status).await, "200", "the example of the document can be published");
    browser.screenshot(format!("{folder}/docs-tried.png")).await;
    assert_eq!(browser.console().await, Vec::<String>::new(), "the page loads without an error");

    // On a phone nothing is wider than the screen.
    browser
        .eval("document.body.innerHTML = '<iframe src=/docs width=400 height=860 style=border:0></iframe>'")
        .await;
    browser.eval("window.phone = () => document.querySelector('iframe').contentDocument").await;
    browser.wait_for("phone().querySelectorAll('.opblock').length", WAIT_TIMEOUT).await;
    for number in 0..3 {
        let control = format!("phone().querySelectorAll('.opblock-summary-control')[{number}]");
        browser.eval(&format!("{control}.click()")).await;
        let open = format!("phone().querySelectorAll('.opblock.is-open .opblock-body').length > {number}");
        browser.wait_for(&open, WAIT_TIMEOUT).await;
    }
    browser.screenshot(format!("{folder}/docs-narrow.png")).await;
    let width = browser.eval("phone().documentElement.scrollWidth").await.as_u64().unwrap();
    assert!(width <= 400, "the page is {width} pixels wide on a screen of 400");
}

/// Defines `openTab()`, which opens one EventSource for two rooms and the inbox in an iframe, as a browser tab would,
/// and keeps its events in `tabs`.
const OPEN_TAB_SCRIPT: &str = "window.tabs = [], window.openTab = () => {
    const frame = document.body.appendChild(document.createElement('iframe'));
    const tab = { a: [], b: [], inbox: [], opened: 0, source: new frame.contentWindow.EventSource('/api/v1/stream?rooms=a,b&inbox=1') };
    tab.source.addEventListener('open', () => tab.opened += 1);
    tab.source.addEventListener('test.happened', e => tab[JSON.parse(e.data).roomId].push(JSON.parse(e.data).number));
    tab.source.addEventListener('notification', e => tab.inbox.push(Number(JSON.parse(e.data).eventId)));
    tabs.push(tab);
}";

/// Publishes a number to both rooms and to the inbox of person 7.
async fn publish_everywhere(hub: &Hub, number: u64) {
    let api = Api::new(hub);
    for room in ["a", "b"] {
        api.publish_to(room, "test.happened", json!({ "number": number })).await;
    }
    let notice = json!({"eventId": number.to_string(), "type": "POST_LIKE", "targetIds": [7]});
    api.post("/api/v1/members/notify", notice).await.expect(202);
}

#[tokio::test]
async fn three_tabs_with_two_rooms_and_the_inbox_miss_nothing_through_kill_9_and_leave_the_page_responsive() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).records().start().await;
    goto(&browser, &hub.url("/docs")).await;
    browser.set_cookie("access_token", &token(7)).await;
    browser.eval(OPEN_TAB_SCRIPT).await;
    for _ in 0..3 {
        browser.eval("openTab()").await;
    }
    browser.wait_for("tabs.every(tab => tab.opened > 0)", WAIT_TIMEOUT).await;
    let mut last = 0;
    for round in 0..tier::size(2, 10) {
        for _ in 0..5 {
            last += 1;
            publish_everywhere(&hub, last).await;
        }
        let all = numbers_to(last);
        let has_all = format!("tabs.every(tab => ['a', 'b', 'inbox'].every(of => tab[of].length >= {last}))");
        browser.wait_for(&has_all, WAIT_TIMEOUT).await;
        let seen = browser.eval("tabs.map(tab => [tab.a, tab.b, tab.inbox])").await;
        assert_eq!(seen, json!([[all, all, all], [all, all, all], [all, all, all]]), "round {round}");
        // Over HTTP/1.1 a browser opens at most six connections to one host, and three of them are streams here.
        browser.eval("fetch('/health').then(answer => window.healthStatus = answer.status)").await;
        browser.wait_for("window.healthStatus === 200", WAIT_TIMEOUT).await;
        browser.eval("delete window.healthStatus").await;
        hub.kill9().await;
        browser.wait_for("tabs.every(tab => tab.source.readyState === 0)", WAIT_TIMEOUT).await;
        hub.restart().await;
    }
    assert_eq!(browser.eval("tabs.every(tab => tab.source.readyState !== 2)").await, json!(true));
}
