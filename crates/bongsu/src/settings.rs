//! Gathers the values of the settings, and checks those that `serve` needs.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;

use bongsu_http::identity;
use bongsu_http::origins::Origins;
use bongsu_http::server::SERVER_HOST;
use bongsu_kernel::settings::{Input, SettingError, Values, load};
use bongsu_part::Roles;

use crate::PARTS;

/// The file of environment variables in the working directory.
const ENV_FILE: &str = ".env";

/// Loads the settings: flags override the environment, then come `.env`, the file and the defaults.
pub(crate) fn gather(flags: BTreeMap<String, String>, file: Option<&str>) -> Result<Values, SettingError> {
    let unreadable =
        |path: &str, error| SettingError(format!("the configuration file {path:?} cannot be read: {error}"));
    let read = |path| std::fs::read_to_string(path).map_err(|error| unreadable(path, error));
    let file = file.map(read).transpose()?;
    let settings = PARTS.settings();
    let mut environment = BTreeMap::new();
    for setting in &settings {
        if let Some(value) = std::env::var_os(setting.name) {
            // Refused, because the hub would otherwise run with the default value.
            let value = value
                .into_string()
                .map_err(|_| SettingError(format!("{} is not text in UTF-8", setting.name)))?;
            environment.insert(setting.name.to_owned(), value);
        }
    }
    load(&settings, &Input { flags, environment, env_file: read_env_file()?, file })
}

/// None if there is no file of that name. A folder of that name belongs to another program.
fn read_env_file() -> Result<Option<String>, SettingError> {
    match std::fs::read_to_string(ENV_FILE) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => Ok(None),
        Err(error) => Err(SettingError(format!("the file {ENV_FILE} cannot be read: {error}"))),
    }
}

/// The settings that `serve` needs, checked together without opening a file or a server.
pub(crate) struct ServeSettings {
    pub(crate) host: IpAddr,
    pub(crate) roles: Roles,
    /// Settings whose secrets are short or publicly known; allowed on loopback only.
    pub(crate) weak: Vec<&'static str>,
}

pub(crate) fn check(values: &Values) -> Result<ServeSettings, SettingError> {
    let allowed = "an IP address such as 127.0.0.1 or 0.0.0.0";
    let host = match values.text(&SERVER_HOST) {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        given => given.parse().map_err(|_| values.not_allowed(&SERVER_HOST, allowed))?,
    };
    let weak = identity::Options::from_settings(values)?.check_secrets(values, host)?;
    Origins::from_settings(values)?;
    Ok(ServeSettings { host, roles: PARTS.check(values)?, weak })
}
