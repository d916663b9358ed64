//! WebSockets (RFC 6455): the handshake, the frames, and what a handler gives to be run on the socket.
//!
//! Text both ways, no extensions, no subprotocols. A handler takes an [`Upgrade`] and answers with a [`Session`]; the
//! socket then leaves hyper as a stream's does, and `server::duplex` runs the session on it.

mod frame;
mod handshake;
mod parser;
mod session;

pub(crate) use frame::{close, pong};
pub use frame::{ping, text};
pub use handshake::Upgrade;
pub(crate) use handshake::is_wanted;
pub use parser::MESSAGE_BYTES;
pub(crate) use parser::{Event, Parser, Violation};
pub use session::{Output, Session};
