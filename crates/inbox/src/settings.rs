//! The notification settings of a person: types, channels and quiet hours. A field that a change does not name keeps
//! its value.
//!
//! Settings decide which entries are sent to streams. Every entry is stored and counted.

use std::collections::BTreeMap;

use bongsu_http::{Fields, fields};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Id, InvalidField, Reason};
use bongsu_sql::{Error, Result, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Inbox, NotificationType, store};

/// The most types that the settings of one person may name.
const MAX_TYPES: usize = 200;

/// The notification settings of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Whether notifications are sent to streams. All notifications are stored and counted, sent or not.
    pub enabled: bool,
    /// Notification types, each with true (sent) or false (not sent). Types that are not listed are sent.
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

/// Quiet hours: from one time of day to another in a time zone, past midnight if the end is before the start.
/// The hub only stores quiet hours: this version has no channel that they affect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuietHours {
    #[schema(example = "22:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub start: String,
    #[schema(example = "07:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub end: String,
    #[schema(example = "Asia/Seoul")]
    pub zone: String,
    /// Whether urgent notifications are to be sent during the quiet hours.
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
    /// Reads stored settings. Invalid ones are replaced by the defaults, so that the person misses no
    /// notification.
    pub(crate) fn from_stored(person: &Id, body: &str) -> Self {
        serde_json::from_str(body).unwrap_or_else(|error| {
            tracing::warn!(%person, %error, "stored notification settings are invalid; using the defaults");
            Self::default()
        })
    }

    /// Whether notifications of this type are sent.
    pub fn allows(&self, kind: &NotificationType) -> bool {
        self.mute_reason(kind).is_none()
    }

    /// Why notifications of this type are not sent. None when they are sent.
    pub fn mute_reason(&self, kind: &NotificationType) -> Option<MuteReason> {
        if !self.enabled {
            Some(MuteReason::AllNotifications)
        } else if !self.channels.in_app {
            Some(MuteReason::InAppChannel)
        } else if self.types.get(kind.as_str()) == Some(&false) {
            Some(MuteReason::NotificationType)
        } else {
            None
        }
    }
}

/// The setting that mutes a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MuteReason {
    /// `enabled` is false.
    AllNotifications,
    /// The channel `IN_APP` is off.
    InAppChannel,
    /// The type is off.
    NotificationType,
}

/// A change of settings. A field is None when the change does not name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    enabled: Option<bool>,
    /// None removes the type from the settings.
    types: BTreeMap<String, Option<bool>>,
    /// In the order of [`CHANNELS`].
    channels: [Option<bool>; 4],
    /// `Some(None)` removes the quiet hours.
    quiet_hours: Option<Option<QuietHours>>,
}

const CHANNELS: [&str; 4] = ["PUSH", "IN_APP", "SMS", "EMAIL"];

impl SettingsChange {
    /// Reads a change from the fields of a request.
    pub fn read(fields: &Fields<'_>) -> Result<Self, InvalidField> {
        let mut change = Self { enabled: fields.optional("enabled", fields::flag)?, ..Self::default() };
        if let Some(types) = fields.object("types")? {
            for (name, raw) in types.members() {
                let kind = NotificationType::new(name).map_err(|reason| types.invalid(name, reason))?;
                let on = if raw.get() == "null" { Ok(None) } else { fields::flag(raw).map(Some) };
                let on = on.map_err(|reason| types.invalid(name, reason))?;
                change.types.insert(kind.as_str().to_owned(), on);
            }
        }
        if let Some(channels) = fields.object("channels")? {
            for (name, raw) in channels.members() {
                let index = CHANNELS.iter().position(|known| *known == name);
                let index = index.ok_or_else(|| channels.invalid(name, Reason::OneOf(&CHANNELS)))?;
                change.channels[index] =
                    Some(fields::flag(raw).map_err(|reason| channels.invalid(name, reason))?);
            }
        }
        change.quiet_hours = match fields.object("quietHours")? {
            Some(hours) => Some(Some(QuietHours::read(&hours)?)),
            None => fields.is_null("quietHours").then_some(None),
        };
        Ok(change)
    }

    fn apply(&self, settings: &mut Settings) -> Result<(), InvalidField> {
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
        let too_many = || InvalidField::new("types", Reason::TooMany(MAX_TYPES));
        if settings.types.len() > MAX_TYPES { Err(too_many()) } else { Ok(()) }
    }
}

impl QuietHours {
    fn read(fields: &Fields<'_>) -> Result<Self, InvalidField> {
        let zone = fields.required("zone", |raw| {
            let zone = fields::text(raw, 64)?;
            jiff::tz::TimeZone::get(&zone).map(|_| zone).map_err(|_| Reason::Custom(INVALID_ZONE))
        })?;
        let (start, end) = (fields.required("start", time)?, fields.required("end", time)?);
        let allow_high = fields.optional("allowHigh", fields::flag)?.unwrap_or_default();
        Ok(Self { start, end, zone, allow_high })
    }
}

const INVALID_ZONE: Text =
    Text::new("알 수 없는 시간대입니다 (예: Asia/Seoul)", "must be a known time zone such as Asia/Seoul");
