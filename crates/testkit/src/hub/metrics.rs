//! A parser of the Prometheus text format.

use std::collections::BTreeMap;

/// The samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

/// One sample: a line of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Metrics {
    /// Parses a scrape; panics on a line that Prometheus would reject.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines
            .map(|line| {
                sample(line).unwrap_or_else(|| panic!("invalid line in the Prometheus text format: {line:?}"))
            })
            .collect();
        Self { samples }
    }

    /// The sum of all samples with this name and at least these labels. 0 if there is no such sample: a counter that
    /// was never incremented may be absent.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// The samples of `self` and `other`.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.samples.extend(other.samples);
        self
    }

    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.matching(name, labels).next().is_some()
    }

    /// All samples, for tests that check names and label values.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(*label).is_some_and(|actual| actual == value))
        })
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => read_labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    // A timestamp may follow the value.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    (is_name && !name.is_empty()).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Parses `a="b",c="d"}`; returns the labels and the rest of the line.
fn read_labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = read_quoted(after)?;
        labels.insert(name.trim().to_owned(), value);
        rest = after;
    }
}

/// Parses a label value up to its closing quote; returns the value and the rest of the line.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "\
# HELP events_published_total Events.
# TYPE events_published_total counter
events_published_total{event_type=\"a.b\"} 3
events_published_total{event_type=\"c.d\"} 4 1708070400000

sse_active_connections 12
odd{text=\"a \\\"quoted\\\" {brace}, \\\\ and\\nline\",} +Inf
delivery_latency_seconds_bucket{le=\"0.005\",room=\"1\"} 1.5e3
";

    #[test]
    fn samples_are_found_and_summed() {
        let metrics = Metrics::parse(SCRAPE);
        assert_eq!(metrics.get("events_published_total", &[("event_type", "a.b")]), 3.0);
        assert_eq!(metrics.get("events_published_total", &[]), 7.0);
        assert_eq!(metrics.get("sse_active_connections", &[]), 12.0);
        assert_eq!(metrics.get("delivery_latency_seconds_bucket", &[("le", "0.005")]), 1500.0);
        assert_eq!(metrics.get("events_published", &[]), 0.0);
        assert!(!metrics.has("sse_active_connections", &[("room", "1")]));
        assert_eq!(metrics.samples().len(), 5);
    }

    #[test]
    fn label_values_are_unescaped() {
        let metrics = Metrics::parse(SCRAPE);
        assert_eq!(metrics.samples()[3].labels["text"], "a \"quoted\" {brace}, \\ and\nline");
        assert_eq!(metrics.samples()[3].value, f64::INFINITY);
    }

    #[test]
    #[should_panic(expected = "Prometheus")]
    fn an_invalid_line_panics() {
        Metrics::parse("name{label=\"open} 1\n");
    }
}
