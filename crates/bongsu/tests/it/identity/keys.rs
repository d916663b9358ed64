//! Services authenticate by a key in a header; several keys are valid at the same time.

use bongsu_testkit::{Api, Hub, tokens};
use serde_json::json;

use super::hub;
use crate::BONGSU;

#[tokio::test]
async fn a_service_needs_a_key_and_a_person_is_not_a_service() {
    let hub = hub().await;
    let event = json!({"roomId": "a", "eventType": "a.b", "data": {}});
    for api in [Api::new(&hub), Api::http2(&hub)] {
        api.publish(&event).await.expect(200);
        let token = tokens::Claims::new(7).role("admin").sign();
        let nobody = [
            api.anonymous(),
            api.service(""),
            api.service("local_dev_internal_ke"),
            api.service("local_dev_internal_key2"),
            api.service("LOCAL_DEV_INTERNAL_KEY"),
            api.service("local_dev_admin_key"),
            api.service("é"),
            api.bearer(&token),
            api.admin(),
            api.bearer("local_dev_internal_key"),
        ];
        for nobody in nobody {
            nobody.publish(&event).await.expect_error(401, "AUTH4001");
            nobody.publish_batch(std::slice::from_ref(&event)).await.expect_error(401, "AUTH4001");
        }
        // A caller without a valid key gets no information about other faults of the request.
        api.anonymous().post("/api/v1/notifications/publish", json!({})).await.expect_error(401, "AUTH4001");
    }
    assert_eq!(hub.metrics().await.get("events_published_total", &[]), 2.0);
}

#[tokio::test]
async fn old_and_new_keys_are_valid_together_while_they_rotate() {
    let event = json!({"roomId": "a", "eventType": "a.b", "data": {}});
    let hub = Hub::builder(BONGSU).env("INTERNAL_API_KEY", "old-key, new-key").start().await;
    for (key, status) in
        [("old-key", 200), ("new-key", 200), ("old-key, new-key", 401), ("", 401), ("old-key,", 401)]
    {
        assert_eq!(Api::new(&hub).service(key).publish(&event).await.status, status, "{key}");
    }
    hub.restart_with(&[("INTERNAL_API_KEY", "new-key")]).await;
    for (key, status) in [("old-key", 401), ("new-key", 200)] {
        assert_eq!(Api::new(&hub).service(key).publish(&event).await.status, status, "{key}");
    }
}
