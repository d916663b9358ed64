//! Routing to listeners, without a server: the tests pass the server's pushes to the manager.

use std::sync::Mutex;

use bongsu_kernel::task::Supervisor;

use super::*;
use crate::{Options, RedisAddress};

const CONNECTION: ConnectionId = 1;

/// Records the calls of the bus.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn add(&self, event: &str, channel: &Channel) {
        self.0.lock().unwrap().push(format!("{event} {}", channel.name()));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Listener for Recorder {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        self.add(std::str::from_utf8(payload).unwrap(), channel);
    }

    fn lost(&self, channel: &Channel) {
        self.add("lost", channel);
    }

    fn mark_stale(&self, channel: &Channel) {
        self.add("stale", channel);
    }
}

fn manager() -> SubscriptionManager {
    let address = RedisAddress::parse("redis://127.0.0.1:1").unwrap();
    let options = Options { address, prefix: String::new() };
    SubscriptionManager::new(Redis::start(options, &Supervisor::new()))
}

fn channel(name: &str) -> Channel {
    Channel::OfSlot(name.into())
}

impl SubscriptionManager {
    fn subscribe(&mut self, name: &str, listener: &Arc<Recorder>) -> oneshot::Receiver<()> {
        let (done, confirmed) = oneshot::channel();
        self.execute(Command::Subscribe(channel(name), listener.clone(), done));
        confirmed
    }

    fn unsubscribe(&mut self, name: &str, listener: &Arc<Recorder>) {
        self.execute(Command::Unsubscribe(channel(name), listener.clone()));
    }

    fn push(&mut self, kind: PushKind, data: &[&str]) {
        let data = data.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect();
        self.receive(CONNECTION, PushInfo { kind, data });
    }

    /// The server confirms a subscription that was requested.
    fn confirm(&mut self, name: &str) {
        self.request(CONNECTION, &channel(name));
        self.push(PushKind::SSubscribe, &[name]);
    }
}

#[tokio::test]
async fn messages_reach_only_the_listeners_of_their_channel() {
    let (mut manager, rooms, orders) = (manager(), Arc::default(), Arc::default());
    let mut confirmed = manager.subscribe("room", &rooms);
    let _waits = manager.subscribe("orders", &orders);
    assert!(confirmed.try_recv().is_err());
    manager.confirm("room");
    assert!(confirmed.try_recv().is_ok());
    manager.confirm("orders");
    manager.push(PushKind::SMessage, &["room", "hello"]);
    manager.push(PushKind::SMessage, &["orders", "revoke"]);
    // A [`Channel::Everywhere`] differs from the [`Channel::OfSlot`] with the same name.
    manager.push(PushKind::Message, &["orders", "foreign"]);
    assert_eq!(rooms.take(), ["hello room"]);
    assert_eq!(orders.take(), ["revoke orders"]);
    // The server ends one subscription: the listener of the other channel is not affected.
    manager.push(PushKind::SUnsubscribe, &["room"]);
    assert_eq!(rooms.take(), ["lost room"]);
    manager.confirm("room");
    assert_eq!(rooms.take(), ["stale room"]);
    assert_eq!(orders.take(), [""; 0]);
}

#[tokio::test]
async fn a_channel_with_two_listeners_stays_until_both_have_left() {
    let (mut manager, first, second) = (manager(), Arc::default(), Arc::default());
    let _waits = manager.subscribe("room", &first);
    manager.confirm("room");
    assert!(manager.subscribe("room", &second).try_recv().is_ok(), "it is subscribed already");
    manager.push(PushKind::SMessage, &["room", "both"]);
    assert_eq!(first.take(), ["both room"]);
    // Subscribing the same listener again has no further effect.
    manager.subscribe("room", &second);
    manager.unsubscribe("room", &first);
    manager.push(PushKind::SMessage, &["room", "one"]);
    manager.push(PushKind::SUnsubscribe, &["room"]);
    manager.confirm("room");
    assert_eq!(first.take(), [""; 0]);
    assert_eq!(second.take(), ["both room", "one room", "lost room", "stale room"]);
    manager.unsubscribe("room", &second);
    assert!(manager.channels.is_empty());
}

#[tokio::test]
async fn a_channel_that_was_unsubscribed_while_it_was_located_is_not_requested() {
    let (mut manager, listener) = (manager(), Arc::default());
    manager.subscribe("room", &listener);
    manager.unsubscribe("room", &listener);
    let located = |name: &str| TaskResult::Located(channel(name), Ok("redis://127.0.0.1:1".to_owned()));
    manager.finish(located("room"));
    assert!(manager.links.is_empty(), "nobody needs the server");
    manager.subscribe("orders", &listener);
    manager.finish(located("orders"));
    assert_eq!(manager.links.len(), 1);
}

#[tokio::test]
async fn a_listener_whose_caller_timed_out_is_marked_stale_after_the_confirmation() {
    let (mut manager, listener) = (manager(), Arc::default());
    drop(manager.subscribe("room", &listener));
    assert_eq!(listener.take(), [""; 0]);
    manager.confirm("room");
    assert_eq!(listener.take(), ["stale room"]);
    manager.confirm("room");
    assert_eq!(listener.take(), [""; 0], "once");
}
