//! What a server is started with. It stands in a file, because Redis and Sentinel write there what they were told
//! meanwhile (a failover, for one), and come back with it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::TempDir;

use super::Redis;
use crate::ports::Port;
use crate::tier;

const DURABLE: [(&str, &str); 3] = [("appendonly", "yes"), ("appendfsync", "always"), ("save", "\"\"")];

/// Prepares a server.
pub struct Builder {
    program: &'static str,
    port: Port,
    settings: Vec<(String, String)>,
}

impl Builder {
    pub(super) fn new() -> Self {
        let settings = DURABLE.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { program: "redis-server", port: Port::pick(), settings }
    }

    pub(super) fn sentinel() -> Self {
        Self { program: "redis-sentinel", port: Port::pick(), settings: Vec::new() }
    }

    /// Sets a line of redis.conf, over the defaults: `appendonly yes`, `appendfsync always`, `save ""`. With
    /// `requirepass` the server's own methods sign in.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.retain(|(other, _)| other != name);
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn settings(self, settings: &[(String, String)]) -> Self {
        settings.iter().fold(self, |builder, (name, value)| builder.setting(name, value))
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Starts the server and waits until it answers; panics with the end of its log when that fails.
    pub async fn start(self) -> Redis {
        let folder = tempfile::Builder::new().prefix("bongsu-redis-").tempdir().expect("a temporary folder");
        std::fs::write(config_file(&folder), self.config(folder.path())).expect("a file for the settings");
        let password = self.settings.iter().find(|(name, _)| name == "requirepass");
        let redis = Redis {
            program: tier::program(self.program),
            password: password.map(|(_, value)| value.clone()),
            port: self.port,
            child: Mutex::new(None),
            folder,
        };
        redis.launch();
        redis.wait_ready().await;
        redis
    }

    fn config(&self, folder: &Path) -> String {
        let mut text = format!("bind 127.0.0.1\nport {}\ndir \"{}\"\n", self.port(), folder.display());
        for (name, value) in &self.settings {
            text.push_str(&format!("{name} {value}\n"));
        }
        text
    }
}

pub(super) fn config_file(folder: &TempDir) -> PathBuf {
    folder.path().join("redis.conf")
}
