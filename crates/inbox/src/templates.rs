//! The wording of notifications: a template per type and language, in files.
//!
//! Those that come with the program are in `templates/`; a folder of the operator's (INBOX_TEMPLATES_DIR) replaces single
//! ones and adds others, and is looked at again while the hub runs. A template that fails is never a reason not to tell
//! somebody: the general wording takes its place.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::{Language, Text};
use minijinja::{Environment, context};

use crate::{Kind, Notice};

/// The folder is looked at so often.
const LOOK: Duration = Duration::from_secs(5);
/// What a template may do: a loop without an end ends here.
const FUEL: u64 = 20_000;
/// A message has so many characters at most.
const LONGEST: usize = 1_000;
const LARGEST_FILE: u64 = 64 << 10;
const MOST_FILES: usize = 1_000;

/// The wording for what has none of its own.
const GENERAL: &str = "general";

macro_rules! built_in {
    ($($name:literal),*) => {
        [$(
            (concat!("ko/", $name), include_str!(concat!("../templates/ko/", $name, ".txt"))),
            (concat!("en/", $name), include_str!(concat!("../templates/en/", $name, ".txt"))),
        )*]
    };
}

const BUILT_IN: &[(&str, &str)] = &built_in!("FOLLOW", "POST_LIKE", "POST_COMMENT", "VOTE_ENDED", "general");

/// Cheap to clone.
#[derive(Clone)]
pub struct Templates(Arc<Inner>);

struct Inner {
    folder: Option<PathBuf>,
    loaded: RwLock<Environment<'static>>,
}

impl Templates {
    /// Those of the program, and those of the folder, which has to be readable now.
    pub fn load(folder: Option<PathBuf>) -> Result<Self, String> {
        let loaded = environment(folder.as_deref())?;
        Ok(Self(Arc::new(Inner { folder, loaded: RwLock::new(loaded) })))
    }

    /// Takes up changes in the folder, for as long as the process runs. While something in it is wrong, what was loaded
    /// before stays.
    pub fn start(&self, supervisor: &Supervisor) {
        let Some(folder) = self.0.folder.clone() else { return };
        let templates = self.clone();
        let seen = Mutex::new(stamp(&folder));
        supervisor.every("inbox-templates", LOOK, move || {
            let now = stamp(&folder);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if now != *seen {
                *seen = now;
                templates.reload();
            }
            std::future::ready(())
        });
    }

    fn reload(&self) {
        match environment(self.0.folder.as_deref()) {
            Ok(loaded) => {
                *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
                tracing::info!("the wording of notifications was loaded anew");
            }
            Err(error) => tracing::error!(error, "the wording of notifications stays as it was"),
        }
    }

    /// What to say of something, in both languages.
    pub fn text(&self, notice: &Notice) -> Text {
        Text::owned(self.message(notice, Language::Korean), self.message(notice, Language::English))
    }

    pub fn message(&self, notice: &Notice, language: Language) -> String {
        let loaded = self.0.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let folder = match language {
            Language::Korean => "ko",
            Language::English => "en",
        };
        for name in [notice.kind.as_str(), GENERAL] {
            let Ok(template) = loaded.get_template(&format!("{folder}/{name}")) else { continue };
            let payload: serde_json::Value =
                serde_json::from_str(notice.payload.as_str()).unwrap_or_default();
            let given = context! {
                type => notice.kind.as_str(),
                actorId => notice.actor.as_ref().map(bongsu_kernel::Id::as_str),
                refId => notice.reference.as_ref().map(bongsu_kernel::Id::as_str),
                payload => minijinja::Value::from(minijinja::value::Serde(&payload)),
            };
            match template.render(given) {
                Ok(text) => return shorten(&text),
                Err(error) => {
                    metrics::counter!("inbox_template_failures_total").increment(1);
                    tracing::warn!(template = %format!("{folder}/{name}"), %error, "a wording failed");
                }
            }
        }
        notice.kind.as_str().to_owned()
    }
}

/// On one line, and not longer than it may be.
fn shorten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

fn environment(folder: Option<&Path>) -> Result<Environment<'static>, String> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    for (name, source) in BUILT_IN {
        environment.add_template(name, source).map_err(|error| error.to_string())?;
    }
    if let Some(folder) = folder {
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    for language in ["ko", "en"] {
        for (name, source) in
            folder.map(|folder| files(&folder.join(language))).transpose()?.unwrap_or_default()
        {
            let name = format!("{language}/{name}");
            environment
                .add_template_owned(name.clone(), source)
                .map_err(|error| format!("{name}.txt: {error}"))?;
        }
    }
    Ok(environment)
}

