//! Compares the settings of the instances of a fleet.
//!
//! How far they may differ is declared with each setting ([`Scope`]). Redis holds no value of those that may differ for a
//! while, only hashes that are keyed with the fleet's secrets.

use std::collections::{BTreeMap, BTreeSet};

use bongsu_coordination::registry::Fleet;
use bongsu_coordination::registry::redis::RedisRegistry;
use bongsu_kernel::settings::{Kind, Scope, Setting, Values};
use bongsu_kernel::task::Supervisor;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::watch;

use crate::Parts;

/// Hexadecimal digits of a hash: enough to tell values apart.
const HASH_LEN: usize = 16;

/// The settings in clear text that no other instance may have otherwise.
pub(crate) fn required(parts: Parts, values: &Values) -> BTreeMap<String, String> {
    let required = parts.settings().into_iter().filter(|setting| setting.scope == Scope::WholeFleet);
    required.map(|setting| (setting.name.to_owned(), values.text(setting).to_owned())).collect()
}

/// A hash of every shared setting that has not its default.
pub(crate) fn hashes(parts: Parts, values: &Values) -> BTreeMap<String, String> {
    let secrets: Vec<String> = shared(parts)
        .filter(|setting| is_secret(setting))
        .map(|setting| canonical(values, setting))
        .collect();
    let key = secrets.join("\0");
    let hash = |setting: &Setting| {
        let value = canonical(values, setting);
        // A secret is its own key, so that the others do not seem to differ with it.
        let mac = if is_secret(setting) {
            hmac(value.as_bytes(), setting.name.as_bytes())
        } else {
            hmac(key.as_bytes(), format!("{}={value}", setting.name).as_bytes())
        };
        mac.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..HASH_LEN].to_owned()
    };
    let given = shared(parts).filter(|setting| values.text(setting) != setting.default);
    given.map(|setting| (setting.name.to_owned(), hash(setting))).collect()
}

/// The settings of this instance beside those of the others. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Comparison {
    parts: Parts,
    instance: String,
    hashes: BTreeMap<String, String>,
    fleet: watch::Receiver<Fleet>,
}

impl Comparison {
    /// Logs every setting that differs, when the fleet has changed.
    pub(crate) fn start(
        parts: Parts,
        values: &Values,
        registry: &RedisRegistry,
        supervisor: &Supervisor,
    ) -> Self {
        let (instance, fleet) = (registry.me().to_owned(), registry.fleet());
        let this = Self { parts, instance, hashes: hashes(parts, values), fleet };
        supervisor.run("fleet-settings", &this, Self::log_differences);
        this
    }

    async fn log_differences(mut self) {
        let mut known = Vec::new();
        loop {
            let found = self.warnings();
            for warning in found.iter().filter(|warning| !known.contains(*warning)) {
                tracing::warn!("{warning}");
            }
            known = found;
            if self.fleet.changed().await.is_err() {
                return;
            }
        }
    }

    /// A line for every setting that another instance has otherwise.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let fleet = self.fleet.borrow();
        let mut others: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for other in fleet.alive.iter().filter(|other| other.id != self.instance) {
            let Some(theirs) = &other.about.setting_hashes else { continue };
            for name in differing(self.parts, &self.hashes, theirs) {
                others.entry(name).or_default().push(&other.about.address);
            }
        }
        let line = |(name, addresses): (&str, Vec<&str>)| {
            let more = match addresses.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("fleet: {name} here differs from that of the instance at {}{more}", addresses[0])
        };
        others.into_iter().map(line).collect()
    }
}

/// The names of settings that differ. Where a secret does, so does the key of all other hashes, which then say nothing.
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

/// The value, without what makes no difference in a list: the order and spaces.
fn canonical(values: &Values, setting: &Setting) -> String {
    match setting.kind {
        Kind::Secret | Kind::List => {
            let mut items = values.list(setting);
            items.sort_unstable();
            items.join(",")
        }
        Kind::Text | Kind::Url | Kind::Whole { .. } | Kind::OneOf(_) => values.text(setting).to_owned(),
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    // A key may have any length.
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
    const LENGTH: Setting = Setting::text("toy", "LENGTH", "10000", "A number.").whole(1, 100_000);
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
    fn settings_that_differ_are_named_and_no_others() {
        let types = ("EVENT_TYPES", "a.b,c.d");
        assert_eq!(compared(&[], &[types]), ["EVENT_TYPES"]);
        assert_eq!(compared(&[types], &[("EVENT_TYPES", "a.b")]), ["EVENT_TYPES"]);
        assert_eq!(compared(&[types], &[("EVENT_TYPES", " c.d, a.b")]), [""; 0]);
        assert_eq!(compared(&[("LENGTH", "10000")], &[]), [""; 0], "the default is the default");
        assert_eq!(compared(&[("SERVER_PORT", "1")], &[("SERVER_PORT", "2")]), [""; 0]);
        let (keys, turned) = (("INTERNAL_API_KEY", "new,old"), ("INTERNAL_API_KEY", "old,new"));
        assert_eq!(compared(&[keys, types], &[turned, types]), [""; 0]);
        // The other hashes have another key then.
        assert_eq!(compared(&[keys, types], &[types]), ["INTERNAL_API_KEY"]);
        assert_eq!(compared(&[keys, types], &[]), ["INTERNAL_API_KEY"]);
    }

    #[test]
    fn what_no_instance_may_have_otherwise_is_told_in_clear_text() {
        let told = required(PARTS, &values(&[("MODE", "closed"), ("EVENT_TYPES", "a.b")]));
        assert_eq!(told.into_iter().collect::<Vec<_>>(), [("MODE".to_owned(), "closed".to_owned())]);
    }

    #[test]
    fn hashes_say_nothing_without_the_secrets() {
        let types = ("EVENT_TYPES", "a.b");
        let of = |given: &[(&str, &str)]| hashes(PARTS, &values(given)).remove("EVENT_TYPES");
        assert_ne!(of(&[types]), of(&[types, ("INTERNAL_API_KEY", "another")]));
        assert!(hashes(PARTS, &values(&[types])).values().all(|hash| hash.len() == HASH_LEN));
    }
}
