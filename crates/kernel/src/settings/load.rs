//! Puts settings together from flags, environment, `.env` and file, and refuses what is not allowed.

use std::collections::BTreeMap;

use super::{Bad, Kind, Setting, Source, Values, env_file};

/// What was given, by the names of the settings.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub flags: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    /// The text of `.env`. It may hold variables of other programs, too.
    pub env_file: Option<String>,
    /// The text of the configuration file.
    pub file: Option<String>,
}

/// The values in force.
pub fn load(settings: &[&'static Setting], input: &Input) -> Result<Values, Bad> {
    let file = input.file.as_deref().map(|text| from_file(settings, text)).transpose()?.unwrap_or_default();
    let env_file = input.env_file.as_deref().map(|text| env_file::parse(text, settings)).transpose()?;
    let env_file = env_file.unwrap_or_default();
    let sources = [
        (&input.flags, Source::Flag),
        (&input.environment, Source::Environment),
        (&env_file, Source::EnvFile),
        (&file, Source::File),
    ];
    let mut values = Values::default();
    for &setting in settings {
        // An empty variable is how shells and compose files say "unset": what is below it counts.
        let given = sources.iter().find_map(|(values, source)| {
            values.get(setting.name).filter(|v| !v.is_empty()).map(|v| (v, *source))
        });
        let Some((value, source)) = given else { continue };
        if !setting.accepts(value) {
            return Err(Bad::value(setting, value, &setting.allowed()));
        }
        values.0.insert(setting.name, (value.clone(), source));
    }
    Ok(values)
}

/// Reads `[part] name = value`. A key that no setting has is an error: it is most likely a slip of the pen.
fn from_file(settings: &[&'static Setting], text: &str) -> Result<BTreeMap<String, String>, Bad> {
    let bad = |detail: String| Bad(format!("the configuration file is wrong: {detail}"));
    let tables: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // Without the line itself, which may hold a secret.
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        bad(format!("line {line}: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    let mut values = BTreeMap::new();
    for (part, table) in &tables {
        let table = table.as_table().ok_or_else(|| bad(format!("{part} stands outside a table")))?;
        for (key, value) in table {
            let setting = settings
                .iter()
                .find(|s| s.part == part && s.name.to_ascii_lowercase() == *key)
                .ok_or_else(|| bad(format!("[{part}] {key} is not a setting")))?;
            let value = plain(value).filter(|_| setting.kind != Kind::List || !value.is_table());
            let value = value.ok_or_else(|| bad(format!("[{part}] {key} must be {}", setting.allowed())))?;
            values.insert(setting.name.to_owned(), value);
        }
    }
    Ok(values)
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => {
            items.iter().map(plain).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Setting = Setting::text("server", "SERVER_PORT", "8083", "port").whole(0, 65_535);
    const MODE: Setting = Setting::text("rooms", "MODE", "open", "mode").kind(Kind::OneOf(&["open", "shut"]));
    const KEYS: Setting = Setting::text("identity", "KEYS", "", "keys").kind(Kind::Secret);
    const HOSTS: Setting = Setting::text("server", "HOSTS", "a,b", "hosts").kind(Kind::List);
    const ALL: &[&Setting] = &[&PORT, &MODE, &KEYS, &HOSTS];

    fn input(flags: &[(&str, &str)], environment: &[(&str, &str)], file: &str) -> Input {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let file = Some(file.to_owned());
        Input { flags: map(flags), environment: map(environment), env_file: None, file }
    }

    #[test]
    fn flags_win_over_environment_over_file_over_default() {
        let file = "[server]\nserver_port = 1\nhosts = [\"x\", \"y\"]\n[rooms]\nmode = \"shut\"";
        let values =
            load(ALL, &input(&[("SERVER_PORT", "3")], &[("SERVER_PORT", "2"), ("KEYS", "")], file)).unwrap();
        assert_eq!((values.whole(&PORT), values.source(&PORT)), (3, Source::Flag));
        assert_eq!((values.text(&MODE), values.source(&MODE)), ("shut", Source::File));
        assert_eq!((values.given(&KEYS), values.source(&KEYS)), (None, Source::Default));
        assert_eq!(values.list(&HOSTS), ["x", "y"]);
        assert_eq!(load(ALL, &input(&[], &[("SERVER_PORT", "2")], file)).unwrap().whole(&PORT), 2);
        assert_eq!(
            load(ALL, &input(&[("SERVER_PORT", "")], &[("SERVER_PORT", "")], file)).unwrap().whole(&PORT),
            1
        );
    }

    #[test]
    fn the_environment_wins_over_the_env_file_and_that_over_the_file() {
        let given = Input {
            env_file: Some("SERVER_PORT=2\nMODE=shut\nHOSTS=\nOTHER_PROGRAM=1".to_owned()),
            ..input(
                &[],
                &[("SERVER_PORT", "3")],
                "[server]\nserver_port = 1\nhosts = \"x\"\n[rooms]\nmode = \"open\"",
            )
        };
        let values = load(ALL, &given).unwrap();
        assert_eq!((values.whole(&PORT), values.source(&PORT)), (3, Source::Environment));
        assert_eq!((values.text(&MODE), values.source(&MODE)), ("shut", Source::EnvFile));
        assert_eq!((values.text(&HOSTS), values.source(&HOSTS)), ("x", Source::File));
    }

    #[test]
    fn a_bad_value_is_named_with_what_is_allowed() {
        let error = |environment: &[(&str, &str)], file: &str| {
            load(ALL, &input(&[], environment, file)).unwrap_err().to_string()
        };
        assert_eq!(
            error(&[("SERVER_PORT", "70000")], ""),
            "SERVER_PORT=\"70000\" is not allowed: a whole number from 0 to 65535"
        );
        assert_eq!(error(&[("MODE", "ajar")], ""), "MODE=\"ajar\" is not allowed: one of open, shut");
        assert!(error(&[], "[server]\nport = 1").contains("[server] port is not a setting"));
        assert!(error(&[], "server_port = 1").contains("outside a table"));
        assert!(error(&[], "[server\n").contains("line 1"));
        let typo = error(&[], "[identity]\nkeys=\"s3cret\" x");
        assert!(typo.contains("line 2") && !typo.contains("s3cret"), "{typo}");
    }
}
