//! Checks whether Redis syncs a write to its disk before it answers, and whether it evicts keys when its memory is
//! full.

use bongsu_kernel::findings::Findings;
use redis::Value;

use crate::cluster::Servers;

const NO_APPEND_LOG: &str =
    "redis: appendonly is off, so a Redis that is killed loses events that were acknowledged";
const ASYNC_APPEND_LOG: &str = "redis: appendfsync is not always, so a Redis that is killed may lose the last events that were acknowledged";
const EVICTION: &str =
    "redis: maxmemory-policy is not noeviction, so a full Redis deletes events and presence";
const UNKNOWN: &str = "redis: its settings cannot be read, so it may lose events that were acknowledged";

/// Reads the settings of every server, unless the findings are fresh.
pub(crate) async fn check(findings: &Findings, servers: &Servers) {
    if findings.are_fresh() {
        return;
    }
    let command =
        redis::cmd("CONFIG").arg("GET").arg(&["appendonly", "appendfsync", "maxmemory-policy"]).take();
    let mut warnings: Vec<&'static str> = Vec::new();
    for answer in servers.send_to_all(&command).await {
        warnings.extend(answer.map_or_else(|_| vec![UNKNOWN], |answer| find_warnings(&answer)));
    }
    warnings.sort_unstable();
    warnings.dedup();
    findings.update(warnings);
}

fn find_warnings(answer: &Value) -> Vec<&'static str> {
    let settings: Vec<(String, String)> = match redis::from_redis_value(answer.clone()) {
        Ok(settings) => settings,
        Err(_) => return vec![UNKNOWN],
    };
    let value =
        |name: &str| settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let mut warnings = Vec::new();
    match (value("appendonly"), value("appendfsync")) {
        (Some("yes"), Some("always")) => {}
        (Some("yes"), Some(_)) => warnings.push(ASYNC_APPEND_LOG),
        (Some(_), _) => warnings.push(NO_APPEND_LOG),
        (None, _) => warnings.push(UNKNOWN),
    }
    if value("maxmemory-policy").is_some_and(|policy| policy != "noeviction") {
        warnings.push(EVICTION);
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pairs: &[(&str, &str)]) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Map(pairs.iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    #[test]
    fn only_synced_writes_without_eviction_are_safe() {
        let warnings = |append_only, sync, policy| {
            find_warnings(&answer(&[
                ("appendonly", append_only),
                ("appendfsync", sync),
                ("maxmemory-policy", policy),
            ]))
        };
        assert!(warnings("yes", "always", "noeviction").is_empty());
        assert_eq!(warnings("yes", "everysec", "noeviction"), [ASYNC_APPEND_LOG]);
        assert_eq!(warnings("no", "always", "allkeys-lru"), [NO_APPEND_LOG, EVICTION]);
        assert_eq!(find_warnings(&answer(&[])), [UNKNOWN]);
    }
}
