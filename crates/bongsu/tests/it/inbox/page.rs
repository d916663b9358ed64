//! Personal streams in a real browser: a replaced stream stays closed, a stream that lost its hub reconnects.

use bongsu_testkit::tokens::token;
use bongsu_testkit::{Api, Browser, Hub};
use serde_json::json;

use super::{RECOUNT_TIMEOUT, is_entry_of, like_notification, notify, open, stream_request};
use crate::BONGSU;

/// Defines `follow()`, which records the events of an EventSource on the personal stream.
const FOLLOW_SCRIPT: &str = "window.follow = () => {
    const seen = { ids: [], codes: [], replaced: 0, opened: 0, source: new EventSource('/api/notifications/stream') };
    seen.source.addEventListener('open', () => seen.opened += 1);
    seen.source.addEventListener('replaced', () => seen.replaced += 1);
    seen.source.addEventListener('system.close', e => seen.codes.push(JSON.parse(e.data).code));
    seen.source.addEventListener('notification', e => seen.ids.push(Number(e.lastEventId)));
    window.stream = seen;
}";

#[tokio::test]
async fn an_event_source_reconnects_after_an_outage_and_not_after_it_was_replaced() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    browser.goto(&hub.url("/docs")).await;
    browser.set_cookie("access_token", &token(7)).await;
    browser.eval(FOLLOW_SCRIPT).await;
    browser.eval("follow()").await;
    browser.wait_for("stream.opened > 0", RECOUNT_TIMEOUT).await;
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    browser.wait_for("stream.ids.length === 1", RECOUNT_TIMEOUT).await;

    hub.kill9().await;
    browser.wait_for("stream.source.readyState === 0", RECOUNT_TIMEOUT).await;
    hub.restart().await;
    for n in 2..=4 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    browser.wait_for("stream.ids.length === 4", RECOUNT_TIMEOUT).await;
    assert_eq!(browser.eval("[stream.ids, stream.opened > 1]").await, json!([[1, 2, 3, 4], true]));

    let mut newer = Vec::new();
    for _ in 0..3 {
        newer.push(open(stream_request(&hub, 7)).await);
    }
    browser.wait_for("stream.source.readyState === 2", RECOUNT_TIMEOUT).await;
    assert_eq!(browser.eval("[stream.codes, stream.replaced]").await, json!([[3500], 1]));
    notify(&api, &like_notification("e5", &[7])).await.expect(202);
    for stream in &mut newer {
        stream.find_event("the entry of e5", RECOUNT_TIMEOUT, |event| is_entry_of(event, "e5")).await;
    }
    assert_eq!(browser.eval("stream.ids.length").await, 4, "it must not reconnect");
}
