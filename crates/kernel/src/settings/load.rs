//! Loads settings from flags, environment, `.env` and the configuration file, and rejects values that are not allowed.
//!
//! A rejected value is reported in one line, with the setting, the value (unless it is secret) and the
//! allowed values.

use std::collections::BTreeMap;

use super::{Kind, Setting, SettingError, SettingSource, Values, env_file};

/// The sources of settings. The keys of the maps are setting names.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub flags: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    /// The text of `.env`, which may also contain variables of other programs.
    pub env_file: Option<String>,
    /// The text of the configuration file.
    pub file: Option<String>,
}

/// Returns the effective values.
pub fn load(settings: &[&'static Setting], input: &Input) -> Result<Values, SettingError> {
    let file =
        input.file.as_deref().map(|text| parse_config_file(settings, text)).transpose()?.unwrap_or_default();
    let env_file = input.env_file.as_deref().map(|text| env_file::parse(text, settings)).transpose()?;
    let env_file = env_file.unwrap_or_default();
    let sources = [
        (&input.flags, SettingSource::Flag),
        (&input.environment, SettingSource::Environment),
        (&env_file, SettingSource::EnvFile),
        (&file, SettingSource::File),
    ];
    let mut values = Values::default();
    for &setting in settings {
        // Shells and compose files unset a variable by an empty value, so an empty value falls back to the next source.
        let found = sources.iter().find_map(|(values, source)| {
            values.get(setting.name).filter(|v| !v.is_empty()).map(|v| (v, *source))
        });
        let Some((value, source)) = found else { continue };
        if !setting.accepts(value) {
            return Err(SettingError::invalid_value(setting, value, &setting.allowed()));
        }
        values.0.insert(setting.name, (value.clone(), source));
    }
    Ok(values)
}

/// Parses the tables `[part]` with their entries `name = value`. A key that names no setting is an error, because most
/// likely it is misspelled.
fn parse_config_file(
    settings: &[&'static Setting],
    text: &str,
) -> Result<BTreeMap<String, String>, SettingError> {
    let invalid = |detail: String| SettingError(format!("the configuration file is invalid: {detail}"));
    let tables: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The message must not contain the text of the line, which may be a secret.
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        invalid(format!("line {line}: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    let mut values = BTreeMap::new();
    for (part, table) in &tables {
        let table = table.as_table().ok_or_else(|| invalid(format!("the key {part} is outside a table")))?;
        for (key, value) in table {
            let setting = settings
                .iter()
                .find(|s| s.part == part && s.name.to_ascii_lowercase() == *key)
                .ok_or_else(|| invalid(format!("[{part}] {key} is not a setting")))?;
            let value = to_text(value).filter(|_| setting.kind != Kind::List || !value.is_table());
            let value =
                value.ok_or_else(|| invalid(format!("[{part}] {key} must be {}", setting.allowed())))?;
            values.insert(setting.name.to_owned(), value);
        }
    }
    Ok(values)
}

/// Converts a TOML value to the text form of a setting; None for types that no setting has.
fn to_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => {
            items.iter().map(to_text).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Setting = Setting::text("server", "SERVER_PORT", "8083", "port").integer(0, 65_535);
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
        assert_eq!((values.integer(&PORT), values.source(&PORT)), (3, SettingSource::Flag));
        assert_eq!((values.text(&MODE), values.source(&MODE)), ("shut", SettingSource::File));
        assert_eq!((values.get(&KEYS), values.source(&KEYS)), (None, SettingSource::Default));
        assert_eq!(values.list(&HOSTS), ["x", "y"]);
        assert_eq!(load(ALL, &input(&[], &[("SERVER_PORT", "2")], file)).unwrap().integer(&PORT), 2);
        assert_eq!(
            load(ALL, &input(&[("SERVER_PORT", "")], &[("SERVER_PORT", "")], file)).unwrap().integer(&PORT),
            1
        );
    }

    #[test]
    fn the_environment_wins_over_the_env_file_and_that_over_the_file() {
        let input = Input {
            env_file: Some("SERVER_PORT=2\nMODE=shut\nHOSTS=\nOTHER_PROGRAM=1".to_owned()),
            ..input(
                &[],
                &[("SERVER_PORT", "3")],
                "[server]\nserver_port = 1\nhosts = \"x\"\n[rooms]\nmode = \"open\"",
            )
        };
        let values = load(ALL, &input).unwrap();
        assert_eq!((values.integer(&PORT), values.source(&PORT)), (3, SettingSource::Environment));
        assert_eq!((values.text(&MODE), values.source(&MODE)), ("shut", SettingSource::EnvFile));
        assert_eq!((values.text(&HOSTS), values.source(&HOSTS)), ("x", SettingSource::File));
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
