//! Access commands: instructions to every instance to disconnect a person, or to reject a person's older tokens.
//!
//! The contract is documented on [`AccessCommands`]; `tests/it/access_command_contract.rs` tests every
//! adapter against it. The [`AccessCommandHandler`] applies a command to the open streams.

pub mod embedded;
pub mod records;
pub mod redis;

use std::time::Duration;

use bongsu_kernel::{Id, Millis};

use crate::{BoxFuture, Error};

/// How long a revocation is kept. A token that lives longer than this would outlast its revocation, so the check of
/// tokens refuses those that were issued longer ago.
pub const REVOCATION_RETENTION: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// An ordered feed of access commands that every instance applies.
///
/// - **Durable.** Every instance applies every issued command, however many instances crash meanwhile, and a revocation
///   is remembered over restarts for [`REVOCATION_RETENTION`].
/// - **In order, once.** An instance applies commands in the order in which they were issued, each once; only
///   a revocation may be applied again after the engine lost its data. An instance that cannot know which
///   commands it missed (after a very long disconnection, or that loss) calls
///   [`AccessCommandHandler::handle_missed`].
/// - **Latency.** A command is applied within a second while [`AccessCommands::is_current`] is true. While it is false,
///   no message may be delivered to any stream before [`AccessCommands::catch_up`] has returned.
/// - **Repeating** a command is safe.
/// - **Errors.** After an error of `issue` the command may have been issued. After an error of `catch_up` it is unknown
///   whether this instance lacks commands.
///
/// Code that opens a stream first registers the stream where the [`AccessCommandHandler`] finds it, and then calls
/// [`AccessCommands::revoked_before`]: a command that is applied in between then finds the stream. Code that delivers
/// events read from the log, because the bus had lost them, calls `catch_up` after reading; for events that the bus
/// brought, `is_current` is enough.
pub trait AccessCommands: Send + Sync {
    /// Returns when the command would survive a crash.
    fn issue(&self, command: AccessCommand) -> BoxFuture<'_, Result<(), Error>>;

    /// Whether this instance has certainly applied every command that was issued until a second ago, and is listening
    /// for new ones. Cheap: does no I/O.
    fn is_current(&self) -> bool;

    /// Returns when every command that was issued before this call has been applied on this instance. Concurrent calls
    /// share one read of the engine.
    fn catch_up(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// The time of the person's revocation: tokens that were issued before it are rejected. None without a revocation.
    fn revoked_before<'a>(&'a self, user: &'a Id) -> BoxFuture<'a, Result<Option<Millis>, Error>>;
}

/// An instruction to every instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessCommand {
    /// Closes the person's streams. The person may connect again.
    Disconnect { user: Id },
    /// Closes the streams that the person opened with a token issued before this time, and rejects such tokens.
    Revoke { user: Id, issued_before: Millis },
}

/// Carries out access commands on this instance. The adapter calls it for one command at a time. An implementation must
/// not block, and must not call [`AccessCommands`].
pub trait AccessCommandHandler: Send + Sync + 'static {
    /// May be called for a command that has already been carried out.
    fn apply(&self, command: &AccessCommand);

    /// Commands may have been issued that this instance will never receive: every stream that was opened before this
    /// call must be closed or checked again.
    fn handle_missed(&self);
}

impl AccessCommand {
    /// The text that is stored and sent. Format version 1.
    fn as_text(&self) -> String {
        match self {
            Self::Disconnect { user } => format!("1 disconnect {user}"),
            Self::Revoke { user, issued_before } => format!("1 revoke {user} {issued_before}"),
        }
    }

    /// None for a text that only a later version understands.
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
