//! Settings: each is declared once, in the crate that uses it, with its default, its allowed values and its
//! description.
//!
//! A flag overrides an environment variable, which overrides `.env`, then the configuration file, then the default. The
//! effective values can be printed with their sources, without secrets. The reference page and `.env.example` are
//! generated from the same declarations.

mod env_file;
mod load;
mod show;

use std::collections::BTreeMap;
use std::time::Duration;

pub use load::{Input, load};
pub use show::{effective_values, env_example, redact_url, reference_page};

/// One setting, declared as a constant by [`settings!`](crate::settings). Its name is also its environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    /// The table in the configuration file, and the heading in the reference.
    pub part: &'static str,
    pub default: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    pub description: &'static str,
}

/// Declares settings of one table: `NAME = "default", <builder methods of Setting>: "description";`. Each becomes a
/// constant of that name. `pub SETTINGS of` before the table also declares a list of all of them.
#[macro_export]
macro_rules! settings {
    (pub $all:ident of $part:literal: $(
        $vis:vis $name:ident = $default:literal $(, $method:ident($($argument:expr),*))*: $description:literal;
    )*) => {
        $crate::settings! { $part: $($vis $name = $default $(, $method($($argument),*))*: $description;)* }
        pub const $all: &[&$crate::settings::Setting] = &[$(&$name),*];
    };
    ($part:literal: $(
        $(#[$doc:meta])* $vis:vis $name:ident = $default:literal
            $(, $method:ident($($argument:expr),*))*: $description:literal;
    )*) => {
        $($(#[$doc])* $vis const $name: $crate::settings::Setting =
            $crate::settings::Setting::text($part, stringify!($name), $default, $description)
                $(.$method($($argument),*))*;)*
    };
}

/// Whether the instances of a fleet may have different values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Different values are allowed during a rolling change, and `/health` reports them.
    Fleet,
    /// Every instance must have the same value: an instance with another value does not start.
    WholeFleet,
    /// Each instance has its own value, because the setting describes one process and its machine, or the address of an
    /// engine.
    Instance,
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Text that is never printed and never logged.
    Secret,
    /// Printed without user, password and query.
    Url,
    /// Items separated by commas.
    List,
    Integer {
        min: u64,
        max: u64,
    },
    OneOf(&'static [&'static str]),
}

impl Setting {
    pub const fn text(
        part: &'static str,
        name: &'static str,
        default: &'static str,
        description: &'static str,
    ) -> Self {
        Self { name, part, default, kind: Kind::Text, scope: Scope::Fleet, description }
    }

    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    pub const fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub const fn integer(self, min: u64, max: u64) -> Self {
        self.kind(Kind::Integer { min, max })
    }

    /// The name of the command line flag without its dashes: `server-port` for `SERVER_PORT`.
    pub fn flag(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }

    /// The allowed values, as documentation and error messages describe them.
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Text => "text".to_owned(),
            Kind::Url => "a URL".to_owned(),
            Kind::Secret => "text that is not blank".to_owned(),
            Kind::List => "a list separated by commas".to_owned(),
            Kind::Integer { min, max: u64::MAX } => format!("a whole number from {min}"),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::OneOf(choices) => format!("one of {}", choices.join(", ")),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        match self.kind {
            Kind::Text | Kind::Url => true,
            // A blank value is a mistake: as a key or as a list of origins it would admit every caller or none.
            Kind::Secret | Kind::List => value.split(',').any(|item| !item.trim().is_empty()),
            Kind::Integer { min, max } => value.parse().is_ok_and(|n: u64| (min..=max).contains(&n)),
            Kind::OneOf(choices) => choices.contains(&value),
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    Flag,
    Environment,
    EnvFile,
    File,
    Default,
}

impl SettingSource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::EnvFile => ".env",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// A setting with an invalid value, which prevents the start. The message is one line with the setting, its
/// value and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(pub String);

impl SettingError {
    /// `allowed` describes the allowed values, for checks that go beyond the setting's [`Kind`].
    pub fn invalid_value(setting: &Setting, value: &str, allowed: &str) -> Self {
        Self(format!("{}={:?} is not allowed: {allowed}", setting.name, setting.redact(value)))
    }
}

/// The effective values of all settings, with their sources.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<&'static str, (String, SettingSource)>);

impl Values {
    pub fn text(&self, setting: &Setting) -> &str {
        self.0.get(setting.name).map_or(setting.default, |(value, _)| value)
    }

    /// The value; None when it is unset or empty.
    pub fn get(&self, setting: &Setting) -> Option<&str> {
        Some(self.text(setting)).filter(|text| !text.is_empty())
    }

    pub fn list(&self, setting: &Setting) -> Vec<String> {
        self.text(setting).split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
    }

    pub fn integer(&self, setting: &Setting) -> u64 {
        // Parsing cannot fail: `load` accepts only integers for such a setting, and a test checks the defaults.
        self.text(setting).parse().unwrap_or_default()
    }

    pub fn size(&self, setting: &Setting) -> usize {
        usize::try_from(self.integer(setting)).unwrap_or(usize::MAX)
    }

    pub fn seconds(&self, setting: &Setting) -> Duration {
        Duration::from_secs(self.integer(setting))
    }

    /// A duration in seconds; None when the value is 0.
    pub fn seconds_unless_zero(&self, setting: &Setting) -> Option<Duration> {
        Some(self.seconds(setting)).filter(|duration| !duration.is_zero())
    }

    /// The error for a setting whose value is not among the allowed ones.
    pub fn not_allowed(&self, setting: &Setting, allowed: &str) -> SettingError {
        SettingError::invalid_value(setting, self.text(setting), allowed)
    }

    pub fn source(&self, setting: &Setting) -> SettingSource {
        self.0.get(setting.name).map_or(SettingSource::Default, |(_, source)| *source)
    }
}
