//! Server-Sent Events from the reader's side, written from the WHATWG rules and from nothing of the hub's.
//!
//! [`Parser`] turns bytes into items, [`Stream`] is one connection, [`Resuming`] behaves as a browser's
//! EventSource does: it comes back with its position until it is told to stay away.

mod parser;
mod resuming;
mod source;
mod stream;

pub use parser::{Event, Item, Parser};
pub use resuming::Resuming;
pub use stream::{End, Held, Request, Stream, TimedOut};

#[cfg(test)]
mod tests;
