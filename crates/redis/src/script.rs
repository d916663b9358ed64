//! A Lua script: what must be atomic in Redis is one of these, in a file of its own.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::Histogram;
use redis::Cmd;

/// A script, declared once as a static beside what it does.
pub struct Script {
    name: &'static str,
    text: &'static str,
    hash: OnceLock<String>,
    seconds: OnceLock<Histogram>,
}

impl Script {
    /// The name is the metrics' label for it.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, hash: OnceLock::new(), seconds: OnceLock::new() }
    }

    /// Calls it by its hash, which the server knows after the first time.
    pub(crate) fn call(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        let hash = self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned());
        fill(redis::cmd("EVALSHA"), hash, keys, arguments)
    }

    pub(crate) fn call_in_full(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        fill(redis::cmd("EVAL"), self.text, keys, arguments)
    }

    pub(crate) fn record(&self, took: Duration) {
        let seconds = || metrics::histogram!("redis_command_duration_seconds", "command" => self.name);
        self.seconds.get_or_init(seconds).record(took.as_secs_f64());
    }
}

fn fill(mut call: Cmd, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    call.arg(script).arg(keys.len());
    for key in keys {
        call.arg(*key);
    }
    for argument in arguments {
        call.arg(*argument);
    }
    call
}
