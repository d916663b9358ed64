//! Shows settings: what is in force, the reference page and the example file.

use std::fmt::Write;

use super::{Kind, Setting, Values};

/// A table of every setting with its value and where it came from. Secrets are hidden.
pub fn in_force(settings: &[&'static Setting], values: &Values) -> String {
    let width = settings.iter().map(|setting| setting.name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for setting in settings {
        let value = match (setting.kind, values.given(setting)) {
            (_, None) => "(unset)".to_owned(),
            (Kind::Secret, Some(_)) => "(hidden)".to_owned(),
            (_, Some(value)) if value.contains("://") => without_password(value),
            (_, Some(value)) => value.to_owned(),
        };
        let _ = writeln!(out, "{:width$}  {:11}  {value}", setting.name, values.source(setting).name());
    }
    out
}

/// A URL's user part may hold a password, and its query a key.
fn without_password(value: &str) -> String {
    let hidden = |url: &str| match url.split_once("://") {
        Some((scheme, rest)) => match rest.split_once('@') {
            Some((_, host)) => format!("{scheme}://(hidden)@{host}"),
            None => url.to_owned(),
        },
        None => url.to_owned(),
    };
    let hidden = |url: &str| match hidden(url).split_once('?') {
        Some((before, _)) => format!("{before}?(hidden)"),
        None => hidden(url),
    };
    value.split(',').map(hidden).collect::<Vec<_>>().join(",")
}

/// The reference page, in Markdown.
pub fn reference(settings: &[&'static Setting]) -> String {
    let mut out = String::from(
        "# Settings\n\nMade by `cargo xtask docs` from the declarations in the code. Each setting is an environment \
         variable, a flag\n(`SERVER_PORT` is `--server-port`) or a key in the file that `--config` names (lower case, \
         in the table that heads\nits section). A flag wins over the environment, the environment over the file. \
         `bongsu config` prints what is in force.\n",
    );
    for part in parts(settings) {
        let _ = write!(out, "\n## {part}\n\n| setting | default | allowed | |\n| --- | --- | --- | --- |\n");
        for setting in settings.iter().filter(|setting| setting.part == part) {
            let default = if setting.default.is_empty() {
                "unset".to_owned()
            } else {
                format!("`{}`", setting.default)
            };
            let _ = writeln!(
                out,
                "| `{}` | {default} | {} | {} |",
                setting.name,
                setting.allowed(),
                setting.about
            );
        }
    }
    out
}

/// The example file: every setting, commented out, at its default.
pub fn env_example(settings: &[&'static Setting]) -> String {
    let mut out = String::from(
        "# Every setting at its default; made by `cargo xtask docs`. Copy what you change to a file of your own and\n\
         # load it with: set -a; . ./.env; set +a\n",
    );
    for part in parts(settings) {
        let _ = write!(out, "\n# --- {part}\n");
        for setting in settings.iter().filter(|setting| setting.part == part) {
            let _ = write!(out, "# {}\n#{}={}\n", setting.about, setting.name, setting.default);
        }
    }
    out
}

fn parts(settings: &[&'static Setting]) -> Vec<&'static str> {
    let mut parts = Vec::new();
    for setting in settings {
        if !parts.contains(&setting.part) {
            parts.push(setting.part);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Input, load};

    #[test]
    fn secrets_and_passwords_are_hidden() {
        const KEY: Setting = Setting::text("identity", "KEY", "", "a key").kind(Kind::Secret);
        const URL: Setting = Setting::text("redis", "URL", "", "a url");
        let environment = [("KEY", "s3cret-value"), ("URL", "redis://u:s3cret@h:1/0")];
        let input = Input {
            environment: environment.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            ..Input::default()
        };
        let shown = in_force(&[&KEY, &URL], &load(&[&KEY, &URL], &input).unwrap());
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("redis://(hidden)@h:1/0"), "{shown}");
    }
}
