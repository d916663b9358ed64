//! Checks that the sources declare every test that `docs/guarantees.md` names.
//!
//! A name that contains `...` is a pattern, in which the dots match any text, as in `streams_survive_...`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::root;

/// The names of tests in a document: text in backticks that consists of lower-case letters, digits and underscores,
/// with at least three words, or two in a pattern.
fn test_names(document: &str) -> BTreeSet<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_name = |text: &&str| {
        let plain = text.replace("...", "_");
        let words = plain.split('_').filter(|word| !word.is_empty()).count();
        plain.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && words >= if text.contains("...") { 2 } else { 3 }
    };
    quoted.filter(is_name).map(str::to_owned).collect()
}

/// The test functions and macros that the sources declare.
#[derive(Default)]
struct Found {
    /// Functions with the attribute of a test.
    tests: BTreeSet<String>,
    functions: BTreeSet<String>,
    /// Words in lists without commas, as macros take them: `stream: one_test another_test;`.
    listed: BTreeSet<String>,
}

impl Found {
    fn read(&mut self, source: &str) {
        let mut is_test = false;
        for line in source.lines().map(str::trim) {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some(name) = name {
                let names = if std::mem::take(&mut is_test) { &mut self.tests } else { &mut self.functions };
                names.insert(name.to_owned());
            } else if line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_ :;{}".contains(&byte)) {
                let words = line.split([' ', ':', ';', '{', '}']);
                self.listed.extend(words.filter(|word| word.contains('_')).map(str::to_owned));
            }
        }
    }

    /// Functions with the attribute of a test, and functions for which a macro declares tests.
    fn into_tests(self) -> BTreeSet<String> {
        self.functions.intersection(&self.listed).cloned().chain(self.tests).collect()
    }
}

/// Whether a test has this name or matches this pattern.
fn has_test(tests: &BTreeSet<String>, name: &str) -> bool {
    let Some((begin, end)) = name.split_once("...") else { return tests.contains(name) };
    let matches = |test: &String| {
        test.len() >= begin.len() + end.len() && test.starts_with(begin) && test.ends_with(end)
    };
    tests.iter().any(matches)
}

fn all_tests() -> BTreeSet<String> {
    let mut folders: Vec<PathBuf> = ["crates", "apps"].map(|parent| root().join(parent)).into();
    let mut found = Found::default();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.read(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let tests = found.into_tests();
    assert!(tests.len() > 300, "the tests were not found: {}", tests.len());
    tests
}

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let document = std::fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let (named, tests) = (test_names(&document), all_tests());
    assert!(named.len() > 100, "the names were not found: {}", named.len());
    let missing: Vec<&String> = named.iter().filter(|name| !has_test(&tests, name)).collect();
    assert!(missing.is_empty(), "docs/guarantees.md names tests that do not exist: {missing:#?}");
}

#[test]
fn names_of_tests_are_found_in_documents_and_sources() {
    let document =
        "`a_b_c` and `a_b_...`, `two_words`, `...`, `system.reset`, `rooms_of_all.rs`, `SOME_BIG_NAME`";
    assert_eq!(test_names(document).into_iter().collect::<Vec<_>>(), ["a_b_...", "a_b_c"]);
    let source = "#[test]\nfn a_b_c() {}\nfn no_test_at_all() {}\n#[tokio::test(start_paused = true)]\n#[ignore]\n\
        async fn d_e_f() {}\ncontract! {\n    file: g_h_i\n        j_k_l n_o_function;\n}\n\
        async fn g_h_i<A>() {}\nfn j_k_l() {}\nfn m_n_o() {}";
    let mut found = Found::default();
    found.read(source);
    let tests = found.into_tests();
    assert_eq!(tests.iter().collect::<Vec<_>>(), ["a_b_c", "d_e_f", "g_h_i", "j_k_l"]);
    for name in ["a_b_c", "a_...", "..._f", "d_..._f"] {
        assert!(has_test(&tests, name), "{name}");
    }
    for name in ["m_n_o", "b_...", "a_b_c_..."] {
        assert!(!has_test(&tests, name), "{name}");
    }
}
