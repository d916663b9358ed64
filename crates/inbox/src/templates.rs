//! The wording of notifications: one template file per type and language.
//!
//! Built-in templates are in `templates/`. The operator's folder (INBOX_TEMPLATES_DIR) replaces single templates or
//! adds others, and is polled for changes while the hub runs. A template that fails never prevents a notification: the
//! general template is used instead.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bongsu_kernel::lock;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Language;
use minijinja::{Environment, context, filters, tests as checks};

use crate::{Notification, NotificationType};

/// Time between two checks of the folder for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Steps that one rendering may execute, which ends long loops.
const MAX_STEPS: u64 = 20_000;
/// Characters of a rendered message, after white space is collapsed.
const MAX_MESSAGE_LEN: usize = 1_000;
/// Bytes that a template may write before it is stopped.
const MAX_OUTPUT_BYTES: usize = 16 << 10;
const MAX_FILE_BYTES: u64 = 16 << 10;
/// Files in the folder of one language.
const MAX_FILES: usize = 1_000;

/// The name of the template for types without a template of their own.
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

/// The loaded templates. Cheap to clone.
#[derive(Clone)]
pub struct Templates(Arc<Inner>);

struct Inner {
    folder: Option<PathBuf>,
    loaded: RwLock<Environment<'static>>,
}

impl Templates {
    /// Loads the built-in templates and those of the folder. Fails when the folder is not readable or a template is
    /// invalid.
    pub fn load(folder: Option<PathBuf>) -> Result<Self, String> {
        let loaded = environment(folder.as_deref())?;
        Ok(Self(Arc::new(Inner { folder, loaded: RwLock::new(loaded) })))
    }

    /// Reloads the templates whenever the folder changes, until the process ends. While a template in the folder is
    /// invalid, the templates loaded before stay in use.
    pub fn start_reloading(&self, supervisor: &Supervisor) {
        let Some(folder) = self.0.folder.clone() else { return };
        let seen = Arc::new(Mutex::new(folder_state(&folder)));
        supervisor.every(
            "inbox-templates",
            POLL_INTERVAL,
            &(self.clone(), folder, seen),
            |state| async move {
                let (templates, folder, seen) = state;
                let now = folder_state(&folder);
                let mut seen = lock(&seen);
                if now != *seen {
                    *seen = now;
                    templates.reload();
                }
            },
        );
    }

    fn reload(&self) {
        match environment(self.0.folder.as_deref()) {
            Ok(loaded) => {
                *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
                tracing::info!("reloaded the notification templates");
            }
            Err(error) => {
                tracing::error!(
                    error,
                    "failed to reload the notification templates; keeping the previous ones"
                );
            }
        }
    }

    /// Renders the message of a notification in a language. When its template fails, the general template is rendered,
    /// and when that fails as well, the message is the type itself.
    pub fn render(&self, notification: &Notification, language: Language) -> String {
        let loaded = self.0.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let folder = language.name();
        for name in [notification.kind.as_str(), GENERAL] {
            let Ok(template) = loaded.get_template(&format!("{folder}/{name}")) else { continue };
            let payload: serde_json::Value =
                serde_json::from_str(notification.payload.as_str()).unwrap_or_default();
            let variables = context! {
                type => notification.kind.as_str(),
                actorId => notification.actor.as_ref().map(bongsu_kernel::Id::as_str),
                refId => notification.reference.as_ref().map(bongsu_kernel::Id::as_str),
                payload => minijinja::Value::from(minijinja::value::Serde(&payload)),
            };
            let mut output = LimitedOutput::default();
            match template.render_captured_to(variables, &mut output) {
                Err(error) if !output.is_full => {
                    metrics::counter!("inbox_template_failures_total").increment(1);
                    // At level debug, because this happens for every entry that is rendered.
                    tracing::debug!(template = %format!("{folder}/{name}"), %error, "failed to render a template; using the general template or the notification type");
                }
                _ => return shorten(&String::from_utf8_lossy(&output.bytes)),
            }
        }
        notification.kind.as_str().to_owned()
    }
}

/// The output of a template so far. A write beyond [`MAX_OUTPUT_BYTES`] fails, which stops the template.
#[derive(Default)]
struct LimitedOutput {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fitting = bytes.len().min(MAX_OUTPUT_BYTES - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fitting]);
        self.is_full = fitting < bytes.len();
        if self.is_full { Err(io::Error::other("the output is too long")) } else { Ok(fitting) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An environment with the filters and tests that templates may use. No filter can expand a short text to any size,
/// because [`MAX_STEPS`] counts steps, not bytes.
fn restricted_environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(MAX_STEPS));
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

