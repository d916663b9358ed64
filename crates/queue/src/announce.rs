//! Announces over Redis that a queue has messages, so that a consumer on another instance reads them at once. An
//! announcement may be lost: consumers also read their queues periodically.

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_redis::redis::cmd;
use bongsu_redis::{Channel, Listener, Redis, Repeat};
use tokio::sync::mpsc;

use crate::Queues;

/// Announcements that wait to be sent; beyond it announcements are dropped.
const QUEUE_SIZE: usize = 1_024;
/// Announcements that are sent together: those of the same queue become one.
const BATCH_SIZE: usize = 256;
/// Time between two attempts to subscribe while Redis is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Sends announcements to the other instances of a fleet.
pub(crate) struct Announcer(mpsc::Sender<String>);

impl Announcer {
    pub(crate) fn start(redis: &Redis, queues: &Queues, supervisor: &Supervisor) -> Self {
        let channel = redis.key("queues");
        let subscriber = redis.subscriber(Arc::new(AnnouncementListener(queues.clone())));
        let listened = Channel::Everywhere(channel.as_str().into());
        supervisor.run("queue-announcements", &(subscriber, listened), |(subscriber, channel)| async move {
            while subscriber.subscribe(channel.clone()).await.is_err() {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            std::future::pending::<()>().await;
        });
        let redis = redis.clone();
        Self(supervisor.queue("queue-announcer", (QUEUE_SIZE, BATCH_SIZE), move |mut names: Vec<String>| {
            let (redis, channel) = (redis.clone(), channel.clone());
            async move {
                names.sort_unstable();
                names.dedup();
                for name in names {
                    let publish = cmd("PUBLISH").arg(&channel).arg(name).take();
                    let _ = redis.query("publish", &channel, &publish, Repeat::Never).await;
                }
            }
        }))
    }

    pub(crate) fn announce(&self, queue: &str) {
        // A full buffer is not an error, because consumers read their queues periodically.
        let _ = self.0.try_send(queue.to_owned());
    }
}

struct AnnouncementListener(Queues);

impl Listener for AnnouncementListener {
    fn message(&self, _: &Channel, payload: &[u8]) {
        if let Some(queue) = std::str::from_utf8(payload).ok().and_then(|name| self.0.queue(name).ok()) {
            queue.arrived.notify_one();
        }
    }

    fn mark_stale(&self, _: &Channel) {
        self.0.notify_all();
    }
}
