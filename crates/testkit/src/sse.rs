//! A Server-Sent Events client, written from the WHATWG standard without code of the hub.
//!
//! [`Parser`] turns bytes into items, [`Stream`] is one connection, [`ResumingClient`] behaves like a browser's
//! EventSource: it reconnects with its position until the server answers that it must not.

mod parser;
mod resuming_client;
mod source;
mod stream;

pub use parser::{Event, Item, Parser};
pub use resuming_client::ResumingClient;
pub use stream::{End, PausedStream, Request, Stream, TimedOut};

#[cfg(test)]
mod tests;
