//! A WebSocket: one connection whose client says what it wants to follow, and may change its mind.
//!
//! Each room, and the person's inbox, has a reader of its own, as on a stream of several subjects. Messages name what they
//! are about and carry its own id. One request is worked on at a time; while it is, nothing more is read from the client.

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

use crate::connection::Entered;
use crate::encode::{Encoder, Target};
use crate::log::Boxed;
use crate::message::{Message, MessageId};
use crate::reader::{Reader, Said};
use crate::stream::{Ender, SubscriptionGuard};
use crate::{Hub, OpenError, SubjectName};

/// What the part that owns the connection decides.
pub trait SocketPolicy: Send {
    /// The subject of a target, or the code of its refusal.
    fn subject(&self, target: &Target) -> Result<SubjectName, Code>;

    /// Whether the person may read a target; asked again once it is subscribed.
    fn may_read(&self, target: &Target) -> Boxed<'static, Result<(), Code>>;

    /// The target is followed now, until what comes back is dropped. `ender` ends the whole connection.
    fn joined(
        &self,
        target: &Target,
        ender: Ender,
    ) -> Boxed<'static, Result<Box<dyn SubscriptionGuard>, Code>>;

    /// How many rooms one connection follows.
    fn max_rooms(&self) -> usize;
}

/// An operation that a part adds to WebSockets: `{"op":"<name>",...}`.
pub trait Operation: Send + Sync {
    /// Takes the whole request. The JSON object that it gives is sent as a message; a code is sent as an error.
    fn call(&self, person: &Person, request: &str) -> Boxed<'static, Result<String, Code>>;
}

pub struct LiveSocket {
    // Before `entered`: readers stand up before their person is counted out.
    readers: Vec<Followed>,
    /// The request that is being worked on.
    request: Option<Boxed<'static, Outcome>>,
    entered: Entered,
    person: Person,
    policy: Box<dyn SocketPolicy>,
    replies: VecDeque<Bytes>,
    turn: usize,
}

/// What a request gave.
enum Outcome {
    /// A reader and what goes with it, or the code of a refusal.
    Subscribed(Target, Result<(Reader, Box<dyn SubscriptionGuard>), Code>),
    Answered(Result<String, Code>),
}

/// What the client follows.
struct Followed {
    target: Target,
    reader: Reader,
    /// Dropped when the target is no longer followed.
    _guard: Box<dyn SubscriptionGuard>,
}

#[derive(Deserialize)]
struct Op {
    op: String,
}

/// What `subscribe` and `unsubscribe` are about.
#[derive(Deserialize)]
struct Subscription {
    room: Option<Id>,
    #[serde(default)]
    inbox: bool,
    /// Read on its own, so that a refusal can name the target.
    #[serde(default)]
    since: Value,
}

impl Subscription {
    fn target(&self) -> Option<Target> {
        match (&self.room, self.inbox) {
            (Some(room), false) => Some(Target::Room(room.clone())),
            (None, true) => Some(Target::Inbox),
            _ => None,
        }
    }

    /// Where the client wants to go on from; None for what comes next.
    fn position(&self, target: &Target) -> Option<Option<StreamId>> {
        let since = match &self.since {
            Value::Null => return Some(None),
            Value::String(since) if since.is_empty() => return Some(None),
            Value::String(since) => since,
            _ => return None,
        };
        match target {
            Target::Room(_) => since.parse().ok().map(Some),
            Target::Inbox => StreamId::of_number(since).map(Some),
        }
    }
}

impl LiveSocket {
    pub(crate) fn new(entered: Entered, person: Person, policy: Box<dyn SocketPolicy>) -> Self {
        let (readers, replies) = (Vec::new(), VecDeque::new());
        Self { readers, request: None, entered, person, policy, replies, turn: 0 }
    }

    fn reply(&mut self, event: &str, code: Option<Code>, id: Option<MessageId>, target: Option<&Target>) {
        let mut text = format!("{{\"event\":\"{event}\"");
        // Writing to a string cannot fail. None of these has a character that JSON would have to escape.
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
        // Asking again begins anew, from where the client says.
        self.forget(&target);
        let rooms = self.readers.iter().filter(|followed| followed.target != Target::Inbox).count();
        if target != Target::Inbox && rooms >= self.policy.max_rooms() {
            return self.refuse(Code::Common429, Some(&target));
        }
        let subject = match self.policy.subject(&target) {
            Ok(subject) => subject,
            Err(code) => return self.refuse(code, Some(&target)),
        };
        let (first, again) = (self.policy.may_read(&target), self.policy.may_read(&target));
        let (chair, encoder) =
            (self.entered.chair.clone(), Encoder::websocket(&target, self.entered.language));
        let joined = self.policy.joined(&target, self.entered.ender());
        let open = async move {
            first.await?;
            let reader = Hub::read(&chair, subject, since, encoder).await.map_err(|error| match error {
                OpenError::Log(_) | OpenError::Away(_) => Code::Sse5001,
                OpenError::TooManyForPerson | OpenError::TooMany => Code::Common429,
            })?;
            again.await?;
            Ok((reader, joined.await?))
        };
        self.request = Some(Box::pin(async move { Outcome::Subscribed(target, open.await) }));
    }

