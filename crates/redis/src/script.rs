//! Lua scripts, for operations that must be atomic in Redis. Each script is a file.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::Histogram;
use redis::Cmd;

/// A script, declared as a static beside the function that runs it.
pub struct Script {
    name: &'static str,
    text: &'static str,
    hash: OnceLock<String>,
    seconds: OnceLock<Histogram>,
}

impl Script {
    /// `name` is the script's label in metrics.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, hash: OnceLock::new(), seconds: OnceLock::new() }
    }

    /// The command that calls the script by its hash. The server knows the hash after the first EVAL.
    pub(crate) fn evalsha(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        let hash = self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned());
        with_arguments(redis::cmd("EVALSHA"), hash, keys, arguments)
    }

    pub(crate) fn eval(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        with_arguments(redis::cmd("EVAL"), self.text, keys, arguments)
    }

    pub(crate) fn record(&self, took: Duration) {
        let seconds = || metrics::histogram!("redis_command_duration_seconds", "command" => self.name);
        self.seconds.get_or_init(seconds).record(took.as_secs_f64());
    }
}

fn with_arguments(mut command: Cmd, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(*key);
    }
    for argument in arguments {
        command.arg(*argument);
    }
    command
}
