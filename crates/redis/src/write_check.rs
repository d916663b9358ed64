//! Checks whether every server accepts writes. A server that answers may still refuse them: it was demoted, is out of
//! memory, cannot save to its disk, or has too few replicas.
//!
//! The check is a write command that changes nothing, so a server refuses it exactly when it refuses other writes.

use redis::Cmd;

use crate::cluster::Servers;
use crate::error::{Error, Result};

const READ_ONLY: &str =
    "redis: a server is read-only (a replica, or a master that was demoted), so nothing can be stored there";
const NO_MEMORY: &str = "redis: a server has reached maxmemory and refuses to store anything";
const NOT_SAVED: &str = "redis: a server cannot save to its disk (MISCONF) and refuses to store anything";
const NO_REPLICAS: &str =
    "redis: a server has fewer replicas than min-replicas-to-write and refuses to store anything";
const REFUSED: &str = "redis: a server refuses to store anything";

/// Returns why reachable servers refuse writes; empty when none does. Fails when a server cannot be reached.
pub(crate) async fn check(servers: &Servers, prefix: &str) -> Result<Vec<&'static str>> {
    let mut refusals = Vec::new();
    for answer in servers.send_to_each(|tag| no_op_write(prefix, tag)).await {
        let Err(error) = answer else { continue };
        let Some(refusal) = refusal(&error) else {
            // Another server may have taken its slots.
            servers.refresh_slot_map().await;
            return Err(error);
        };
        refusals.push(refusal);
    }
    refusals.sort_unstable();
    refusals.dedup();
    Ok(refusals)
}

/// Sets a key only if it exists. The key never exists, because no other command sets it.
fn no_op_write(prefix: &str, tag: u32) -> (String, Cmd) {
    let key = format!("{prefix}write-check:{{{tag}}}");
    let command = redis::cmd("SET").arg(&key).arg("").arg("XX").take();
    (key, command)
}

fn refusal(error: &Error) -> Option<&'static str> {
    match error {
        Error::ReadOnly(_) => Some(READ_ONLY),
        Error::Refused(text) => {
            let by_code = [("OOM", NO_MEMORY), ("MISCONF", NOT_SAVED), ("NOREPLICAS", NO_REPLICAS)];
            let known = by_code.iter().find(|(code, _)| text.starts_with(code));
            Some(known.map_or(REFUSED, |(_, refusal)| refusal))
        }
        Error::Unreachable(_) | Error::Unanswered(_) | Error::UnknownScript | Error::Unexpected(_) => None,
    }
}