const INVALID_TIME: Text = Text::new("HH:MM 형식의 시각이어야 합니다", "must be a time of day such as 22:00");

fn time(raw: &serde_json::value::RawValue) -> Result<String, Reason> {
    let text = fields::text(raw, 5).map_err(|_| Reason::Custom(INVALID_TIME))?;
    let digits = |part: &str, below: u8| {
        part.len() == 2
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse().is_ok_and(|n: u8| n < below)
    };
    match text.split_once(':') {
        Some((hours, minutes)) if digits(hours, 24) && digits(minutes, 60) => Ok(text),
        _ => Err(Reason::Custom(INVALID_TIME)),
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum SettingsError {
    /// The change exceeds a limit, together with the settings that were stored before.
    #[error("{0}")]
    Invalid(InvalidField),
    #[error(transparent)]
    Records(#[from] Error),
}

impl Inbox {
    /// The person's settings. While the records are unavailable, the settings that were cached last.
    pub async fn settings(&self, person: &Id) -> Result<Settings> {
        let found = self.0.records.read(person.clone(), settings).await;
        let Some(cache) = self.cache() else { return found };
        match found {
            Ok(settings) => {
                let _ = cache.store_settings(person, &settings).await;
                Ok(settings)
            }
            Err(error) if error.is_transient() => cache.settings(person).await.ok().flatten().ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Applies a change, and returns all settings.
    pub async fn change_settings(
        &self,
        person: &Id,
        change: SettingsChange,
    ) -> Result<Settings, SettingsError> {
        let changed = self.0.records.write((person.clone(), change), apply).await;
        if let Some(cache) = self.cache() {
            let _ = cache.remove_settings(person).await;
        }
        changed
    }
}

pub(crate) async fn settings(person: &Id, tx: &mut Transaction<'_>) -> Result<Settings> {
    let row = tx.row(&store::SETTINGS, &[("person", person.into())]).await?;
    row.map_or_else(|| Ok(Settings::default()), |row| Ok(Settings::from_stored(person, row.text(0)?)))
}

async fn apply(
    (person, change): &(Id, SettingsChange),
    tx: &mut Transaction<'_>,
) -> Result<Settings, SettingsError> {
    // Locks the row of the person, because the row of the settings may not exist yet.
    tx.run(&store::PEOPLE_ADD, &[("people", store::list([person]).into())]).await?;
    tx.row(&store::PERSON_LOCK, &[("person", person.into())]).await?;
    let mut settings = settings(person, tx).await?;
    change.apply(&mut settings).map_err(SettingsError::Invalid)?;
    let body = store::json(&settings)?;
    tx.run(&store::SETTINGS_PUT, &[("person", person.into()), ("body", body.into())]).await?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(body: &str) -> Result<SettingsChange, String> {
        let fields = Fields::parse_body(body).unwrap();
        SettingsChange::read(&fields).map_err(|invalid| invalid.field)
    }

    fn applied(bodies: &[&str]) -> Settings {
        let mut settings = Settings::default();
        for body in bodies {
            change(body).unwrap().apply(&mut settings).unwrap();
        }
        settings
    }

    #[test]
    fn a_change_affects_only_the_fields_that_it_names() {
        let settings = applied(&[
            r#"{"types":{"POST_LIKE":false,"comment.created":true},"channels":{"SMS":true}}"#,
            r#"{"quietHours":{"start":"22:00","end":"07:00","zone":"Asia/Seoul"},"unknown":1}"#,
            r#"{"types":{"FOLLOW":false},"enabled":true}"#,
        ]);
        assert!(settings.enabled && settings.channels.sms && settings.channels.push);
        assert_eq!(settings.types.len(), 3);
        assert_eq!(settings.quiet_hours.as_ref().map(|hours| hours.allow_high), Some(false));
        let kind = |name| NotificationType::new(name).unwrap();
        assert!(!settings.allows(&kind("POST_LIKE")) && settings.allows(&kind("VOTE_ENDED")));
        assert!(settings.allows(&kind("comment.created")), "switched on by name");
        assert_eq!(settings.mute_reason(&kind("FOLLOW")), Some(MuteReason::NotificationType));
        let restored = applied(&[r#"{"types":{"FOLLOW":false}}"#, r#"{"types":{"FOLLOW":null}}"#]);
        assert_eq!(restored, Settings::default());
        let out_of_app = applied(&[r#"{"channels":{"IN_APP":false}}"#]);
        assert_eq!(out_of_app.mute_reason(&kind("FOLLOW")), Some(MuteReason::InAppChannel));
        let quiet = r#"{"quietHours":{"start":"22:00","end":"07:00","zone":"UTC"}}"#;
        let off = applied(&[quiet, r#"{"quietHours":null,"enabled":false}"#]);
        assert!(
            off.quiet_hours.is_none()
                && off.mute_reason(&kind("VOTE_ENDED")) == Some(MuteReason::AllNotifications)
        );
        let body = serde_json::to_string(&settings).unwrap();
        let person = Id::new("7").unwrap();
        assert_eq!(Settings::from_stored(&person, &body), settings);
        assert_eq!(Settings::from_stored(&person, "{}"), Settings::default());
    }

    #[test]
    fn an_error_names_the_invalid_field() {
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
