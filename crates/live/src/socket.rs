//! A WebSocket: one connection whose client subscribes to and unsubscribes from subjects.
//!
//! Each room, and the person's inbox, has its own reader, as on a stream of several subjects. A message names its
//! subject and carries the subject's own position. One request is handled at a time; meanwhile no further request is
//! read from the client.

use std::collections::VecDeque;
use std::fmt::Write;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_http::Person;
use bongsu_http::websocket::{self, Output, Session};
use bongsu_kernel::{Close, Code, Id, StreamId};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::connection::ConnectionGuard;
use crate::encode::{Encoder, Target};
use crate::log::BoxFuture;
use crate::message::{Message, MessageId};
use crate::reader::{Reader, ReaderOutput};
use crate::stream::{BoxedGuard, CloseHandle};
use crate::{Hub, OpenError, SubjectName};

/// The future that a policy or operation returns; an error code is sent to the client.
pub type PolicyFuture<T> = BoxFuture<'static, Result<T, Code>>;

/// The decisions of the part that owns the connection.
pub trait SocketPolicy: Send {
    /// The subject of a target, or the error code of the refusal.
    fn subject(&self, target: &Target) -> Result<SubjectName, Code>;

    /// Whether the person may read a target. Called again after the subscription was made.
    fn may_read(&self, target: &Target) -> PolicyFuture<()>;

    /// Called when a target was subscribed. The returned guard is kept until the target is unsubscribed. `close_handle`
    /// closes the whole connection.
    fn on_subscribed(&self, target: &Target, close_handle: CloseHandle) -> PolicyFuture<BoxedGuard>;

    /// Maximum number of rooms that one connection may subscribe to.
    fn max_rooms(&self) -> usize;
}

/// An operation that a part adds to WebSockets: `{"op":"<name>",...}`.
pub trait Operation: Send + Sync {
    /// Handles a whole request. The returned JSON object is sent as a message; an error code is sent as an error.
    fn call(&self, person: &Person, request: &str) -> PolicyFuture<String>;
}

pub struct LiveSocket {
    // Declared before `connection`, so that subscriptions are dropped before the person's connection is uncounted.
    readers: Vec<SocketSubscription>,
    /// The request that is being handled.
    request: Option<BoxFuture<'static, RequestOutcome>>,
    connection: ConnectionGuard,
    person: Person,
    policy: Box<dyn SocketPolicy>,
    replies: VecDeque<Bytes>,
    next_reader: usize,
}

/// The result of a request.
enum RequestOutcome {
    /// The reader and its guard, or the error code of a refusal.
    Subscribed(Target, Result<(Reader, BoxedGuard), Code>),
    Answered(Result<String, Code>),
}

/// A subscribed target.
struct SocketSubscription {
    target: Target,
    reader: Reader,
    /// Dropped when the target is unsubscribed.
    _guard: BoxedGuard,
}

#[derive(Deserialize)]
struct OperationName {
    op: String,
}

/// The fields of `subscribe` and `unsubscribe`.
#[derive(Deserialize)]
struct SubscriptionRequest {
    room: Option<Id>,
    #[serde(default)]
    inbox: bool,
    /// Parsed separately, so that a refusal can name the target.
    #[serde(default)]
    since: Value,
}

impl SubscriptionRequest {
    fn target(&self) -> Option<Target> {
        match (&self.room, self.inbox) {
            (Some(room), false) => Some(Target::Room(room.clone())),
            (None, true) => Some(Target::Inbox),
            _ => None,
        }
    }

    /// The position after which the client resumes; Some(None) if the client sent none, None if it is invalid.
    fn position(&self, target: &Target) -> Option<Option<StreamId>> {
        let since = match &self.since {
            Value::Null => return Some(None),
            Value::String(since) if since.is_empty() => return Some(None),
            Value::String(since) => since,
            _ => return None,
        };
        match target {
            Target::Room(_) => since.parse().ok().map(Some),
            Target::Inbox => StreamId::from_number(since).map(Some),
        }
    }
}

impl LiveSocket {
    pub(crate) fn new(connection: ConnectionGuard, person: Person, policy: Box<dyn SocketPolicy>) -> Self {
        let (readers, replies) = (Vec::new(), VecDeque::new());
        Self { readers, request: None, connection, person, policy, replies, next_reader: 0 }
    }

    fn reply(&mut self, event: &str, code: Option<Code>, id: Option<MessageId>, target: Option<&Target>) {
        let mut text = format!("{{\"event\":\"{event}\"");
        // Writing to a String cannot fail. None of these fields has a character that JSON has to escape.
        if let Some(code) = code {
            let _ = write!(text, ",\"code\":\"{}\"", code.as_str());
        }
        if let Some(id) = id {
            let _ = write!(text, ",\"id\":\"{id}\"");
        }
        let _ = match target {
            Some(target) => write!(text, ",{target}}}"),
            None => write!(text, ",\"room\":null}}"),
        };
        self.replies.push_back(websocket::text(text.as_bytes()));
    }

    fn refuse(&mut self, code: Code, target: Option<&Target>) {
        self.reply("error", Some(code), None, target);
    }

