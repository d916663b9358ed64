//! The settings of presence.

use std::time::Duration;

use bongsu_kernel::settings::{Bad, Values};

bongsu_kernel::settings! { pub SETTINGS of "presence":
    PRESENCE_USER_TTL_SECS = "60", whole(1, 86_400):
        "A person is gone so long after the last sign: a heartbeat, or the hub's own renewal while a stream is open.";
    PRESENCE_HASH_TTL_SECS = "120", whole(2, 172_800):
        "What Redis keeps about the people of a room lives so long after the last sign; longer than PRESENCE_USER_TTL_SECS.";
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A person is gone so long after the last sign.
    pub user_ttl: Duration,
    /// A room's keys live so long after the last sign.
    pub hash_ttl: Duration,
}

impl Options {
    pub fn from_settings(values: &Values) -> Result<Self, Bad> {
        let options = Self {
            user_ttl: values.seconds(&PRESENCE_USER_TTL_SECS),
            hash_ttl: values.seconds(&PRESENCE_HASH_TTL_SECS),
        };
        if options.hash_ttl <= options.user_ttl {
            // A room that is forgotten first takes its last people with it, and nobody is told.
            return Err(Bad::value(
                &PRESENCE_HASH_TTL_SECS,
                values.text(&PRESENCE_HASH_TTL_SECS),
                "more than PRESENCE_USER_TTL_SECS",
            ));
        }
        Ok(options)
    }

    /// Those without a stream say so often that they are still there.
    pub fn heartbeat(&self) -> Duration {
        self.user_ttl / 2
    }
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;

    fn read(user: &str, hash: &str) -> Result<Options, Bad> {
        let values = [("PRESENCE_USER_TTL_SECS", user), ("PRESENCE_HASH_TTL_SECS", hash)];
        let environment = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let values = load(SETTINGS, &Input { environment, ..Input::default() })?;
        Options::from_settings(&values)
    }

    #[test]
    fn a_room_outlives_its_people() {
        let options = read("60", "120").unwrap();
        assert_eq!(options.heartbeat(), Duration::from_secs(30));
        assert!(read("60", "61").is_ok());
        let refused = read("120", "120").unwrap_err().to_string();
        assert!(refused.contains("PRESENCE_HASH_TTL_SECS=\"120\""), "{refused}");
    }
}
