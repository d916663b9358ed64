//! Orders to all hubs: to disconnect a person, and to take a person's older tokens for nothing.
//!
//! The contract is written on [`Orders`]; `tests/it/orders_contract.rs` holds every adapter against it. What an order
//! does to open streams is up to whoever keeps them, through [`Apply`].

pub mod embedded;
pub mod records;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::{Id, Millis};

use crate::{Boxed, Error};

/// How long a revocation is kept. Tokens that live longer than this outlive it: whoever accepts tokens refuses those
/// that were issued longer ago.
pub const REVOCATION_LIFE: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// An ordered feed of orders that every hub applies.
///
/// - **Durable.** An order that was given is applied by every hub, however many crash meanwhile, and its revocation is
///   remembered over restarts for [`REVOCATION_LIFE`].
/// - **In order, once.** A hub applies orders in the order in which they were given, each once. A hub that can no
///   longer tell what it has missed (it was away for very long, the engine lost its memory) is told so
///   ([`Apply::missed`]).
/// - **Soon.** Within a second while [`Orders::is_current`]. Otherwise nothing may be delivered to anybody before
///   [`Orders::catch_up`] has returned.
/// - **Repeating** an order is safe.
/// - **Errors.** After an error of `give` the order may have been given. After one of `catch_up` it is unknown what
///   was missed.
///
/// Who opens a stream makes it known where `Apply` looks for it, and asks [`Orders::revoked_before`] afterwards: then
/// an order that comes in between finds the stream. Who delivers events that were read from the log because the bus
/// had lost them calls `catch_up` after reading; for events that the bus brought `is_current` is enough.
pub trait Orders: Send + Sync {
    /// Returns when the order would survive a crash.
    fn give(&self, order: Order) -> Boxed<'_, Result<(), Error>>;

    /// Whether this hub has certainly applied every order that was given until a second ago, and is being told of new
    /// ones. Costs next to nothing.
    fn is_current(&self) -> bool;

    /// Returns when every order that was given before this was called has been applied here. Many may wait for one
    /// look at the engine.
    fn catch_up(&self) -> Boxed<'_, Result<(), Error>>;

    /// Tokens of this person that were issued before this time are worth nothing.
    fn revoked_before<'a>(&'a self, user: &'a Id) -> Boxed<'a, Result<Option<Millis>, Error>>;
}

/// What every hub is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ends what the person has open. It may come back.
    Disconnect { user: Id },
    /// Ends what the person opened with a token that was issued before this time, and makes such tokens worthless.
    Revoke { user: Id, issued_before: Millis },
}

/// Who carries out orders on this hub. Called by whoever brings them, one at a time: it must not wait, nor ask
/// [`Orders`] for anything.
pub trait Apply: Send + Sync + 'static {
    /// May be called for something that has been done already.
    fn apply(&self, order: &Order);

    /// Orders may have been given that nobody here will ever see: everything that was opened before now is to end, or
    /// to be checked again.
    fn missed(&self);
}

impl Order {
    /// As it is stored and sent. Version 1.
    fn as_text(&self) -> String {
        match self {
            Self::Disconnect { user } => format!("1 disconnect {user}"),
            Self::Revoke { user, issued_before } => format!("1 revoke {user} {issued_before}"),
        }
    }

    /// None for what a later version may have written.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (version, verb) = (words.next()?, words.next()?);
        let user = Id::new(words.next()?).ok()?;
        match (version, verb, words.next()) {
            ("1", "disconnect", None) => Some(Self::Disconnect { user }),
            ("1", "revoke", Some(before)) => Some(Self::Revoke { user, issued_before: before.parse().ok()? }),
            _ => None,
        }
    }
}
