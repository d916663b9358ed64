//! Compares the settings of the instances of a fleet.
//!
//! Each setting declares how far instances may differ ([`Scope`]). Redis holds the values of [`Scope::WholeFleet`] in
//! clear text. Values of [`Scope::Fleet`] may differ for a while; Redis holds only their hashes, keyed with the fleet's
//! secrets.

use std::collections::{BTreeMap, BTreeSet};

use bongsu_coordination::registry::Fleet;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_kernel::settings::{Kind, Scope, Setting, Values};
use bongsu_kernel::task::Supervisor;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::watch;

use crate::Parts;

/// Length of a hash in hexadecimal digits.
const HASH_LEN: usize = 16;

/// The values, in clear text, of the settings that must be the same in every instance.
pub(crate) fn required(parts: Parts, values: &Values) -> BTreeMap<String, String> {
    let required = parts.settings().into_iter().filter(|setting| setting.scope == Scope::WholeFleet);
    required.map(|setting| (setting.name.to_owned(), values.text(setting).to_owned())).collect()
}

/// A hash of each setting of [`Scope::Fleet`] whose value is not the default.
pub(crate) fn hashes(parts: Parts, values: &Values) -> BTreeMap<String, String> {
    let secrets: Vec<String> = shared(parts)
        .filter(|setting| is_secret(setting))
        .map(|setting| canonical(values, setting))
        .collect();
    let key = secrets.join("\0");
    let hash = |setting: &Setting| {
        let value = canonical(values, setting);
        // The key of a secret's hash is the secret itself, so that one different secret does not change the hashes of
        // others.
        let mac = if is_secret(setting) {
            hmac(value.as_bytes(), setting.name.as_bytes())
        } else {
            hmac(key.as_bytes(), format!("{}={value}", setting.name).as_bytes())
        };
        mac.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..HASH_LEN].to_owned()
    };
    let changed = shared(parts).filter(|setting| values.text(setting) != setting.default);
    changed.map(|setting| (setting.name.to_owned(), hash(setting))).collect()
}

/// Compares the settings of this instance with those of the others. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Comparison {
    parts: Parts,
    instance: String,
    hashes: BTreeMap<String, String>,
    fleet: watch::Receiver<Fleet>,
}

impl Comparison {
    /// Starts the loop that logs each setting that begins to differ, whenever the fleet has changed.
    pub(crate) fn start(
        parts: Parts,
        values: &Values,
        registry: &RedisRegistry,
        supervisor: &Supervisor,
    ) -> Self {
        let (instance, fleet) = (registry.instance_id().to_owned(), registry.fleet());
        let this = Self { parts, instance, hashes: hashes(parts, values), fleet };
        supervisor.run("fleet-settings", &this, Self::log_differences);
        this
    }

    async fn log_differences(mut self) {
        let mut logged = Vec::new();
        loop {
            let warnings = self.warnings();
            for warning in warnings.iter().filter(|warning| !logged.contains(*warning)) {
                tracing::warn!(difference = %warning, "a setting differs between instances of the fleet; all keep running");
            }
            logged = warnings;
            if self.fleet.changed().await.is_err() {
                return;
            }
        }
    }

    /// One line for each setting whose value differs in another instance.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let fleet = self.fleet.borrow();
        let mut addresses_by_setting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for other in fleet.alive.iter().filter(|other| other.id != self.instance) {
            let Some(theirs) = &other.info.setting_hashes else { continue };
            for name in differing(self.parts, &self.hashes, theirs) {
                addresses_by_setting.entry(name).or_default().push(&other.info.address);
            }
        }
        let line = |(name, addresses): (&str, Vec<&str>)| {
            let more = match addresses.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("fleet: {name} here differs from that of the instance at {}{more}", addresses[0])
        };
        addresses_by_setting.into_iter().map(line).collect()
    }
}

/// The names of the settings that differ. If a secret differs, only secrets are named: the other hashes are keyed with
/// it and cannot be compared.
fn differing<'a>(
    parts: Parts,
    own: &'a BTreeMap<String, String>,
    other: &'a BTreeMap<String, String>,
) -> Vec<&'a str> {
    let names: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
    let mut differing: Vec<&str> =
        names.into_iter().filter(|name| own.get(*name) != other.get(*name)).map(String::as_str).collect();
    let secrets: Vec<&str> =
        shared(parts).filter(|setting| is_secret(setting)).map(|setting| setting.name).collect();
    if differing.iter().any(|name| secrets.contains(name)) {
        differing.retain(|name| secrets.contains(name));
    }
    differing
}

