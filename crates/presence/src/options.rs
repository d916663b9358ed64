//! The settings of presence.

use std::time::Duration;

use bongsu_kernel::settings::{SettingError, Values};

bongsu_kernel::settings! { pub SETTINGS of "presence":
    PRESENCE_USER_TTL_SECS = "60", integer(1, 86_400):
        "Seconds until a presence lease ends, and the person leaves the room. A heartbeat renews the lease, as does the hub while a stream is open.";
    PRESENCE_HASH_TTL_SECS = "120", integer(2, 172_800):
        "Seconds after the last renewal until the presence keys of a room expire in Redis. Must be longer than PRESENCE_USER_TTL_SECS.";
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Lifetime of a presence lease that is not renewed.
    pub user_ttl: Duration,
    /// Expiry of a room's keys in Redis after the last renewal.
    pub hash_ttl: Duration,
}

impl Options {
    pub fn from_settings(values: &Values) -> Result<Self, SettingError> {
        let options = Self {
            user_ttl: values.seconds(&PRESENCE_USER_TTL_SECS),
            hash_ttl: values.seconds(&PRESENCE_HASH_TTL_SECS),
        };
        if options.hash_ttl <= options.user_ttl {
            // If the keys expired first, the last people would disappear without an announcement.
            return Err(values.not_allowed(&PRESENCE_HASH_TTL_SECS, "more than PRESENCE_USER_TTL_SECS"));
        }
        Ok(options)
    }

    /// The time between two heartbeats of a person without a stream.
    pub fn heartbeat_interval(&self) -> Duration {
        self.user_ttl / 2
    }
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;

    fn load_options(user: &str, hash: &str) -> Result<Options, SettingError> {
        let values = [("PRESENCE_USER_TTL_SECS", user), ("PRESENCE_HASH_TTL_SECS", hash)];
        let environment = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let values = load(SETTINGS, &Input { environment, ..Input::default() })?;
        Options::from_settings(&values)
    }

    #[test]
    fn keys_must_outlive_leases() {
        let options = load_options("60", "120").unwrap();
        assert_eq!(options.heartbeat_interval(), Duration::from_secs(30));
        assert!(load_options("60", "61").is_ok());
        let error = load_options("120", "120").unwrap_err().to_string();
        assert!(error.contains("PRESENCE_HASH_TTL_SECS=\"120\""), "{error}");
    }
}
