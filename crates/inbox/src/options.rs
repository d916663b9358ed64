//! The settings of the inbox.

use std::path::PathBuf;
use std::time::Duration;

use bongsu_kernel::settings::{Scope, Values};

use crate::Templates;
use crate::marks::WriteBehind;

bongsu_kernel::settings! { pub SETTINGS of "inbox":
    pub INBOX_RETENTION_DAYS = "30", whole(1, 3_650):
        "Notifications are kept so long after they were created, read or not.";
    INBOX_TEMPLATES_DIR = "", scope(Scope::Instance):
        "A folder with wordings of notifications, ko/<TYPE>.txt and en/<TYPE>.txt, in place of those that come with the hub. Changes are taken up while it runs.";
    WRITE_BEHIND_INTERVAL_SECS = "30", whole(1, 3_600):
        "With Redis, what was read is written to the records so often, and at shutdown.";
    WRITE_BEHIND_BATCH_SIZE = "200", whole(1, 10_000):
        "So many marks of one person are written in one transaction.";
}

pub struct Options {
    pub templates: Templates,
    pub keeps: Duration,
    pub write_behind: WriteBehind,
}

impl Options {
    /// The error says what is wrong with which setting.
    pub fn from_settings(values: &Values) -> Result<Self, String> {
        let folder = Some(values.text(&INBOX_TEMPLATES_DIR)).filter(|folder| !folder.is_empty());
        let templates = Templates::load(folder.map(PathBuf::from))
            .map_err(|error| format!("INBOX_TEMPLATES_DIR: {error}"))?;
        let days = values.size(&INBOX_RETENTION_DAYS) as u64;
        let write_behind = WriteBehind {
            interval: values.seconds(&WRITE_BEHIND_INTERVAL_SECS),
            at_once: values.size(&WRITE_BEHIND_BATCH_SIZE),
        };
        Ok(Self { templates, keeps: Duration::from_secs(days * 24 * 60 * 60), write_behind })
    }
}
