//! Texts that users read, in the two languages of the hub: Korean and English.

use std::borrow::Cow;

/// One message in Korean and in English.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub ko: Cow<'static, str>,
    pub en: Cow<'static, str>,
}

impl Text {
    pub const fn new(ko: &'static str, en: &'static str) -> Self {
        Self { ko: Cow::Borrowed(ko), en: Cow::Borrowed(en) }
    }

    pub fn owned(ko: String, en: String) -> Self {
        Self { ko: Cow::Owned(ko), en: Cow::Owned(en) }
    }

    pub fn get(&self, language: Language) -> &str {
        match language {
            Language::Korean => &self.ko,
            Language::English => &self.en,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    Korean,
    English,
}

impl Language {
    /// The names of the languages in settings, requests and template folders.
    pub const NAMES: &[&str] = &["ko", "en"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Korean => "ko",
            Self::English => "en",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Korean, Self::English].into_iter().find(|language| language.name() == name)
    }

    /// Chooses the language by an `Accept-Language` header: the one with the highest weight, and among equal weights
    /// the first. Returns the default when the header names neither language.
    pub fn from_accept(header: &str, default: Self) -> Self {
        let mut best = (default, 0.0_f32);
        // Only the first 16 entries are read, which bounds the work for a long header.
        for entry in header.split(',').take(16) {
            let mut parts = entry.split(';');
            let tag = parts.next().unwrap_or_default().trim();
            let weight = parts
                .find_map(|p| p.trim().strip_prefix("q=").map(str::trim))
                .map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0));
            let primary = tag.split('-').next().unwrap_or_default();
            let known =
                if tag == "*" { Some(default) } else { Self::from_name(&primary.to_ascii_lowercase()) };
            let Some(language) = known else { continue };
            if weight > best.1 {
                best = (language, weight);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_chooses_the_language_and_the_default_stands_in() {
        for (header, language) in [
            ("", None),
            ("en", Some(Language::English)),
            ("EN-US,en;q=0.9", Some(Language::English)),
            ("ko-KR,ko;q=0.9,en-US;q=0.8", Some(Language::Korean)),
            ("fr, en;q=0.5, ko;q=0.4", Some(Language::English)),
            ("fr, ko;q=0.5, en;q=0.4", Some(Language::Korean)),
            ("de", None),
            ("*", None),
            ("en;q=0", None),
            ("en;q=x", None),
        ] {
            for default in [Language::Korean, Language::English] {
                assert_eq!(Language::from_accept(header, default), language.unwrap_or(default), "{header}");
            }
        }
    }

    #[test]
    fn every_language_has_a_name() {
        for name in Language::NAMES {
            assert_eq!(Language::from_name(name).map(Language::name), Some(*name));
        }
        assert_eq!(Language::from_name("fr"), None);
    }
}
