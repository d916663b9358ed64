//! A WebSocket: one connection whose client says which rooms it wants to follow, and may change its mind.
//!
//! Each room has a reader of its own, as on a stream of several rooms. Frames become messages that name their room and
//! carry the room's own id. One request is worked on at a time; while it is, nothing more is read from the client.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_http::websocket::{self, Output, Session};
use bongsu_kernel::{Close, Code, Id, StreamId, sse};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hub::Entered;
use crate::log::Boxed;
use crate::reader::{Reader, Said};
use crate::stream::SubscriptionGuard;
use crate::{Hub, OpenError, SubjectName};

/// What the part that owns the rooms decides.
pub trait Desk: Send {
    fn subject(&self, room: &Id) -> SubjectName;

    /// Whether the person may read a room; asked again once it is subscribed.
    fn may_read(&self, room: &Id) -> Boxed<'static, Result<(), Code>>;

    /// The room is followed now, until what comes back is dropped.
    fn joined(&self, room: &Id) -> Boxed<'static, Box<dyn SubscriptionGuard>>;

    /// How many rooms one connection follows.
    fn most_rooms(&self) -> usize;
}

pub struct LiveSocket {
    // Before `entered`: readers stand up before their person is counted out.
    readers: Vec<Followed>,
    opening: Option<(Id, Boxed<'static, Opened>)>,
    entered: Entered,
    desk: Box<dyn Desk>,
    replies: VecDeque<Bytes>,
    turn: usize,
}

/// What a subscription gave: a reader and what goes with it, or the code of a refusal.
type Opened = Result<(Reader, Box<dyn SubscriptionGuard>), Code>;

/// A room that the client follows.
struct Followed {
    room: Id,
    reader: Reader,
    /// Dropped when the room is no longer followed.
    _guard: Box<dyn SubscriptionGuard>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
enum Request {
    Subscribe {
        room: Id,
        /// Read on its own, so that a refusal can name the room.
        #[serde(default)]
        since: serde_json::Value,
    },
    Unsubscribe {
        room: Id,
    },
}

#[derive(Serialize)]
struct Reply<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// Where the room stands: a client that drops before its first event comes back to there.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<StreamId>,
    room: Option<&'a Id>,
}

impl LiveSocket {
    pub(crate) fn new(entered: Entered, desk: Box<dyn Desk>) -> Self {
        Self { readers: Vec::new(), opening: None, entered, desk, replies: VecDeque::new(), turn: 0 }
    }

    fn reply(&mut self, reply: &Reply<'_>) {
        if let Ok(text) = serde_json::to_vec(reply) {
            self.replies.push_back(websocket::text(&text));
        }
    }

    fn refuse(&mut self, code: Code, room: Option<&Id>) {
        self.reply(&Reply { event: "error", code: Some(code.as_str()), id: None, room });
    }

    fn subscribe(&mut self, room: Id, since: &serde_json::Value) {
        let since = match since {
            serde_json::Value::Null => Ok(None),
            serde_json::Value::String(since) if since.is_empty() => Ok(None),
            serde_json::Value::String(since) => since.parse::<StreamId>().map(Some).map_err(|_| ()),
            _ => Err(()),
        };
        let Ok(since) = since else { return self.refuse(Code::Common400, Some(&room)) };
        // Asking again begins anew, from where the client says.
        self.forget(&room);
        if self.readers.len() >= self.desk.most_rooms() {
            return self.refuse(Code::Common429, Some(&room));
        }
        let (first, again) = (self.desk.may_read(&room), self.desk.may_read(&room));
        let (subject, chair) = (self.desk.subject(&room), self.entered.chair.clone());
        let joined = self.desk.joined(&room);
        let open = async move {
            first.await?;
            let reader = Hub::read(&chair, subject, since).await.map_err(|error| match error {
                OpenError::Log(_) | OpenError::Away(_) => Code::Sse5001,
                OpenError::TooManyForPerson | OpenError::TooMany => Code::Common429,
            })?;
            again.await?;
            Ok((reader, joined.await))
        };
        self.opening = Some((room, Box::pin(open)));
    }

    fn forget(&mut self, room: &Id) {
        self.readers.retain(|followed| followed.room != *room);
    }

    /// Goes on with a subscription that is under way.
    fn poll_opening(&mut self, cx: &mut Context<'_>) {
        let Some((_, opening)) = &mut self.opening else { return };
        let Poll::Ready(opened) = opening.as_mut().poll(cx) else { return };
        let Some((room, _)) = self.opening.take() else { return };
        match opened {
            Ok((mut reader, guard)) => {
                let id = Some(reader.place().named());
                self.reply(&Reply { event: "system.subscribed", code: None, id, room: Some(&room) });
                if let Some(frame) = reader.begin_with(&*guard) {
                    self.replies.push_back(messages(&room, &frame));
                }
                self.readers.push(Followed { room, reader, _guard: guard });
            }
            Err(code) => self.refuse(code, Some(&room)),
        }
    }

    /// What a reader has to say, as messages.
    fn poll_readers(&mut self, cx: &mut Context<'_>) -> Option<(Bytes, Option<Instant>)> {
        for _ in 0..self.readers.len() {
            let at = self.turn % self.readers.len();
            self.turn = at + 1;
            match self.readers[at].reader.poll(cx, &self.entered.person) {
                Poll::Pending => {}
                Poll::Ready(Said::Frames(frames, accepted)) => {
                    return Some((messages(&self.readers[at].room, &frames), accepted));
                }
                Poll::Ready(Said::Removed) => {
                    let Followed { room, .. } = self.readers.remove(at);
                    let told = sse::removed(&room, None::<StreamId>);
                    return Some((messages(&room, &told), None));
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

/// `{"event","id","room","data"}`, one message for each frame.
fn messages(room: &Id, frames: &[u8]) -> Bytes {
    let room = serde_json::to_string(room).unwrap_or_default();
    let mut out = Vec::with_capacity(frames.len() + 64);
    for sse::Parts { event, id, data } in sse::parts(frames) {
        // Event types and ids hold nothing that JSON would have to escape.
        let id = id.map(|id| format!("\"id\":\"{id}\",")).unwrap_or_default();
        let message = format!("{{\"event\":\"{event}\",{id}\"room\":{room},\"data\":{data}}}");
        out.extend_from_slice(&websocket::text(message.as_bytes()));
    }
    out.into()
}

impl Session for LiveSocket {
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output> {
        loop {
            // Registered before looking, so that news between the two is not missed.
            self.entered.chair.seat.listen(cx.waker());
            if let Some(close) = self.entered.chair.seat.closing() {
                return Poll::Ready(Output::Close { code: close.code(), reason: close.reason() });
            }
            self.poll_opening(cx);
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
        match serde_json::from_str(text) {
            Ok(Request::Subscribe { room, since }) => self.subscribe(room, &since),
            Ok(Request::Unsubscribe { room }) => {
                // Whether it was followed or not: it is not now.
                self.forget(&room);
                self.reply(&Reply { event: "system.unsubscribed", code: None, id: None, room: Some(&room) });
            }
            Err(_) => self.refuse(Code::Common400, None),
        }
    }

    fn ready_for_message(&self) -> bool {
        self.opening.is_none() && self.replies.is_empty()
    }
}
