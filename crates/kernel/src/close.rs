//! Close codes: why the hub ends a stream, as a number and a reason text.
//!
//! After a code below 3500 the client reconnects; after 3500 or above it must not. SSE streams receive the code in a
//! `system.close` event, WebSockets as the code of the close frame.

use crate::random;

/// A close code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// The instance shuts down.
    Draining,
    /// The stream reached its maximum age.
    Lifetime,
    /// The reader takes bytes too slowly.
    TooSlow,
    /// The engine cannot be read, or no longer has the position of the stream.
    EngineLost,
    /// A limit on streams is reached.
    TooMany,
    /// A newer connection of the same person took the place of this one.
    Replaced,
    /// The person lost the right to read the subject.
    Withdrawn,
    /// The token expired or was revoked.
    TokenExpired,
}

impl Close {
    pub const ALL: [Self; 8] = [
        Self::Draining,
        Self::Lifetime,
        Self::TooSlow,
        Self::EngineLost,
        Self::TooMany,
        Self::Replaced,
        Self::Withdrawn,
        Self::TokenExpired,
    ];

    /// The code, the reason text, and the shortest and longest delay in milliseconds before a client reconnects. The
    /// delay is None for codes after which a client must not reconnect.
    const fn details(self) -> (u16, &'static str, Option<(u64, u64)>) {
        match self {
            Self::Draining => (3000, "draining", Some((500, 3_000))),
            Self::Lifetime => (3001, "lifetime reached", Some((100, 1_000))),
            Self::TooSlow => (3002, "reading too slowly", Some((500, 3_000))),
            Self::EngineLost => (3003, "engine lost, position unsafe", Some((1_000, 5_000))),
            Self::TooMany => (3004, "too many for now", Some((3_000, 8_000))),
            Self::Replaced => (3500, "replaced by a newer connection", None),
            Self::Withdrawn => (3501, "right withdrawn", None),
            Self::TokenExpired => (3502, "token expired or revoked", None),
        }
    }

    pub fn code(self) -> u16 {
        self.details().0
    }

    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|close| close.code() == code)
    }

    pub fn reason(self) -> &'static str {
        self.details().1
    }

    pub fn can_reconnect(self) -> bool {
        self.code() < 3500
    }

    /// How many milliseconds a client should wait before it reconnects: a random value, so that clients whose streams
    /// ended together do not reconnect together.
    pub fn retry_ms(self) -> Option<u64> {
        self.details().2.map(|(min, max)| random::between(min, max))
    }
}

/// Prefix of the event id that a client keeps after a close code of 3500 or above: `end.<code>.<last id>`. A client
/// that reconnects nevertheless sends this id as `Last-Event-ID`, and is recognised by the prefix.
pub const END_PREFIX: &str = "end.";

/// The event id to send with a close code of 3500 or above.
pub fn end_id(close: Close, last: impl std::fmt::Display) -> String {
    format!("{END_PREFIX}{}.{last}", close.code())
}
