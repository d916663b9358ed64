//! What a person wants to hear of, and by which way. What a change does not name keeps its value.
//!
//! They decide what is sent, and never what is kept or counted.

use std::collections::BTreeMap;

use bongsu_http::{Fields, fields};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Id, Invalid, Reason};
use bongsu_sql::{Error, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Inbox, Kind, store};

/// So many types may be named.
const MOST_TYPES: usize = 200;

/// Version 1 is what has no `v`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// False: everything is kept and counted, and nothing is sent.
    pub enabled: bool,
    /// Types that are switched off, or on again.
    pub types: BTreeMap<String, bool>,
    pub channels: Channels,
    pub quiet_hours: Option<QuietHours>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", default)]
pub struct Channels {
    pub push: bool,
    pub in_app: bool,
    pub sms: bool,
    pub email: bool,
}

/// From one time of day to another, in the person's zone; over midnight when the end comes first. What is sent outside
/// waits until they are over; the inbox does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuietHours {
    #[schema(example = "22:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub start: String,
    #[schema(example = "07:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub end: String,
    #[schema(example = "Asia/Seoul")]
    pub zone: String,
    /// What is urgent comes through.
    pub allow_high: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, types: BTreeMap::new(), channels: Channels::default(), quiet_hours: None }
    }
}

impl Default for Channels {
    fn default() -> Self {
        Self { push: true, in_app: true, sms: false, email: false }
    }
}

impl Settings {
    /// What the store kept.
    pub(crate) fn stored(body: &str) -> Self {
        serde_json::from_str(body).unwrap_or_else(|error| {
            // Nobody loses a notification by it.
            tracing::warn!(%error, "settings are not readable, so those of the beginning are in force");
            Self::default()
        })
    }

    /// Whether to send something of this kind.
    pub fn wants(&self, kind: &Kind) -> bool {
        self.silence(kind).is_none()
    }

    /// What keeps something of this kind from being sent, if anything does.
    pub fn silence(&self, kind: &Kind) -> Option<Silence> {
        if !self.enabled {
            Some(Silence::Everything)
        } else if !self.channels.in_app {
            Some(Silence::Channel)
        } else if self.types.get(kind.as_str()) == Some(&false) {
            Some(Silence::Type)
        } else {
            None
        }
    }
}

/// What a person has switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// All notifications.
    Everything,
    /// The channel IN_APP.
    Channel,
    /// This type.
    Type,
}

/// A change of settings: what it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    enabled: Option<bool>,
    /// Nothing: it is not named any more.
    types: BTreeMap<String, Option<bool>>,
    channels: [Option<bool>; 4],
    quiet_hours: Option<Option<QuietHours>>,
}

const CHANNELS: [&str; 4] = ["PUSH", "IN_APP", "SMS", "EMAIL"];

impl Change {
    pub fn read(fields: &Fields<'_>) -> Result<Self, Invalid> {
        let mut change = Self { enabled: fields.optional("enabled", fields::flag)?, ..Self::default() };
        if let Some(types) = fields.within("types")? {
            for (name, raw) in types.members() {
                let kind = Kind::new(name).map_err(|reason| types.invalid(name, reason))?;
                let on = if raw.get() == "null" { Ok(None) } else { fields::flag(raw).map(Some) };
                let on = on.map_err(|reason| types.invalid(name, reason))?;
                change.types.insert(kind.as_str().to_owned(), on);
            }
        }
        if let Some(channels) = fields.within("channels")? {
            for (name, raw) in channels.members() {
                let at = CHANNELS.iter().position(|known| *known == name);
                let at = at.ok_or_else(|| channels.invalid(name, Reason::OneOf(&CHANNELS)))?;
                change.channels[at] =
                    Some(fields::flag(raw).map_err(|reason| channels.invalid(name, reason))?);
            }
        }
        change.quiet_hours = match fields.within("quietHours")? {
            Some(hours) => Some(Some(QuietHours::read(&hours)?)),
            None => fields.is_null("quietHours").then_some(None),
        };
        Ok(change)
    }

