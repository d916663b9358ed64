//! Why a stream ends, in words and numbers that a client can act on.
//!
//! Below 3500 the client comes back, from 3500 on it stays away. A WebSocket gets the same number as its close
//! code.

use crate::random;

/// The reason for an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    Draining,
    Lifetime,
    TooSlow,
    EngineLost,
    TooMany,
    Replaced,
    Withdrawn,
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

    /// Its number, its words, and how long clients wait before they come back, in milliseconds from the least to the most.
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

    pub fn reconnect(self) -> bool {
        self.code() < 3500
    }

    /// How long a client should wait before it comes back, spread so that not all come at once.
    pub fn retry_ms(self) -> Option<u64> {
        self.details().2.map(|(least, most)| random::between(least, most))
    }
}

/// What a Last-Event-ID starts with once a stream ended for good: `end.<code>.<last id>`.
pub const END_PREFIX: &str = "end.";

/// The id that an ending for good leaves in the client.
pub fn end_id(close: Close, last: impl std::fmt::Display) -> String {
    format!("{END_PREFIX}{}.{last}", close.code())
}