fn shared(parts: Parts) -> impl Iterator<Item = &'static Setting> {
    parts.settings().into_iter().filter(|setting| setting.scope == Scope::Fleet)
}

fn is_secret(setting: &Setting) -> bool {
    setting.kind == Kind::Secret
}

/// The value in a form that is equal for equal settings: items of a list are sorted and trimmed.
fn canonical(values: &Values, setting: &Setting) -> String {
    match setting.kind {
        Kind::Secret | Kind::List => {
            let mut items = values.list(setting);
            items.sort_unstable();
            items.join(",")
        }
        Kind::Text | Kind::Url | Kind::Integer { .. } | Kind::OneOf(_) => values.text(setting).to_owned(),
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    // HMAC accepts keys of any length, so this does not fail.
    Hmac::<Sha256>::new_from_slice(key)
        .map(|mac| mac.chain_update(message).finalize().into_bytes().into())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::settings::{Input, load};

    use super::*;
    use crate::Part;

    const EVENT_TYPES: Setting = Setting::text("toy", "EVENT_TYPES", "", "A list.").kind(Kind::List);
    const LENGTH: Setting = Setting::text("toy", "LENGTH", "10000", "A number.").integer(1, 100_000);
    const MODE: Setting = Setting::text("toy", "MODE", "open", "A choice.").scope(Scope::WholeFleet);
    static TOY: Part = Part {
        settings: &[&EVENT_TYPES, &LENGTH, &MODE],
        ..Part::new("toy", |_| Box::pin(std::future::ready(Ok(()))))
    };
    const PARTS: Parts = Parts(&[&TOY]);

    fn values(given: &[(&str, &str)]) -> Values {
        let environment =
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        load(&PARTS.settings(), &Input { environment, ..Input::default() }).unwrap()
    }

    fn compared(one: &[(&str, &str)], other: &[(&str, &str)]) -> Vec<String> {
        let (one, other) = (hashes(PARTS, &values(one)), hashes(PARTS, &values(other)));
        differing(PARTS, &one, &other).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn exactly_the_settings_that_differ_are_named() {
        let types = ("EVENT_TYPES", "a.b,c.d");
        assert_eq!(compared(&[], &[types]), ["EVENT_TYPES"]);
        assert_eq!(compared(&[types], &[("EVENT_TYPES", "a.b")]), ["EVENT_TYPES"]);
        assert_eq!(compared(&[types], &[("EVENT_TYPES", " c.d, a.b")]), [""; 0]);
        assert_eq!(compared(&[("LENGTH", "10000")], &[]), [""; 0], "the default is the default");
        assert_eq!(compared(&[("SERVER_PORT", "1")], &[("SERVER_PORT", "2")]), [""; 0]);
        let (keys, turned) = (("INTERNAL_API_KEY", "new,old"), ("INTERNAL_API_KEY", "old,new"));
        assert_eq!(compared(&[keys, types], &[turned, types]), [""; 0]);
        // The hash of EVENT_TYPES is keyed with INTERNAL_API_KEY, and not compared.
        assert_eq!(compared(&[keys, types], &[types]), ["INTERNAL_API_KEY"]);
        assert_eq!(compared(&[keys, types], &[]), ["INTERNAL_API_KEY"]);
    }

    #[test]
    fn only_settings_of_the_whole_fleet_are_published_in_clear_text() {
        let required = required(PARTS, &values(&[("MODE", "closed"), ("EVENT_TYPES", "a.b")]));
        assert_eq!(required.into_iter().collect::<Vec<_>>(), [("MODE".to_owned(), "closed".to_owned())]);
    }

    #[test]
    fn hashes_are_keyed_with_the_secrets() {
        let types = ("EVENT_TYPES", "a.b");
        let hash = |given: &[(&str, &str)]| hashes(PARTS, &values(given)).remove("EVENT_TYPES");
        assert_ne!(hash(&[types]), hash(&[types, ("INTERNAL_API_KEY", "another")]));
        assert!(hashes(PARTS, &values(&[types])).values().all(|hash| hash.len() == HASH_LEN));
    }
}
