//! Records facts that a test measured, for the documentation. They are printed on one line and, in a `prove` run,
//! written to a file in the folder that `BONGSU_PROOF_DIR` names. On a shared engine the file name ends with the
//! engine's name.

use std::borrow::Borrow;
use std::path::Path;

use serde_json::Value;

use crate::engine::{Engine, engine};
use crate::print_line;

/// Prints the facts, and writes them to `<BONGSU_PROOF_DIR>/<part>.<name>.json` when that is set, on a shared engine
/// to `<part>.<name>.<engine>.json`.
pub fn record(part: &str, name: &str, facts: impl Borrow<Value>) {
    let (name, facts) = (name_on(engine(), name), facts.borrow());
    print_line(&format!("proof {part}.{name} {facts}"));
    if let Some(folder) = std::env::var_os("BONGSU_PROOF_DIR") {
        write(Path::new(&folder), part, &name, facts);
    }
}

fn name_on(engine: Engine, name: &str) -> String {
    match engine {
        Engine::Embedded => name.to_owned(),
        shared => format!("{name}.{}", shared.name()),
    }
}

fn write(folder: &Path, part: &str, name: &str, facts: &Value) {
    let path = folder.join(format!("{part}.{name}.json"));
    let text = format!("{facts:#}\n");
    // Written to a temporary file and renamed, so that an interrupted run leaves no partial file for a resumed run.
    let temporary = folder.join(format!("{part}.{name}.json.part"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&temporary, text))
        .and_then(|()| std::fs::rename(&temporary, &path))
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
        assert_eq!(
            [name_on(Engine::Embedded, "seam"), name_on(Engine::Redis, "seam")],
            ["seam", "seam.redis"]
        );
    }
}
