//! Personal streams in a real browser: one that was replaced stays away, one that lost its hub comes back.

use bongsu_testkit::tokens::token;
use bongsu_testkit::{Api, Browser, Hub};
use serde_json::json;

use super::{LONG, is_of, like, listen, notify, open};
use crate::BONGSU;

/// Writes down what an EventSource on the personal stream sees.
const FOLLOW: &str = "window.follow = () => {
    const seen = { ids: [], codes: [], replaced: 0, opened: 0, source: new EventSource('/api/notifications/stream') };
    seen.source.addEventListener('open', () => seen.opened += 1);
    seen.source.addEventListener('replaced', () => seen.replaced += 1);
    seen.source.addEventListener('system.close', e => seen.codes.push(JSON.parse(e.data).code));
    seen.source.addEventListener('notification', e => seen.ids.push(Number(e.lastEventId)));
    window.stream = seen;
}";

#[tokio::test]
async fn an_event_source_comes_back_after_its_hub_was_gone_and_stays_away_once_it_was_replaced() {
    let Some(browser) = Browser::start().await else { return };
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    browser.goto(&hub.url("/docs")).await;
    browser.set_cookie("access_token", &token(7)).await;
    browser.eval(FOLLOW).await;
    browser.eval("follow()").await;
    browser.wait_for("stream.opened > 0", LONG).await;
    notify(&api, &like("e1", &[7])).await.expect(202);
    browser.wait_for("stream.ids.length === 1", LONG).await;

    hub.kill9().await;
    browser.wait_for("stream.source.readyState === 0", LONG).await;
    hub.restart().await;
    for n in 2..=4 {
        notify(&api, &like(&format!("e{n}"), &[7])).await.expect(202);
    }
    browser.wait_for("stream.ids.length === 4", LONG).await;
    assert_eq!(browser.eval("[stream.ids, stream.opened > 1]").await, json!([[1, 2, 3, 4], true]));

    let mut newer = Vec::new();
    for _ in 0..3 {
        newer.push(open(listen(&hub, 7)).await);
    }
    browser.wait_for("stream.source.readyState === 2", LONG).await;
    assert_eq!(browser.eval("[stream.codes, stream.replaced]").await, json!([[3500], 1]));
    notify(&api, &like("e5", &[7])).await.expect(202);
    for stream in &mut newer {
        stream.find_event("the entry of e5", LONG, |event| is_of(event, "e5")).await;
    }
    assert_eq!(browser.eval("stream.ids.length").await, 4, "it pushed nobody out again");
}
