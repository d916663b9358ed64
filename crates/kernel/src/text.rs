//! Words for people, in the two languages that the hub speaks.

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

/// Korean is the default; English is given to those who ask for it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    Korean,
    English,
}

impl Language {
    /// The better of the two by an `Accept-Language` header: the highest weight wins, the earlier one on a tie.
    pub fn from_accept(header: &str) -> Self {
        let mut best = (Self::default(), 0.0_f32);
        // A header is at most a few KiB; a handful of entries decides it.
        for entry in header.split(',').take(16) {
            let mut parts = entry.split(';');
            let tag = parts.next().unwrap_or_default().trim();
            let weight = parts
                .find_map(|p| p.trim().strip_prefix("q=").map(str::trim))
                .map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0));
            let primary = tag.split('-').next().unwrap_or_default();
            let language = if primary.eq_ignore_ascii_case("en") {
                Self::English
            } else if primary.eq_ignore_ascii_case("ko") || tag == "*" {
                Self::Korean
            } else {
                continue;
            };
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
    fn the_wished_language_is_found() {
        for (header, language) in [
            ("", Language::Korean),
            ("en", Language::English),
            ("en-US,en;q=0.9", Language::English),
            ("ko-KR,ko;q=0.9,en-US;q=0.8", Language::Korean),
            ("fr, en;q=0.5, ko;q=0.4", Language::English),
            ("de", Language::Korean),
            ("*", Language::Korean),
            ("en;q=0", Language::Korean),
            ("en;q=x", Language::Korean),
        ] {
            assert_eq!(Language::from_accept(header), language, "{header}");
        }
    }
}
