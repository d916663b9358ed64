//! How safe what Redis keeps is: whether it syncs before it answers, and whether it forgets when it is full.

use bongsu_kernel::findings::Findings;
use redis::Value;

use crate::cluster::Servers;

const NO_LOG: &str =
    "redis: appendonly is off, so a Redis that is killed loses events that were acknowledged";
const LATE_SYNC: &str = "redis: appendfsync is not always, so a Redis that is killed may lose the last events that were acknowledged";
const EVICTS: &str = "redis: maxmemory-policy is not noeviction, so a full Redis forgets events and presence";
const HIDDEN: &str = "redis: its settings cannot be read, so how safe events are is unknown";

/// Looks at the settings, unless that was a moment ago.
pub(crate) async fn look(findings: &Findings, servers: &Servers) {
    if findings.are_fresh() {
        return;
    }
    let mut question = redis::cmd("CONFIG");
    question.arg("GET").arg(&["appendonly", "appendfsync", "maxmemory-policy"]);
    let mut warnings: Vec<&'static str> = Vec::new();
    for answer in servers.ask_all(&question).await {
        warnings.extend(answer.map_or_else(|_| vec![HIDDEN], |answer| judge(&answer)));
    }
    warnings.sort_unstable();
    warnings.dedup();
    findings.found(warnings);
}

fn judge(answer: &Value) -> Vec<&'static str> {
    let settings: Vec<(String, String)> = match redis::from_redis_value(answer.clone()) {
        Ok(settings) => settings,
        Err(_) => return vec![HIDDEN],
    };
    let value =
        |name: &str| settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let mut warnings = Vec::new();
    match (value("appendonly"), value("appendfsync")) {
        (Some("yes"), Some("always")) => {}
        (Some("yes"), Some(_)) => warnings.push(LATE_SYNC),
        (Some(_), _) => warnings.push(NO_LOG),
        (None, _) => warnings.push(HIDDEN),
    }
    if value("maxmemory-policy").is_some_and(|policy| policy != "noeviction") {
        warnings.push(EVICTS);
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
    fn only_synced_and_never_forgetting_is_safe() {
        let judged = |only, sync, policy| {
            judge(&answer(&[("appendonly", only), ("appendfsync", sync), ("maxmemory-policy", policy)]))
        };
        assert!(judged("yes", "always", "noeviction").is_empty());
        assert_eq!(judged("yes", "everysec", "noeviction"), [LATE_SYNC]);
        assert_eq!(judged("no", "always", "allkeys-lru"), [NO_LOG, EVICTS]);
        assert_eq!(judge(&answer(&[])), [HIDDEN]);
    }
}
