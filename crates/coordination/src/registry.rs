//! The instance registry: which instances are alive, and whether this instance still counts as alive.
//!
//! Only a fleet has a registry. The contract is documented on [`RedisRegistry`](redis::RedisRegistry);
//! `tests/it/registry_contract.rs` tests it.

mod loss_debounce;
pub mod redis;

use std::collections::BTreeMap;

use bongsu_kernel::{Id, Millis};

pub use loss_debounce::debounce_losses;

use crate::Error;

/// The data that an instance registers about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceInfo {
    pub records: RecordsLocation,
    pub version: String,
    /// The address on which the instance is reached.
    pub address: String,
    /// When the instance started, by its own clock.
    pub started_at: Millis,
    /// Settings that must be equal on all instances of a fleet, by name, in clear text.
    pub required_settings: BTreeMap<String, String>,
    /// Hashes of the other settings that a fleet should share, by name. None for an instance of a version without hashes.
    pub setting_hashes: Option<BTreeMap<String, String>>,
}

/// Where an instance keeps its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsLocation {
    Off,
    /// In a database that other instances can use. The id distinguishes this database from others.
    Shared(Id),
    /// In the instance's own file.
    Own,
}

/// An instance that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    pub info: InstanceInfo,
    /// By the engine's clock. An instance whose lease ended has a new time after it rejoined.
    pub joined_at: Millis,
}

/// The fleet as one instance sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub lease_state: LeaseState,
    /// Ordered by id.
    pub alive: Vec<Instance>,
    /// When the engine listed the instances, by the engine's clock.
    pub seen_at: Millis,
}

impl Fleet {
    /// The instances of `earlier` whose lease has ended since, including those that have rejoined: the locks,
    /// connections and presence leases that these instances held in the fleet are free.
    pub fn ended_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a Instance> {
        let is_alive = |was: &Instance| {
            self.alive.iter().any(|now| (&now.id, now.joined_at) == (&was.id, was.joined_at))
        };
        earlier.alive.iter().filter(move |instance| !is_alive(instance))
    }
}

/// The state of this instance's lease in the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LeaseState {
    /// This instance has not joined the fleet yet. It joins when it reaches the engine.
    #[default]
    NotJoined,
    Alive {
        joined_at: Millis,
    },
    /// The lease has ended, or may have ended: whatever this instance held in the fleet is free.
    Lost,
    /// Another instance that is alive excludes this one.
    Refused(JoinRefusal),
}

/// Why an instance may not join: it differs from one that is alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the instance {} at {} is alive and {}", other.id, other.info.address, self.difference())]
pub struct JoinRefusal {
    pub other: Box<Instance>,
    pub own: Box<InstanceInfo>,
}

impl JoinRefusal {
    fn difference(&self) -> String {
        let (own, other) = (&self.own, &self.other.info);
        let mut settings = own.required_settings.iter();
        let differs = |(name, value): (&String, &String)| {
            let theirs = other.required_settings.get(name)?;
            (theirs != value).then(|| {
                format!(
                    "runs with {name}={theirs}, while this one has {name}={value}: instances of a fleet must have the same \
                     {name}; stop the others before you start one with another value"
                )
            })
        };
        settings.find_map(differs).filter(|_| own.records.can_join(&other.records)).unwrap_or_else(|| {
            format!(
                "{}, while this one {}: instances of a fleet must share one database (DATABASE_URL) or all run with \
                 RECORDS=off",
                other.records.describe(),
                own.records.describe()
            )
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum JoinError {
    /// Joining fails until the other instance is no longer alive.
    Refused(JoinRefusal),
    Engine(#[from] Error),
}

impl RecordsLocation {
    fn describe(&self) -> &'static str {
        match self {
            Self::Off => "has no records",
            Self::Shared(_) => "has records in a database",
            Self::Own => "keeps records in a file of its own",
        }
    }

    fn can_join(&self, other: &Self) -> bool {
        self == other && *self != Self::Own
    }

    /// The stored text. Two instances may be alive at once only if their texts are equal and not `own`.
    fn as_text(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Shared(database) => format!("shared:{database}"),
            Self::Own => "own".to_owned(),
        }
    }

    /// An unknown text, perhaps of a later version, is treated as records that cannot be shared.
    fn parse(text: &str) -> Self {
        let shared = text.strip_prefix("shared:").and_then(|database| Id::new(database).ok());
        match shared {
            Some(database) => Self::Shared(database),
            None if text == "off" => Self::Off,
            None => Self::Own,
        }
    }
}
