//! WebSockets (RFC 6455): the handshake, the frames, and the sessions that handlers provide.
//!
//! Messages are text; extensions and subprotocols are not supported. A handler takes an [`Upgrade`] and answers with a
//! [`Session`]. The socket is then detached from hyper like that of a stream, and `server::websocket_driver` runs the
//! session on it.

mod frame;
mod handshake;
mod parser;
mod session;

pub(crate) use frame::{close, pong};
pub use frame::{ping, text};
pub use handshake::Upgrade;
pub(crate) use handshake::is_upgrade_request;
pub use parser::MAX_MESSAGE_SIZE;
pub(crate) use parser::{Event, Parser, Violation};
pub use session::{Output, Session};
