//! Sets up logs and metrics at the start. Labels whose values callers choose have a bounded number of values.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::RwLock;
use std::time::Duration;

use metrics::Counter;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::settings::{Scope, SettingError, Values};
use crate::task::Supervisor;

crate::settings! { "logs":
    pub RUST_LOG = "info", scope(Scope::Instance):
        "The log level, or levels per module (info,bongsu_live=debug). Log lines are text on a terminal, JSON otherwise.";
}

/// Libraries that are limited to the level INFO: at DEBUG and TRACE they log headers, and with them tokens.
const INFO_ONLY_LIBRARIES: [&str; 5] = ["h2", "hyper", "hyper_util", "reqwest", "rustls"];

/// Starts logging to standard output.
pub fn start_logs(values: &Values) -> Result<(), SettingError> {
    let allowed = "a level such as info, or module=level, ...";
    let filter = values.text(&RUST_LOG).parse().map_err(|_| values.not_allowed(&RUST_LOG, allowed));
    let mut filter: EnvFilter = filter?;
    for library in INFO_ONLY_LIBRARIES {
        let invalid = |_| SettingError(format!("the log filter for {library} is invalid"));
        filter = filter.add_directive(format!("{library}=info").parse().map_err(invalid)?);
    }
    let logs = tracing_subscriber::fmt().with_env_filter(filter);
    // In tests, several hubs start in one process: the first logger stays, and later ones are ignored.
    let _ = if std::io::stdout().is_terminal() { logs.try_init() } else { logs.json().try_init() };
    Ok(())
}

/// Histogram buckets of durations, in seconds.
const DURATION_BUCKETS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Histogram buckets of batch sizes, in entries.
const ENTRIES_BUCKETS: [f64; 8] = [0.0, 1.0, 10.0, 50.0, 200.0, 1_000.0, 5_000.0, 20_000.0];

/// Starts metrics. A loop compacts histograms every second, so that they do not grow between two scrapes.
pub fn start_metrics(supervisor: &Supervisor) -> Result<PrometheusHandle, SettingError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &DURATION_BUCKETS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Suffix("_entries".to_owned()), &ENTRIES_BUCKETS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| SettingError(format!("failed to start metrics: {error}")))?;
    supervisor.every("metrics-upkeep", Duration::from_secs(1), &handle, |upkeep| async move {
        upkeep.run_upkeep();
    });
    Ok(handle)
}

/// Counters with a label whose values callers choose. Once `max_values` label values exist, events with further values
/// are counted under the value `other`.
pub struct BoundedCounters {
    name: &'static str,
    label: &'static str,
    max_values: usize,
    counters: RwLock<HashMap<String, Counter>>,
}

impl BoundedCounters {
    pub fn new(name: &'static str, label: &'static str, max_values: usize) -> Self {
        Self { name, label, max_values, counters: RwLock::default() }
    }

    pub fn increment(&self, value: &str) {
        if let Ok(counters) = self.counters.read()
            && let Some(counter) = counters.get(value)
        {
            return counter.increment(1);
        }
        let Ok(mut counters) = self.counters.write() else { return };
        let value = if counters.len() < self.max_values { value } else { "other" };
        counters
            .entry(value.to_owned())
            .or_insert_with(|| metrics::counter!(self.name, self.label => value.to_owned()))
            .increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_grow_without_bound() {
        let counters = BoundedCounters::new("test_total", "kind", 3);
        for n in 0..100 {
            counters.increment(&format!("kind{n}"));
        }
        assert_eq!(counters.counters.read().unwrap().len(), 4);
    }
}
