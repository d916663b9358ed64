//! Settings: declared once, beside what they steer, with their default, their limits and their description.
//!
//! A flag wins over the environment, the environment over `.env`, that over the file, the file over the default. What is in
//! force can be shown with its source, secrets hidden; reference pages and `.env.example` are made from the same
//! declarations.

mod env_file;
mod load;
mod show;

use std::collections::BTreeMap;
use std::time::Duration;

pub use load::{Input, load};
pub use show::{env_example, in_force, reference, without_credentials};

/// One setting. Declared as a constant by [`settings!`](crate::settings); its name is the environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    /// The table in the configuration file, and the heading in the reference.
    pub part: &'static str,
    pub default: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    pub about: &'static str,
}

/// Declares settings of one table: `NAME = "default", <calls of Setting that narrow it>: "description";`. The name is also
/// that of the constant. `pub SETTINGS of` before the table declares the list of them, too.
#[macro_export]
macro_rules! settings {
    (pub $all:ident of $part:literal: $(
        $seen:vis $name:ident = $default:literal $(, $narrow:ident($($given:expr),*))*: $about:literal;
    )*) => {
        $crate::settings! { $part: $($seen $name = $default $(, $narrow($($given),*))*: $about;)* }
        pub const $all: &[&$crate::settings::Setting] = &[$(&$name),*];
    };
    ($part:literal: $(
        $(#[$doc:meta])* $seen:vis $name:ident = $default:literal $(, $narrow:ident($($given:expr),*))*: $about:literal;
    )*) => {
        $($(#[$doc])* $seen const $name: $crate::settings::Setting =
            $crate::settings::Setting::text($part, stringify!($name), $default, $about)$(.$narrow($($given),*))*;)*
    };
}

/// Whether the instances of a fleet may have different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For a while, so that it can be changed on one instance after the other: `/health` names it.
    Fleet,
    /// Not at all: an instance with another value is refused.
    WholeFleet,
    /// It is about one process and its machine, or says where an engine is.
    Instance,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Never shown, never logged.
    Secret,
    /// Shown without user, password and query.
    Url,
    /// Separated by commas.
    List,
    Whole {
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
        about: &'static str,
    ) -> Self {
        Self { name, part, default, kind: Kind::Text, scope: Scope::Fleet, about }
    }

    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    pub const fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub const fn whole(self, min: u64, max: u64) -> Self {
        self.kind(Kind::Whole { min, max })
    }

    /// The name of the flag: `SERVER_PORT` is `--server-port`.
    pub fn flag(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }

    /// What is allowed, in words.
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Text => "text".to_owned(),
            Kind::Url => "a URL".to_owned(),
            Kind::Secret => "text that is not blank".to_owned(),
            Kind::List => "a list separated by commas".to_owned(),
            Kind::Whole { min, max: u64::MAX } => format!("a whole number from {min}"),
            Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Kind::OneOf(choices) => format!("one of {}", choices.join(", ")),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        match self.kind {
            Kind::Text | Kind::Url => true,
            // Blank is a slip, and would be a secret or a list that lets everybody or nobody in.
            Kind::Secret | Kind::List => value.split(',').any(|item| !item.trim().is_empty()),
            Kind::Whole { min, max } => value.parse().is_ok_and(|n: u64| (min..=max).contains(&n)),
            Kind::OneOf(choices) => choices.contains(&value),
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    EnvFile,
    File,
    Default,
}

impl Source {
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

/// A value that stops the start, in one line that names it, the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Bad(pub String);

impl Bad {
    /// For checks that go beyond a setting's own kind.
    pub fn value(setting: &Setting, value: &str, allowed: &str) -> Self {
        Self(format!("{}={:?} is not allowed: {allowed}", setting.name, setting.shown(value)))
    }
}

/// Every setting with the value in force.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<&'static str, (String, Source)>);

impl Values {
    pub fn text(&self, setting: &Setting) -> &str {
        self.0.get(setting.name).map_or(setting.default, |(value, _)| value)
    }

    /// Nothing when unset.
    pub fn given(&self, setting: &Setting) -> Option<&str> {
        Some(self.text(setting)).filter(|text| !text.is_empty())
    }

    pub fn list(&self, setting: &Setting) -> Vec<String> {
        self.text(setting).split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
    }

    pub fn whole(&self, setting: &Setting) -> u64 {
        // `load` let no other value in; defaults are checked by a test.
        self.text(setting).parse().unwrap_or_default()
    }

    pub fn size(&self, setting: &Setting) -> usize {
        usize::try_from(self.whole(setting)).unwrap_or(usize::MAX)
    }

    pub fn seconds(&self, setting: &Setting) -> Duration {
        Duration::from_secs(self.whole(setting))
    }

    /// Seconds, where 0 means never.
    pub fn seconds_unless_zero(&self, setting: &Setting) -> Option<Duration> {
        Some(self.seconds(setting)).filter(|duration| !duration.is_zero())
    }

    pub fn source(&self, setting: &Setting) -> Source {
        self.0.get(setting.name).map_or(Source::Default, |(_, source)| *source)
    }
}