    fn apply(&self, settings: &mut Settings) -> Result<(), Invalid> {
        settings.enabled = self.enabled.unwrap_or(settings.enabled);
        for (name, on) in &self.types {
            match on {
                Some(on) => settings.types.insert(name.clone(), *on),
                None => settings.types.remove(name),
            };
        }
        let Channels { push, in_app, sms, email } = &mut settings.channels;
        for (channel, on) in [push, in_app, sms, email].into_iter().zip(self.channels) {
            *channel = on.unwrap_or(*channel);
        }
        if let Some(hours) = &self.quiet_hours {
            settings.quiet_hours.clone_from(hours);
        }
        let too_many = || Invalid::new("types", Reason::TooMany(MOST_TYPES));
        if settings.types.len() > MOST_TYPES { Err(too_many()) } else { Ok(()) }
    }
}

impl QuietHours {
    fn read(fields: &Fields<'_>) -> Result<Self, Invalid> {
        let zone = fields.required("zone", |raw| {
            let zone = fields::text(raw, 64)?;
            jiff::tz::TimeZone::get(&zone).map(|_| zone).map_err(|_| Reason::Given(NO_ZONE))
        })?;
        let (start, end) = (fields.required("start", time)?, fields.required("end", time)?);
        let allow_high = fields.optional("allowHigh", fields::flag)?.unwrap_or_default();
        Ok(Self { start, end, zone, allow_high })
    }
}

const NO_ZONE: Text =
    Text::new("알 수 없는 시간대입니다 (예: Asia/Seoul)", "no such time zone; an example is Asia/Seoul");
const NO_TIME: Text = Text::new("HH:MM 형식의 시각이어야 합니다", "must be a time of day such as 22:00");

