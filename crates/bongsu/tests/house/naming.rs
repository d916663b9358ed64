//! The rules of naming that a program can check: constants name quantities, types are nouns, one name means
//! one thing, and every metric is described.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, root, sources};

/// Types whose values are quantities, so that their constants have to name the quantity.
const QUANTITIES: [&str; 9] = ["Duration", "Millis", "f64", "i32", "i64", "u32", "u64", "u128", "usize"];
/// Type names that do not describe a value.
const EMPTY_WORDS: [&str; 20] = [
    "Else",
    "Elsewhere",
    "Everybody",
    "Everything",
    "Found",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Here",
    "Known",
    "Lost",
    "Met",
    "Nobody",
    "Others",
    "Said",
    "Seen",
    "There",
    "Told",
    "What",
];
/// Names that every crate may use for its own: they are read together with the name of the crate.
const PER_CRATE_NAMES: [&str; 2] = ["Error", "Options"];

/// The names that lines of a source declare after these keywords, with the rest of the line.
fn declarations<'a>(source: &'a Source, keywords: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    source.text.lines().filter_map(move |line| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
        let line = line.strip_prefix("pub(super) ").unwrap_or(line);
        let rest = keywords.iter().find_map(|keyword| line.strip_prefix(keyword)?.strip_prefix(' '))?;
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
        Some(rest.split_at(end))
    })
}

#[test]
fn constants_name_the_quantity_that_they_hold() {
    let mut wrong = Vec::new();
    for source in &sources() {
        for (name, rest) in declarations(source, &["const"]) {
            let kind = rest.trim_start_matches([':', ' ']).split([' ', ';']).next().unwrap_or_default();
            if QUANTITIES.contains(&kind) && !name.contains('_') && name != "_" {
                wrong.push(format!("{}: {name}: {kind} says only one word", source.place()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a limit is MAX_..., a time ..._INTERVAL, ..._TIMEOUT or ..._DELAY:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn types_are_named_by_nouns() {
    let mut wrong = Vec::new();
    for source in &sources() {
        for (name, _) in declarations(source, &["struct", "enum", "trait"]) {
            let is_one_word = name.chars().filter(char::is_ascii_uppercase).count() == 1;
            if EMPTY_WORDS.contains(&name)
                || (is_one_word && name.len() > 4 && name.ends_with("ed") && name != "Feed")
            {
                wrong.push(format!("{}: {name}", source.place()));
            }
        }
    }
    assert!(wrong.is_empty(), "say what a value is, not what was done to it:\n{}", wrong.join("\n"));
}

#[test]
fn a_public_type_name_means_one_thing() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let product =
        sources().into_iter().filter(|source| !["testkit", "engines"].contains(&source.krate.as_str()));
    for source in product {
        let public = source.text.lines().filter_map(|line| line.strip_prefix("pub "));
        for line in public {
            let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            if let (Some("struct" | "enum" | "trait" | "type"), Some(name)) = (words.next(), words.next()) {
                places.entry(name.to_owned()).or_default().insert(source.krate.clone());
            }
        }
    }
    places.retain(|name, crates| crates.len() > 1 && !PER_CRATE_NAMES.contains(&name.as_str()));
    assert!(places.is_empty(), "one name for things of several crates: {places:?}");
}

#[test]
fn every_metric_is_described_in_the_program_and_in_the_documents() {
    let described: BTreeSet<&str> = bongsu::METRICS.iter().map(|(name, _)| *name).collect();
    let mut used = BTreeSet::new();
    let sources = sources();
    for product in sources.iter().map(Source::without_tests) {
        for start in ["counter!(", "gauge!(", "histogram!(", "BoundedCounters::new("] {
            let calls = product.match_indices(start).map(|(at, _)| product[at + start.len()..].trim_start());
            used.extend(calls.filter_map(|call| call.strip_prefix('"')?.split('"').next()));
        }
    }
    assert!(used.len() > 30, "{used:?}");
    assert_eq!(used, described, "used, and described in metric_descriptions.rs");
    let document = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let missing = described.iter().filter(|name| !document.contains(**name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "docs/operating.md does not name {missing:?}");
}
