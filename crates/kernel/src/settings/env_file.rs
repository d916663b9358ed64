//! Parses the file `.env`: environment variables, one per line.
//!
//! A line is `NAME=value`, optionally after `export`, or it is empty, or a comment (`#`). A value is taken
//! literally: the parser expands no variables and no escapes. Single or double quotes around a value keep its
//! spaces and a ` #`, which otherwise begins a comment. Other programs may read the same file with rules of
//! their own, so the parser ignores every line that does not begin with the name of a setting.

use std::collections::BTreeMap;

use super::{Setting, SettingError};

/// Returns the values of the settings in the file, by name. An error contains the number of the line but not its text,
/// which may be a secret.
pub(super) fn parse(text: &str, settings: &[&Setting]) -> Result<BTreeMap<String, String>, SettingError> {
    let mut variables = BTreeMap::new();
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let name = line.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default();
        if !settings.iter().any(|setting| setting.name == name) {
            continue;
        }
        let value = parse_value(&line[name.len()..])
            .map_err(|detail| SettingError(format!("the file .env is invalid: line {number}: {detail}")))?;
        variables.insert(name.to_owned(), value.to_owned());
    }
    Ok(variables)
}

/// Parses the rest of a line after the name.
fn parse_value(line: &str) -> Result<&str, &'static str> {
    let value = line.trim_start().strip_prefix('=').ok_or("the line must have the form NAME=value")?;
    let Some(quote) = value.trim_start().chars().next().filter(|first| ['"', '\''].contains(first)) else {
        let end = value.find(" #").unwrap_or(value.len());
        return Ok(value[..end].trim());
    };
    let (value, rest) = value.trim_start()[1..].split_once(quote).ok_or("the quote is not closed")?;
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with('#') {
        Ok(value)
    } else {
        Err("only a comment may follow the closing quote")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Setting = Setting::text("part", "A", "", "one");
    const B: Setting = Setting::text("part", "B", "", "another");

    #[test]
    fn values_are_taken_as_they_are_written() {
        for (line, value) in [
            ("A=b", "b"),
            ("  export A = b c  ", "b c"),
            ("A=b # comment", "b"),
            ("A=#b#c", "#b#c"),
            ("A= # nothing", ""),
            ("A=", ""),
            ("A='b # c'", "b # c"),
            ("A=\"b 'c' $D \\n\" # comment", "b 'c' $D \\n"),
            ("A=$B`c`", "$B`c`"),
            ("A=postgres://u:p=@h/d?a=1&b=2", "postgres://u:p=@h/d?a=1&b=2"),
            ("A=b\r", "b"),
            ("A=first\nA=last", "last"),
        ] {
            let read = parse(&format!("\u{feff}# comment\n\n{line}\n"), &[&A]).unwrap();
            assert_eq!((read.len(), read["A"].as_str()), (1, value), "{line:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_without_what_it_holds() {
        for bad in ["A s3cret", "A", "A B=s3cret", "A='s3cret", "A=\"s3\"cret"] {
            let error = parse(&format!("\n# fine\nA=1\n{bad}\nB=2"), &[&A, &B]).unwrap_err().to_string();
            assert!(error.starts_with("the file .env is invalid: line 4: "), "{error}");
            assert!(!error.contains("s3"), "{error}");
        }
    }

    #[test]
    fn lines_of_other_programs_are_left_to_them() {
        let text = "KEY=\"-----BEGIN\nb64=\n-----END\"\nmy.key=1\nexport OTHER\nA=1\nA-B='x\n";
        assert_eq!(parse(text, &[&A, &B]).unwrap(), BTreeMap::from([("A".to_owned(), "1".to_owned())]));
    }
}
