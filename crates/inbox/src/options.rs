//! The settings of the inbox.

use std::path::PathBuf;
use std::time::Duration;

use bongsu_kernel::settings::{Scope, Values};

use crate::Templates;
use crate::marks::WriteBehindOptions;

bongsu_kernel::settings! { pub SETTINGS of "inbox":
    pub INBOX_RETENTION_DAYS = "30", integer(1, 3_650):
        "How long a notification is kept after its creation, in days, read or not.";
    INBOX_TEMPLATES_DIR = "", scope(Scope::Instance):
        "A folder with notification templates, ko/<TYPE>.txt and en/<TYPE>.txt, which replace the built-in ones. Changes are loaded while the hub runs.";
    WRITE_BEHIND_INTERVAL_SECS = "30", integer(1, 3_600):
        "With Redis: how often buffered read marks are written to the database, in seconds. They are also written at shutdown.";
    WRITE_BEHIND_BATCH_SIZE = "200", integer(1, 10_000):
        "With Redis: the maximum number of one person's read marks written in one transaction.";
}

pub struct Options {
    pub templates: Templates,
    /// How long entries are kept after they were created.
    pub retention: Duration,
    pub write_behind: WriteBehindOptions,
}

impl Options {
    /// Returns an error that names the invalid setting and the reason.
    pub fn from_settings(values: &Values) -> Result<Self, String> {
        let folder = Some(values.text(&INBOX_TEMPLATES_DIR)).filter(|folder| !folder.is_empty());
        let templates = Templates::load(folder.map(PathBuf::from))
            .map_err(|error| format!("INBOX_TEMPLATES_DIR: {error}"))?;
        let days = values.size(&INBOX_RETENTION_DAYS) as u64;
        let write_behind = WriteBehindOptions {
            interval: values.seconds(&WRITE_BEHIND_INTERVAL_SECS),
            batch_size: values.size(&WRITE_BEHIND_BATCH_SIZE),
        };
        Ok(Self { templates, retention: Duration::from_secs(days * 24 * 60 * 60), write_behind })
    }
}