    fn forget(&mut self, target: &Target) {
        self.readers.retain(|followed| followed.target != *target);
    }

    /// Goes on with the request that is being worked on.
    fn poll_request(&mut self, cx: &mut Context<'_>) {
        let Some(Poll::Ready(outcome)) = self.request.as_mut().map(|request| request.as_mut().poll(cx))
        else {
            return;
        };
        self.request = None;
        match outcome {
            Outcome::Subscribed(target, Ok((mut reader, guard))) => {
                let id = reader.position().map(|_| reader.place_name());
                self.reply("system.subscribed", None, id, Some(&target));
                self.replies.extend(reader.begin_with(&*guard));
                self.readers.push(Followed { target, reader, _guard: guard });
            }
            Outcome::Subscribed(target, Err(code)) => self.refuse(code, Some(&target)),
            Outcome::Answered(Ok(answer)) => self.replies.push_back(websocket::text(answer.as_bytes())),
            Outcome::Answered(Err(code)) => self.refuse(code, None),
        }
    }

    /// What a reader has to say, as messages.
    fn poll_readers(&mut self, cx: &mut Context<'_>) -> Option<(Bytes, Option<Instant>)> {
        for _ in 0..self.readers.len() {
            let at = self.turn % self.readers.len();
            self.turn = at + 1;
            match self.readers[at].reader.poll_said(cx, &self.entered.person) {
                Poll::Pending => {}
                Poll::Ready(Said::Frames(frames, accepted)) => return Some((frames.into_bytes(), accepted)),
                Poll::Ready(Said::Removed) => {
                    let Followed { target, reader, .. } = self.readers.remove(at);
                    return Some((reader.encoder().encode(&Message::removed(removed_data(&target))), None));
                }
                Poll::Ready(Said::Failed) => {
                    self.entered.end(Close::EngineLost);
                    return None;
                }
            }
        }
        None
    }

    fn say(&self, bytes: Bytes, now: Instant) -> Poll<Output> {
        self.entered.said(now);
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
            // Registered before looking, so that news between the two is not missed.
            self.entered.chair.seat.listen(cx.waker());
            if let Some(close) = self.entered.chair.seat.closing() {
                return Poll::Ready(Output::Close { code: close.code(), reason: close.reason() });
            }
            self.poll_request(cx);
            if let Some(reply) = self.replies.pop_front() {
                return self.say(reply, Instant::now());
            }
            if let Some((bytes, accepted)) = self.poll_readers(cx) {
                let now = self.entered.delivered(accepted);
                return self.say(bytes, now);
            }
            if self.entered.chair.seat.closing().is_some() {
                continue;
            }
            if self.entered.chair.seat.take_keepalive() {
                return self.say(websocket::ping(), Instant::now());
            }
            self.entered.chair.seat.caught_up();
            return Poll::Pending;
        }
    }

    fn on_message(&mut self, text: &str) {
        let Ok(Op { op }) = serde_json::from_str(text) else { return self.refuse(Code::Common400, None) };
        if op != "subscribe" && op != "unsubscribe" {
            match self.entered.chair.hub.operation(&op) {
                Some(operation) => {
                    let call = operation.call(&self.person, text);
                    self.request = Some(Box::pin(async move { Outcome::Answered(call.await) }));
                }
                None => self.refuse(Code::Common400, None),
            }
            return;
        }
        let subscription = serde_json::from_str::<Subscription>(text).ok();
        let target = subscription.as_ref().and_then(Subscription::target);
        let (Some(subscription), Some(target)) = (subscription, target) else {
            return self.refuse(Code::Common400, None);
        };
        if op == "unsubscribe" {
            // Whether it was followed or not: it is not now.
            self.forget(&target);
            return self.reply("system.unsubscribed", None, None, Some(&target));
        }
        match subscription.position(&target) {
            Some(since) => self.subscribe(target, since),
            None => self.refuse(Code::Common400, Some(&target)),
        }
    }

    fn ready_for_message(&self) -> bool {
        self.request.is_none() && self.replies.is_empty()
    }
}