/// The templates of one language: `POST_LIKE.txt` and the like. A folder that is not there has none.
fn files(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let wrong = |path: &Path, why: &str| format!("{}: {why}", path.display());
    let mut found = BTreeMap::new();
    let listing = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        listing => listing.map_err(|error| wrong(folder, &error.to_string()))?,
    };
    for (number, file) in listing.enumerate() {
        if number == MOST_FILES {
            return Err(wrong(folder, &format!("more than {MOST_FILES} files")));
        }
        let path = file.map_err(|error| wrong(folder, &error.to_string()))?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name != GENERAL && Kind::new(name).is_err() {
            return Err(wrong(&path, "its name is no type of notification"));
        }
        if path.metadata().is_ok_and(|file| file.len() > LARGEST_FILE) {
            return Err(wrong(&path, "too large"));
        }
        let source = std::fs::read_to_string(&path).map_err(|error| wrong(&path, &error.to_string()))?;
        found.insert(name.to_owned(), source);
    }
    Ok(found)
}

/// What tells one state of the folder from another.
fn stamp(folder: &Path) -> Vec<(PathBuf, Option<SystemTime>, u64)> {
    let mut files = Vec::new();
    for language in ["ko", "en"] {
        let listing = std::fs::read_dir(folder.join(language)).into_iter().flatten().take(MOST_FILES);
        files.extend(listing.flatten().filter_map(|file| {
            let about = file.metadata().ok()?;
            Some((file.path(), about.modified().ok(), about.len()))
        }));
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::Id;
    use bongsu_kernel::json::Object;

    use super::*;
    use crate::EventId;

    fn notice(kind: &str, payload: &str) -> Notice {
        Notice {
            event: EventId::new("e1").unwrap(),
            kind: Kind::new(kind).unwrap(),
            reference: Some(Id::new("100").unwrap()),
            actor: Some(Id::new("2").unwrap()),
            payload: Object::stored(payload).unwrap(),
        }
    }

    #[test]
    fn every_type_has_words_in_both_languages() {
        let templates = Templates::load(None).unwrap();
        for kind in ["FOLLOW", "POST_LIKE", "POST_COMMENT", "VOTE_ENDED", "ANYTHING", "comment.created"] {
            let Text { ko, en } = templates.text(&notice(kind, r#"{"actorName":"봉수"}"#));
            assert!(!ko.is_empty() && !en.is_empty() && ko != en, "{kind}: {ko} / {en}");
        }
        let like = templates.message(&notice("POST_LIKE", r#"{"actorName":"봉수"}"#), Language::Korean);
        assert!(like.contains("봉수"), "{like}");
        assert!(!templates.message(&notice("POST_LIKE", "{}"), Language::English).is_empty(), "no name");
    }

    #[test]
    fn a_folder_replaces_and_adds_wordings_and_bad_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("en/POST_LIKE.txt", "  {{ payload.actorName }}\n likes {{ refId }} ");
        write("en/SALE.txt", "{% for n in range(1000000) %}x{% endfor %}");
        write("en/LONG.txt", "{{ payload.text }}");
        let templates = Templates::load(Some(folder.path().to_owned())).unwrap();
        let message = |kind, payload| templates.message(&notice(kind, payload), Language::English);
        assert_eq!(message("POST_LIKE", r#"{"actorName":"A\nB"}"#), "A B likes 100");
        assert!(!message("SALE", "{}").contains("xx"), "the general wording instead");
        let long = format!(r#"{{"text":"{}"}}"#, "y".repeat(5_000));
        assert_eq!(message("LONG", &long).len(), LONGEST);
        assert!(!message("LONG", "{}").contains("undefined"), "what is missing is left out");
        write("ko/POST_LIKE.txt", "{{ unclosed");
        assert!(Templates::load(Some(folder.path().to_owned())).err().unwrap().contains("ko/POST_LIKE"));
        write("ko/POST_LIKE.txt", "fine");
        write("ko/no type.txt", "fine");
        assert!(Templates::load(Some(folder.path().to_owned())).err().unwrap().contains("no type"));
    }
}
