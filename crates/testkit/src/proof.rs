//! Facts that a test found out, for the documentation: printed on one line, and kept as a file when a run that
//! proves something asks for it with `BONGSU_PROOF_DIR`. What was found on a shared engine has its name behind.

use std::borrow::Borrow;
use std::path::Path;

use serde_json::Value;

use crate::engine::{Engine, engine};
use crate::say;

/// Prints the facts, and writes them to `<BONGSU_PROOF_DIR>/<part>.<name>.json` when that is set, on a shared engine
/// to `<part>.<name>.<engine>.json`.
pub fn record(part: &str, name: &str, facts: impl Borrow<Value>) {
    let (name, facts) = (on(engine(), name), facts.borrow());
    say(&format!("proof {part}.{name} {facts}"));
    if let Some(folder) = std::env::var_os("BONGSU_PROOF_DIR") {
        write(Path::new(&folder), part, &name, facts);
    }
}

fn on(engine: Engine, name: &str) -> String {
    match engine {
        Engine::Embedded => name.to_owned(),
        shared => format!("{name}.{}", shared.name()),
    }
}

fn write(folder: &Path, part: &str, name: &str, facts: &Value) {
    let path = folder.join(format!("{part}.{name}.json"));
    let text = format!("{facts:#}\n");
    // Written aside and renamed: a run that is cut off leaves no half file for a resumed one to read.
    let aside = folder.join(format!("{part}.{name}.json.part"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&aside, text))
        .and_then(|()| std::fs::rename(&aside, &path))
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_one_readable_file_per_fact() {
        let folder = tempfile::tempdir().unwrap();
        let facts = json!({"seed": 7, "missing": 0});
        write(&folder.path().join("new"), "rooms", "seam", &facts);
        let text = std::fs::read_to_string(folder.path().join("new/rooms.seam.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), facts);
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
        assert_eq!([on(Engine::Embedded, "seam"), on(Engine::Redis, "seam")], ["seam", "seam.redis"]);
    }
}
