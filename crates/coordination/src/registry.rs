//! The registry: which hubs are alive, and whether this one still counts as alive itself.
//!
//! Only a fleet has one. The contract is written on [`RedisRegistry`](redis::RedisRegistry);
//! `tests/it/registry_contract.rs` tests it.

pub mod redis;
mod settled;

use std::collections::BTreeMap;

use bongsu_kernel::{Id, Millis};

pub use settled::settled;

use crate::Error;

/// What an instance says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub records: Records,
    pub version: String,
    /// Where it is reached.
    pub address: String,
    /// By its own clock.
    pub started_at: Millis,
    /// Settings in which instances that are alive at once may not differ, by name, in clear text.
    pub required_settings: BTreeMap<String, String>,
    /// Hashes of the other settings that a fleet shares, by name. None for an instance of a version that told none.
    pub setting_hashes: Option<BTreeMap<String, String>>,
}

/// Where an instance keeps its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    Off,
    /// In a database that others can use, by something that tells this database from others.
    Shared(Id),
    /// In a file of its own.
    Own,
}

/// An instance that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    pub about: About,
    /// By the engine's clock. Differs after it was thought gone and came back.
    pub joined_at: Millis,
}

/// The fleet as one instance sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub standing: Standing,
    /// By id.
    pub alive: Vec<Instance>,
    /// When they were, by the engine's clock.
    pub seen_at: Millis,
}

impl Fleet {
    /// Those that have gone since, also those that have come back meanwhile: what they held is free.
    pub fn ended_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a Instance> {
        let stays =
            |was: &Instance| self.alive.iter().any(|is| (&is.id, is.joined_at) == (&was.id, was.joined_at));
        earlier.alive.iter().filter(move |instance| !stays(instance))
    }
}

/// How this instance stands in the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The engine has not been reached yet.
    #[default]
    Outside,
    Alive {
        joined_at: Millis,
    },
    /// The lease has ended, or may have: what was held is gone.
    Lost,
    /// Another instance does not let it be alive.
    Refused(Refused),
}

/// Why an instance may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the instance {} at {} is alive and {}", other.id, other.about.address, self.difference())]
pub struct Refused {
    pub other: Box<Instance>,
    pub own: Box<About>,
}

impl Refused {
    fn difference(&self) -> String {
        let (own, other) = (&self.own, &self.other.about);
        let mut settings = own.required_settings.iter();
        let differs = |(name, value): (&String, &String)| {
            let theirs = other.required_settings.get(name)?;
            (theirs != value).then(|| {
                format!(
                    "runs with {name}={theirs}, while this one has {name}={value}: instances of a fleet have the same \
                     {name}; end the others before you start one with another"
                )
            })
        };
        settings.find_map(differs).filter(|_| own.records.can_join(&other.records)).unwrap_or_else(|| {
            format!(
                "{}, while this one {}: instances of a fleet share one database (DATABASE_URL) or all run with \
                 RECORDS=off",
                other.records.told(),
                own.records.told()
            )
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Will stay so until the other one has gone.
    #[error(transparent)]
    Refused(Refused),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Records {
    fn told(&self) -> &'static str {
        match self {
            Self::Off => "has no records",
            Self::Shared(_) => "has records in a database",
            Self::Own => "keeps records in a file of its own",
        }
    }

    fn can_join(&self, other: &Self) -> bool {
        self == other && *self != Self::Own
    }

    /// Whether two instances with these may be alive at once is decided by this text: they must be equal, and not `own`.
    fn as_text(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Shared(database) => format!("shared:{database}"),
            Self::Own => "own".to_owned(),
        }
    }

    /// What a later version may say is nothing that this one could share.
    fn parse(text: &str) -> Self {
        let shared = text.strip_prefix("shared:").and_then(|database| Id::new(database).ok());
        match shared {
            Some(database) => Self::Shared(database),
            None if text == "off" => Self::Off,
            None => Self::Own,
        }
    }
}
