//! Shows settings: what is in force, the reference page and the example file. No value is shown with a secret or a
//! credential in it.

use std::fmt::Write;

use super::{Kind, Setting, Values};

const HIDDEN: &str = "(hidden)";

/// A table of every setting with its value and where it came from. Secrets are hidden.
pub fn in_force(settings: &[&'static Setting], values: &Values) -> String {
    let width = settings.iter().map(|setting| setting.name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for setting in settings {
        let value = values.given(setting).map_or_else(|| "(unset)".to_owned(), |value| setting.shown(value));
        let _ = writeln!(out, "{:width$}  {:11}  {value}", setting.name, values.source(setting).name());
    }
    out
}

impl Setting {
    /// A value of this setting as logs, errors and the command line show it.
    pub fn shown(&self, value: &str) -> String {
        match self.kind {
            Kind::Secret => HIDDEN.to_owned(),
            Kind::Url => without_credentials(value),
            Kind::List => value.split(',').map(without_credentials_if_url).collect::<Vec<_>>().join(","),
            Kind::Text | Kind::Whole { .. } | Kind::OneOf(_) => without_credentials_if_url(value),
        }
    }
}

fn without_credentials_if_url(value: &str) -> String {
    if value.contains("://") { without_credentials(value) } else { value.to_owned() }
}

/// A URL without its user part, which may hold a password, and without its query, which may hold a key. What is not
/// written as a URL and may hold either is hidden as a whole.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.contains('@') { HIDDEN.to_owned() } else { url.to_owned() };
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains('@') || scheme.contains('@') {
        // A password that was not encoded may hold any of the three.
        return HIDDEN.to_owned();
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((_, host)) => (format!("{HIDDEN}@"), host),
        None => (String::new(), authority),
    };
    let (path, query) = match path.find(['?', '#']) {
        Some(at) => (&path[..at], format!("?{HIDDEN}")),
        None => (path, String::new()),
    };
    format!("{scheme}://{user}{host}{path}{query}")
}

/// The reference page, in Markdown.
pub fn reference(settings: &[&'static Setting]) -> String {
    let mut out = String::from(
        "# Settings\n\nMade by `cargo xtask docs` from the declarations in the code. Each setting is an environment \
         variable, a flag\n(`SERVER_PORT` is `--server-port`) or a key in the file that `--config` names (lower case, \
         in the table that heads\nits section). Environment variables may also stand in a file `.env` in the working \
         directory, one a line. A flag wins\nover the environment, the environment over `.env`, that over the file. \
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
        "# Every setting at its default; made by `cargo xtask docs`. Copy what you change to .env in the directory that the\n\
         # hub is started in: it is read there, and environment variables win over it. Nothing in a value is expanded.\n",
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

    #[test]
    fn no_url_is_shown_with_what_may_be_a_credential() {
        for (url, shown) in [
            ("redis://h:6379/0", "redis://h:6379/0"),
            ("redis://:s3cret@h:6379/0", "redis://(hidden)@h:6379/0"),
            ("redis+cluster://u:s3cret@a:1,b:2", "redis+cluster://(hidden)@a:1,b:2"),
            ("redis://u:s3c,ret@h", "redis://(hidden)@h"),
            ("redis://u:s3c@ret@h", "redis://(hidden)@h"),
            ("redis://u:s3c/ret@h", "(hidden)"),
            ("redis://u:s3c?ret@h", "(hidden)"),
            ("redis://u:s3c#ret@h", "(hidden)"),
            ("u:s3cret@redis://h", "(hidden)"),
            ("u:s3cret@h:6379", "(hidden)"),
            ("https://h/keys?key=s3cret", "https://h/keys?(hidden)"),
            ("https://h/keys#s3cret", "https://h/keys?(hidden)"),
            ("https://u@h?key=s3cret", "https://(hidden)@h?(hidden)"),
            ("keys.json", "keys.json"),
        ] {
            assert_eq!(without_credentials(url), shown, "{url}");
        }
    }

    #[test]
    fn a_refused_value_is_shown_without_credentials_too() {
        const URL: Setting = Setting::text("identity", "KEYS_URL", "", "a url").kind(Kind::Url);
        const LIST: Setting = Setting::text("server", "ORIGINS", "", "origins").kind(Kind::List);
        const NAMES: Setting = Setting::text("rooms", "NAMES", "", "names");
        let said =
            |setting: &Setting, value: &str| crate::settings::Bad::value(setting, value, "x").to_string();
        assert!(!said(&URL, "ftp://u:s3cret@h").contains("s3cret"));
        assert!(!said(&URL, "u:s3cret@h").contains("s3cret"));
        let list = said(&LIST, "https://a,https://u:s3cret@b");
        assert!(list.contains("https://a") && !list.contains("s3cret"), "{list}");
        assert!(said(&NAMES, "me@home=5").contains("me@home=5"), "not a URL");
    }
}
