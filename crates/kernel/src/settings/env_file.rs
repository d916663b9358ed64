//! The file `.env`: environment variables, one a line.
//!
//! A line is `NAME=value`, with or without `export` before it, empty, or a comment (`#`). A value is taken as it is written:
//! nothing in it is expanded. Quotes of either kind around the value keep spaces and ` #`, which would begin a comment.

use std::collections::BTreeMap;

use super::Bad;

/// Reads the variables. An error names the line and not what is in it, which may be a secret.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, String>, Bad> {
    let mut variables = BTreeMap::new();
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) =
            parse_line(line).map_err(|why| Bad(format!("the file .env is wrong: line {number}: {why}")))?;
        variables.insert(name.to_owned(), value.to_owned());
    }
    Ok(variables)
}

fn parse_line(line: &str) -> Result<(&str, &str), &'static str> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').ok_or("it is not NAME=value")?;
    let name = name.trim();
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.starts_with(|first: char| !first.is_ascii_digit());
    if !is_name {
        return Err("the name before = is not letters, digits and _");
    }
    let Some(quote) = value.trim_start().chars().next().filter(|first| ['"', '\''].contains(first)) else {
        let end = value.find(" #").unwrap_or(value.len());
        return Ok((name, value[..end].trim()));
    };
    let (value, rest) = value.trim_start()[1..].split_once(quote).ok_or("the quote is not closed")?;
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with('#') {
        Ok((name, value))
    } else {
        Err("something stands after the closing quote")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let read = parse(&format!("\u{feff}# comment\n\n{line}\n")).unwrap();
            assert_eq!((read.len(), read["A"].as_str()), (1, value), "{line:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_without_what_it_holds() {
        for bad in ["s3cret", "=s3cret", "A B=s3cret", "1A=s3cret", "A-B=s3cret", "A='s3cret", "A=\"s3\"cret"]
        {
            let error = parse(&format!("\n# fine\nA=1\n{bad}\nB=2")).unwrap_err().to_string();
            assert!(error.starts_with("the file .env is wrong: line 4: "), "{error}");
            assert!(!error.contains("s3"), "{error}");
        }
    }
}