fn time(raw: &serde_json::value::RawValue) -> Result<String, Reason> {
    let text = fields::text(raw, 5).map_err(|_| Reason::Given(NO_TIME))?;
    let digits = |part: &str, below: u8| {
        part.len() == 2
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse().is_ok_and(|n: u8| n < below)
    };
    match text.split_once(':') {
        Some((hours, minutes)) if digits(hours, 24) && digits(minutes, 60) => Ok(text),
        _ => Err(Reason::Given(NO_TIME)),
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum SettingsError {
    /// Together with what was there before it would be too much.
    #[error("{0}")]
    Invalid(Invalid),
    #[error(transparent)]
    Records(#[from] Error),
}

impl Inbox {
    /// While the records are away, those that were seen last.
    pub async fn settings(&self, person: &Id) -> Result<Settings, Error> {
        let found = self.0.records.read(person.clone(), settings).await;
        let Some(cache) = self.cache() else { return found };
        match found {
            Ok(settings) => {
                let _ = cache.remember_settings(person, &settings).await;
                Ok(settings)
            }
            Err(error) if error.may_pass() => cache.settings(person).await.ok().flatten().ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Changes what is named, and gives all.
    pub async fn change_settings(&self, person: &Id, change: Change) -> Result<Settings, SettingsError> {
        let changed = self.0.records.write((person.clone(), change), apply).await;
        if let Some(cache) = self.cache() {
            let _ = cache.forget_settings(person).await;
        }
        changed
    }
}

pub(crate) async fn settings(person: &Id, tx: &mut Transaction<'_>) -> Result<Settings, Error> {
    let row = tx.row(&store::SETTINGS, &[("person", person.into())]).await?;
    row.map_or_else(|| Ok(Settings::default()), |row| Ok(Settings::stored(row.text(0)?)))
}

async fn apply(given: &(Id, Change), tx: &mut Transaction<'_>) -> Result<Settings, SettingsError> {
    let (person, change) = given;
    // Held by the person's own row: that of the settings may not be there yet.
    tx.run(&store::PEOPLE_ADD, &[("people", store::list([person]).into())]).await?;
    tx.row(&store::PERSON_HOLD, &[("person", person.into())]).await?;
    let mut settings = settings(person, tx).await?;
    change.apply(&mut settings).map_err(SettingsError::Invalid)?;
    let body = store::json(&settings)?;
    tx.run(&store::SETTINGS_PUT, &[("person", person.into()), ("body", body.into())]).await?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(body: &str) -> Result<Change, String> {
        let fields = Fields::of_body(body).unwrap();
        Change::read(&fields).map_err(|invalid| invalid.field)
    }

    fn applied(bodies: &[&str]) -> Settings {
        let mut settings = Settings::default();
        for body in bodies {
            change(body).unwrap().apply(&mut settings).unwrap();
        }
        settings
    }

    #[test]
    fn a_change_changes_what_it_names() {
        let settings = applied(&[
            r#"{"types":{"POST_LIKE":false,"comment.created":true},"channels":{"SMS":true}}"#,
            r#"{"quietHours":{"start":"22:00","end":"07:00","zone":"Asia/Seoul"},"unknown":1}"#,
            r#"{"types":{"FOLLOW":false},"enabled":true}"#,
        ]);
        assert!(settings.enabled && settings.channels.sms && settings.channels.push);
        assert_eq!(settings.types.len(), 3);
        assert_eq!(settings.quiet_hours.as_ref().map(|hours| hours.allow_high), Some(false));
        let kind = |name| Kind::new(name).unwrap();
        assert!(!settings.wants(&kind("POST_LIKE")) && settings.wants(&kind("VOTE_ENDED")));
        assert!(settings.wants(&kind("comment.created")), "switched on by name");
        assert_eq!(settings.silence(&kind("FOLLOW")), Some(Silence::Type));
        let as_at_first = applied(&[r#"{"types":{"FOLLOW":false}}"#, r#"{"types":{"FOLLOW":null}}"#]);
        assert_eq!(as_at_first, Settings::default());
        let out_of_app = applied(&[r#"{"channels":{"IN_APP":false}}"#]);
        assert_eq!(out_of_app.silence(&kind("FOLLOW")), Some(Silence::Channel));
        let quiet = r#"{"quietHours":{"start":"22:00","end":"07:00","zone":"UTC"}}"#;
        let off = applied(&[quiet, r#"{"quietHours":null,"enabled":false}"#]);
        assert!(off.quiet_hours.is_none() && off.silence(&kind("VOTE_ENDED")) == Some(Silence::Everything));
        let body = serde_json::to_string(&settings).unwrap();
        assert_eq!(Settings::stored(&body), settings);
        assert_eq!(Settings::stored("{}"), Settings::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, field) in [
            (r#"{"enabled":1}"#, "enabled"),
            (r#"{"types":[]}"#, "types"),
            (r#"{"types":{"A B":true}}"#, "types.A B"),
            (r#"{"types":{"A":"yes"}}"#, "types.A"),
            (r#"{"channels":{"FAX":true}}"#, "channels.FAX"),
            (r#"{"channels":{"PUSH":null}}"#, "channels.PUSH"),
            (r#"{"quietHours":"22-7"}"#, "quietHours"),
            (r#"{"quietHours":{"start":"22:00","end":"07:00"}}"#, "quietHours.zone"),
            (r#"{"quietHours":{"start":"24:00","end":"07:00","zone":"UTC"}}"#, "quietHours.start"),
            (r#"{"quietHours":{"start":"2:00","end":"07:00","zone":"UTC"}}"#, "quietHours.start"),
            (r#"{"quietHours":{"start":"22:00","end":"07:60","zone":"UTC"}}"#, "quietHours.end"),
            (r#"{"quietHours":{"start":"22:00","end":"07:00","zone":"Asia/Soul"}}"#, "quietHours.zone"),
        ] {
            assert_eq!(change(body).unwrap_err(), field, "{body}");
        }
    }
}