/// Refuses two features that the environment cannot switch off: tags that are not in [`ALLOWED_TAGS`], and
/// the operator `*`, which repeats a string.
fn check(source: &str) -> Result<(), String> {
    for tag in source.split("{%").skip(1) {
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        let word = &word[..word.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(word.len())];
        if !ALLOWED_TAGS.contains(&word) {
            return Err(format!("the tag {word:?} is not allowed; allowed are {}", ALLOWED_TAGS.join(", ")));
        }
    }
    let codes = source.split('{').skip(1).filter_map(|part| part.split('}').next());
    match codes.into_iter().find(|code| code.contains('*')) {
        Some(code) => Err(format!("{code:?}: multiplying is not allowed")),
        None => Ok(()),
    }
}

const ALLOWED_TAGS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];

/// Collapses white space to single spaces and cuts the text to [`MAX_MESSAGE_LEN`] characters.
fn shorten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_MESSAGE_LEN).collect()
}

fn environment(folder: Option<&Path>) -> Result<Environment<'static>, String> {
    let mut environment = restricted_environment();
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
            check(&source).map_err(|reason| format!("{name}.txt: {reason}"))?;
            environment
                .add_template_owned(name.clone(), source)
                .map_err(|error| format!("{name}.txt: {error}"))?;
        }
    }
    Ok(environment)
}

/// Reads the templates of one language, such as `POST_LIKE.txt`. A folder that does not exist has no templates.
fn files(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let failure = |path: &Path, reason: &str| format!("{}: {reason}", path.display());
    let mut found = BTreeMap::new();
    let listing = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        listing => listing.map_err(|error| failure(folder, &error.to_string()))?,
    };
    for (number, file) in listing.enumerate() {
        if number == MAX_FILES {
            return Err(failure(folder, &format!("the folder has more than {MAX_FILES} files")));
        }
        let path = file.map_err(|error| failure(folder, &error.to_string()))?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name != GENERAL && NotificationType::new(name).is_err() {
            return Err(failure(&path, "the file name is neither a notification type nor \"general\""));
        }
        if path.metadata().is_ok_and(|file| file.len() > MAX_FILE_BYTES) {
            return Err(failure(&path, &format!("the file has more than {MAX_FILE_BYTES} bytes")));
        }
        let source = std::fs::read_to_string(&path).map_err(|error| failure(&path, &error.to_string()))?;
        found.insert(name.to_owned(), source);
    }
    Ok(found)
}

/// The files of the folder with their modification times and sizes: the value differs after a change.
fn folder_state(folder: &Path) -> Vec<(PathBuf, Option<SystemTime>, u64)> {
    let mut files = Vec::new();
    for language in Language::NAMES {
        let listing = std::fs::read_dir(folder.join(language)).into_iter().flatten().take(MAX_FILES);
        files.extend(listing.flatten().filter_map(|file| {
            let metadata = file.metadata().ok()?;
            Some((file.path(), metadata.modified().ok(), metadata.len()))
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

    fn notification(kind: &str, payload: &str) -> Notification {
        Notification {
            event: EventId::new("e1").unwrap(),
            kind: NotificationType::new(kind).unwrap(),
            reference: Some(Id::new("100").unwrap()),
            actor: Some(Id::new("2").unwrap()),
            payload: Object::from_stored(payload).unwrap(),
        }
    }

    #[test]
    fn every_type_has_a_message_in_both_languages() {
        let templates = Templates::load(None).unwrap();
        for kind in ["FOLLOW", "POST_LIKE", "POST_COMMENT", "VOTE_ENDED", "ANYTHING", "comment.created"] {
            let notification = notification(kind, r#"{"actorName":"봉수"}"#);
            let [ko, en] =
                [Language::Korean, Language::English].map(|of| templates.render(&notification, of));
            assert!(!ko.is_empty() && !en.is_empty() && ko != en, "{kind}: {ko} / {en}");
        }
        let like = templates.render(&notification("POST_LIKE", r#"{"actorName":"봉수"}"#), Language::Korean);
        assert!(like.contains("봉수"), "{like}");
        let nameless = templates.render(&notification("POST_LIKE", "{}"), Language::English);
        assert!(!nameless.is_empty(), "a payload without actorName");
    }

    #[test]
    fn a_folder_replaces_and_adds_templates_and_errors_name_the_invalid_file() {
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
        let message = |kind, payload| templates.render(&notification(kind, payload), Language::English);
        assert_eq!(message("POST_LIKE", r#"{"actorName":"A\nB"}"#), "A B likes 100");
        let numbers = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let endless = format!(r#"{{"list":[{numbers}],"text":"{}"}}"#, "y".repeat(5_000));
        assert_eq!(message("SALE", &endless), "There is news: SALE", "the general template is used instead");
        assert_eq!(message("MUCH", &endless).len(), MAX_MESSAGE_LEN, "the output is cut");
        let long = format!(r#"{{"text":"{}"}}"#, "y".repeat(5_000));
        assert_eq!(message("LONG", &long).len(), MAX_MESSAGE_LEN);
        assert!(!message("LONG", "{}").contains("undefined"), "a missing value is rendered as nothing");
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
                .map(|templates| templates.render(&notification("POST_LIKE", &endless), Language::Korean));
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
