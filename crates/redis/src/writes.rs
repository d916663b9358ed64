//! Whether every server takes writes. One that answers may still refuse to store anything: it was demoted, has no
//! memory left, cannot save to its disk, or has too few replicas.
//!
//! Every server is asked by a write that changes nothing, so that the answer is that of any other write.

use redis::Cmd;

use crate::cluster::Servers;
use crate::error::Error;

const READ_ONLY: &str =
    "redis: a server is read-only (a replica, or a master that was demoted), so nothing can be stored there";
const NO_MEMORY: &str = "redis: a server has reached maxmemory and refuses to store anything";
const NOT_SAVED: &str = "redis: a server cannot save to its disk (MISCONF) and refuses to store anything";
const NO_REPLICAS: &str =
    "redis: a server has fewer replicas than min-replicas-to-write and refuses to store anything";
const REFUSED: &str = "redis: a server refuses to store anything";

/// Why servers that can be reached take no writes; the error when one of them cannot be reached.
pub(crate) async fn check(servers: &Servers, prefix: &str) -> Result<Vec<&'static str>, Error> {
    let mut refusals = Vec::new();
    for answer in servers.ask_about_keys(|tag| write_nothing(prefix, tag)).await {
        let Err(error) = answer else { continue };
        let Some(refusal) = refusal(&error) else {
            // One of them is gone: perhaps another has taken its place.
            servers.look_again().await;
            return Err(error);
        };
        refusals.push(refusal);
    }
    refusals.sort_unstable();
    refusals.dedup();
    Ok(refusals)
}

/// Sets a key only if it exists, which it never does.
fn write_nothing(prefix: &str, tag: u32) -> (String, Cmd) {
    let key = format!("{prefix}write-check:{{{tag}}}");
    let mut command = redis::cmd("SET");
    command.arg(&key).arg("").arg("XX");
    (key, command)
}

fn refusal(error: &Error) -> Option<&'static str> {
    match error {
        Error::ReadOnly(_) => Some(READ_ONLY),
        Error::Refused(told) => {
            let known = [("OOM", NO_MEMORY), ("MISCONF", NOT_SAVED), ("NOREPLICAS", NO_REPLICAS)];
            let named = known.iter().find(|(code, _)| told.starts_with(code));
            Some(named.map_or(REFUSED, |(_, refusal)| refusal))
        }
        Error::Unreachable(_) | Error::Unanswered(_) | Error::UnknownScript | Error::Unexpected(_) => None,
    }
}
