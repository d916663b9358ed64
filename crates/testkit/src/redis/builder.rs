//! The settings with which a server is started. They are in a configuration file, because Redis and Sentinel write
//! changes at run time (such as a failover) to that file and read them at the next start.

use std::sync::Mutex;

use bongsu_engines::redis::{DURABLE, write_config};

use super::Redis;
use crate::ports::Port;
use crate::tier;

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

    /// Sets a line of redis.conf. The defaults are `appendonly yes`, `appendfsync always` and `save ""`. With
    /// `requirepass` the methods of [`Redis`] authenticate.
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

    /// Starts the server and waits until it answers. Panics with the end of its log if that fails.
    pub async fn start(self) -> Redis {
        let folder = tempfile::Builder::new()
            .prefix("bongsu-redis-")
            .tempdir()
            .expect("cannot create a temporary folder");
        let config = write_config(folder.path(), self.port(), &self.settings);
        let password = self.settings.iter().find(|(name, _)| name == "requirepass");
        let redis = Redis {
            program: tier::program(self.program),
            password: password.map(|(_, value)| value.clone()),
            port: self.port,
            config,
            child: Mutex::new(None),
            folder,
        };
        redis.launch();
        redis.wait_ready().await;
        redis
    }
}
