//! Logs and metrics: set up once at start, bounded for ever.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::RwLock;
use std::time::Duration;

use metrics::Counter;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::settings::{Bad, Scope, Values};
use crate::task::Supervisor;

crate::settings! { "logs":
    pub RUST_LOG = "info", scope(Scope::Instance):
        "What is logged: a level, or levels per module. Text on a terminal, JSON otherwise.";
}

/// Libraries that would write headers, and so tokens, at their lowest levels.
const TALKATIVE: [&str; 5] = ["h2", "hyper", "hyper_util", "reqwest", "rustls"];

/// Starts logging to standard output.
pub fn start_logs(values: &Values) -> Result<(), Bad> {
    let wanted = values.text(&RUST_LOG);
    let mut filter: EnvFilter = wanted
        .parse()
        .map_err(|_| Bad::value(&RUST_LOG, wanted, "a level such as info, or module=level, ..."))?;
    for library in TALKATIVE {
        filter = filter.add_directive(
            format!("{library}=info")
                .parse()
                .map_err(|_| Bad(format!("the log filter for {library} is not readable")))?,
        );
    }
    let logs = tracing_subscriber::fmt().with_env_filter(filter);
    // A second start in one process (tests) keeps the first.
    let _ = if std::io::stdout().is_terminal() { logs.try_init() } else { logs.json().try_init() };
    Ok(())
}

/// Buckets in seconds, from a tenth of a millisecond to ten seconds.
const SECONDS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Buckets of how many things were done at once.
const ENTRIES: [f64; 8] = [0.0, 1.0, 10.0, 50.0, 200.0, 1_000.0, 5_000.0, 20_000.0];

/// Starts metrics. The upkeep loop keeps histograms from growing between two scrapes.
pub fn start_metrics(supervisor: &Supervisor) -> Result<PrometheusHandle, Bad> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_entries".to_owned()), &ENTRIES))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| Bad(format!("metrics cannot start: {error}")))?;
    supervisor.every("metrics-upkeep", Duration::from_secs(1), &handle, |upkeep| async move {
        upkeep.run_upkeep();
    });
    Ok(handle)
}

/// Counters by a label that callers choose. Past `most` values, all further ones count as `other`.
pub struct BoundedCounters {
    name: &'static str,
    label: &'static str,
    most: usize,
    known: RwLock<HashMap<String, Counter>>,
}

impl BoundedCounters {
    pub fn new(name: &'static str, label: &'static str, most: usize) -> Self {
        Self { name, label, most, known: RwLock::default() }
    }

    pub fn increment(&self, value: &str) {
        if let Ok(known) = self.known.read()
            && let Some(counter) = known.get(value)
        {
            return counter.increment(1);
        }
        let Ok(mut known) = self.known.write() else { return };
        let value = if known.len() < self.most { value } else { "other" };
        known
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
        assert_eq!(counters.known.read().unwrap().len(), 4);
    }
}
