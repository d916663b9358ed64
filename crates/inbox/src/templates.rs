//! The wording of notifications: a template per type and language, in files.
//!
//! Those that come with the program are in `templates/`; a folder of the operator's (INBOX_TEMPLATES_DIR) replaces single
//! ones and adds others, and is looked at again while the hub runs. A template that fails is never a reason not to tell
//! somebody: the general wording takes its place.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Language;
use minijinja::{Environment, context, filters, tests as checks};

use crate::{Kind, Notice};

/// The folder is looked at so often.
const LOOK: Duration = Duration::from_secs(5);
/// What a template may do: a loop without an end ends here.
const FUEL: u64 = 20_000;
/// A message has so many characters at most, and so many bytes are made for it.
const LONGEST: usize = 1_000;
const MADE: usize = 16 << 10;
const LARGEST_FILE: u64 = 16 << 10;
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
        let seen = Arc::new(Mutex::new(stamp(&folder)));
        supervisor.every("inbox-templates", LOOK, &(self.clone(), folder, seen), |state| async move {
            let (templates, folder, seen) = state;
            let now = stamp(&folder);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if now != *seen {
                *seen = now;
                templates.reload();
            }
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

    /// What to say of something.
    pub fn message(&self, notice: &Notice, language: Language) -> String {
        let loaded = self.0.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let folder = language.name();
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
            let mut made = Made::default();
            match template.render_captured_to(given, &mut made) {
                Err(error) if !made.full => {
                    metrics::counter!("inbox_template_failures_total").increment(1);
                    // For every entry that is shown: a person who wants to know why asks for it.
                    tracing::debug!(template = %format!("{folder}/{name}"), %error, "a wording failed");
                }
                _ => return shorten(&String::from_utf8_lossy(&made.bytes)),
            }
        }
        notice.kind.as_str().to_owned()
    }
}

/// What a template has written so far. One that writes too much is stopped.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for Made {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(MADE - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        self.full = fits < bytes.len();
        if self.full { Err(io::Error::other("too much")) } else { Ok(fits) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What templates may do. Nothing by which a few words make a text of any size: fuel counts steps, not bytes.
fn toolbox() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(FUEL));
    environment.add_filter("default", filters::default);
    environment.add_filter("upper", filters::upper);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("title", filters::title);
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("length", filters::length);
    environment.add_filter("first", filters::first);
    environment.add_filter("last", filters::last);
    environment.add_filter("int", filters::int);
    environment.add_filter("round", filters::round);
    environment.add_test("defined", checks::is_defined);
    environment.add_test("none", checks::is_none);
    environment.add_test("string", checks::is_string);
    environment.add_test("number", checks::is_number);
    environment
}

/// The same for what needs no tool.
fn check(source: &str) -> Result<(), String> {
    for tag in source.split("{%").skip(1) {
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let word = &word[..word.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(word.len())];
        if !TAGS.contains(&word) {
            return Err(format!("{word:?} is none of {}", TAGS.join(", ")));
        }
    }
    let codes = source.split('{').skip(1).filter_map(|part| part.split('}').next());
    match codes.into_iter().find(|code| code.contains('*')) {
        Some(code) => Err(format!("{code:?}: there is no multiplying")),
        None => Ok(()),
    }
}

const TAGS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];

/// On one line, and not longer than it may be.
fn shorten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

fn environment(folder: Option<&Path>) -> Result<Environment<'static>, String> {
    let mut environment = toolbox();
    for (name, source) in BUILT_IN {
        environment.add_template(name, source).map_err(|error| error.to_string())?;
    }
    if let Some(folder) = folder {
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    for language in Language::NAMES {
        for (name, source) in
            folder.map(|folder| files(&folder.join(language))).transpose()?.unwrap_or_default()
        {
            let name = format!("{language}/{name}");
            check(&source).map_err(|why| format!("{name}.txt: {why}"))?;
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
    for language in Language::NAMES {
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
            let notice = notice(kind, r#"{"actorName":"봉수"}"#);
            let [ko, en] = [Language::Korean, Language::English].map(|of| templates.message(&notice, of));
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
        let list = |name: &str| format!("{{% for n in payload.list %}}{name}{{% endfor %}}");
        write("en/SALE.txt", &list(&list(&list("{{ n + n }}"))));
        write("en/MUCH.txt", &list("{{ payload.text }}"));
        write("en/LONG.txt", "{{ payload.text }}");
        let templates = Templates::load(Some(folder.path().to_owned())).unwrap();
        let message = |kind, payload| templates.message(&notice(kind, payload), Language::English);
        assert_eq!(message("POST_LIKE", r#"{"actorName":"A\nB"}"#), "A B likes 100");
        let numbers = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let endless = format!(r#"{{"list":[{numbers}],"text":"{}"}}"#, "y".repeat(5_000));
        assert_eq!(message("SALE", &endless), "There is news: SALE", "the general wording instead");
        assert_eq!(message("MUCH", &endless).len(), LONGEST, "a megabyte is not made");
        let long = format!(r#"{{"text":"{}"}}"#, "y".repeat(5_000));
        assert_eq!(message("LONG", &long).len(), LONGEST);
        assert!(!message("LONG", "{}").contains("undefined"), "what is missing is left out");
        write("ko/POST_LIKE.txt", "{{ unclosed");
        assert!(Templates::load(Some(folder.path().to_owned())).err().unwrap().contains("ko/POST_LIKE"));
        for (name, source) in [
            ("set", "{% set x = 'a' %}{{ x ~ x }}"),
            ("macro", "{%- macro f(x) %}{{ x }}{% endmacro %}"),
            ("multiplying", "{{ 'a' * 90000000 }}"),
            ("multiplying", "{% if 'a' * 90000000 %}x{% endif %}"),
            ("range", "{% for n in range(1000000) %}x{% endfor %}"),
            ("join", "{{ payload.list|join('x') }}"),
            ("replace", "{{ payload.text|replace('', payload.text) }}"),
        ] {
            write("ko/POST_LIKE.txt", source);
            let shown = Templates::load(Some(folder.path().to_owned()))
                .map(|templates| templates.message(&notice("POST_LIKE", &endless), Language::Korean));
            match shown {
                Err(why) => assert!(why.contains(name), "{why}"),
                Ok(shown) => assert!(shown.len() < 200, "{name}: {shown}"),
            }
        }
        write("ko/POST_LIKE.txt", "fine");
        write("ko/no type.txt", "fine");
        assert!(Templates::load(Some(folder.path().to_owned())).err().unwrap().contains("no type"));
    }
}