    fn subscribe(&mut self, target: Target, since: Option<StreamId>) {
        // Subscribing again replaces the subscription and starts at the position that the client sent.
        self.unsubscribe(&target);
        let rooms = self.readers.iter().filter(|reader| reader.target != Target::Inbox).count();
        if target != Target::Inbox && rooms >= self.policy.max_rooms() {
            return self.refuse(Code::Common429, Some(&target));
        }
        let subject = match self.policy.subject(&target) {
            Ok(subject) => subject,
            Err(code) => return self.refuse(code, Some(&target)),
        };
        let (access, access_after) = (self.policy.may_read(&target), self.policy.may_read(&target));
        let (handle, encoder) =
            (self.connection.handle.clone(), Encoder::websocket(&target, self.connection.language));
        let guard = self.policy.on_subscribed(&target, self.connection.close_handle());
        let open = async move {
            access.await?;
            let reader = Hub::read(&handle, subject, since, encoder).await.map_err(|error| match error {
                OpenError::Log(_) | OpenError::Unavailable(_) => Code::Sse5001,
                OpenError::TooManyForPerson | OpenError::TooMany => Code::Common429,
            })?;
            access_after.await?;
            Ok((reader, guard.await?))
        };
        self.request = Some(Box::pin(async move { RequestOutcome::Subscribed(target, open.await) }));
    }

    fn unsubscribe(&mut self, target: &Target) {
        self.readers.retain(|reader| reader.target != *target);
    }

    /// Polls the request that is being handled.
    fn poll_request(&mut self, cx: &mut Context<'_>) {
        let Some(Poll::Ready(outcome)) = self.request.as_mut().map(|request| request.as_mut().poll(cx))
        else {
            return;
        };
        self.request = None;
        match outcome {
            RequestOutcome::Subscribed(target, Ok((mut reader, guard))) => {
                let id = reader.position().map(|_| reader.resume_message_id());
                self.reply("system.subscribed", None, id, Some(&target));
                self.replies.extend(reader.snapshot_frame(&*guard));
                self.readers.push(SocketSubscription { target, reader, _guard: guard });
            }
            RequestOutcome::Subscribed(target, Err(code)) => self.refuse(code, Some(&target)),
            RequestOutcome::Answered(Ok(answer)) => {
                self.replies.push_back(websocket::text(answer.as_bytes()));
            }
            RequestOutcome::Answered(Err(code)) => self.refuse(code, None),
        }
    }

    /// The next messages of the readers, in turn.
    fn poll_readers(&mut self, cx: &mut Context<'_>) -> Option<(Bytes, Option<Instant>)> {
        for _ in 0..self.readers.len() {
            let at = self.next_reader % self.readers.len();
            self.next_reader = at + 1;
            match self.readers[at].reader.poll_output(cx, &self.connection.person) {
                Poll::Pending => {}
                Poll::Ready(ReaderOutput::Frames(frames, accepted)) => {
                    return Some((frames.into_bytes(), accepted));
                }
                Poll::Ready(ReaderOutput::Removed) => {
                    let SocketSubscription { target, reader, .. } = self.readers.remove(at);
                    return Some((reader.encoder().encode(&Message::removed(removed_data(&target))), None));
                }
                Poll::Ready(ReaderOutput::Failed) => {
                    self.connection.close(Close::EngineLost);
                    return None;
                }
            }
        }
        None
    }

    fn write(&self, bytes: Bytes, now: Instant) -> Poll<Output> {
        self.connection.record_write(now);
        Poll::Ready(Output::Frames(bytes))
    }
}

fn removed_data(target: &Target) -> String {
    match target {
        Target::Room(room) => format!("{{\"roomId\":{}}}", serde_json::to_string(room).unwrap_or_default()),
        Target::Inbox => "{}".to_owned(),
    }
}

impl Session for LiveSocket {
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output> {
        loop {
            // Register before reading, so that no message in between is missed.
            self.connection.handle.state.register_waker(cx.waker());
            if let Some(close) = self.connection.handle.state.pending_close() {
                return Poll::Ready(Output::Close { code: close.code(), reason: close.reason() });
            }
            self.poll_request(cx);
            if let Some(reply) = self.replies.pop_front() {
                return self.write(reply, Instant::now());
            }
            if let Some((bytes, accepted)) = self.poll_readers(cx) {
                let now = self.connection.record_delivery(accepted);
                return self.write(bytes, now);
            }
            if self.connection.handle.state.pending_close().is_some() {
                continue;
            }
            if self.connection.handle.state.take_keepalive() {
                return self.write(websocket::ping(), Instant::now());
            }
            self.connection.handle.state.record_drained();
            return Poll::Pending;
        }
    }

    fn on_message(&mut self, text: &str) {
        let Ok(OperationName { op }) = serde_json::from_str(text) else {
            return self.refuse(Code::Common400, None);
        };
        if op != "subscribe" && op != "unsubscribe" {
            match self.connection.handle.hub.operation(&op) {
                Some(operation) => {
                    let call = operation.call(&self.person, text);
                    self.request = Some(Box::pin(async move { RequestOutcome::Answered(call.await) }));
                }
                None => self.refuse(Code::Common400, None),
            }
            return;
        }
        let subscription = serde_json::from_str::<SubscriptionRequest>(text).ok();
        let target = subscription.as_ref().and_then(SubscriptionRequest::target);
        let (Some(subscription), Some(target)) = (subscription, target) else {
            return self.refuse(Code::Common400, None);
        };
        if op == "unsubscribe" {
            // Succeeds whether or not the target was subscribed.
            self.unsubscribe(&target);
            return self.reply("system.unsubscribed", None, None, Some(&target));
        }
        match subscription.position(&target) {
            Some(since) => self.subscribe(target, since),
            None => self.refuse(Code::Common400, Some(&target)),
        }
    }

    fn can_receive_message(&self) -> bool {
        self.request.is_none() && self.replies.is_empty()
    }
}
