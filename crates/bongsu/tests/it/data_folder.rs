//! The data folder: one process uses it at a time. A hub refuses to start on damaged, foreign or newer data, names
//! the file and leaves it unchanged. A full disk stops publishing and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod disk;
mod full;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub};
use serde_json::json;

use disk::Disk;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a hub that must refuse this folder with one line on stderr and exit code 3; returns that line.
async fn refusal(data_dir: &Path) -> String {
    let started = Hub::builder(crate::BONGSU).data_dir(data_dir).start_expecting_failure().await;
    one_line(&started)
}

fn one_line((status, output): &(ExitStatus, String)) -> String {
    assert_eq!(status.code(), Some(3), "{output}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 1, "more or less than one line: {output}");
    assert!(lines[0].starts_with("bongsu: "), "{output}");
    lines[0].to_owned()
}

/// A folder with a database of this program that was closed properly. With `killed` the hub is started again and
/// killed, so that the newest event is only in the write-ahead log beside the database.
async fn used_folder(killed: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let hub = Hub::builder(crate::BONGSU).data_dir(folder.path()).start().await;
    let api = Api::new(&hub);
    let data = json!({"text": "x".repeat(200)});
    let event = json!({"roomId": "r", "eventType": "a.b", "data": data});
    api.publish_batch(&vec![event; 500]).await.expect(200);
    assert!(hub.terminate().await.success());
    if killed {
        hub.restart().await;
        api.publish_to("r", "a.b", json!({"last": true})).await;
        hub.kill9().await;
    }
    folder
}

fn database(folder: &Path) -> PathBuf {
    folder.join("bongsu.db")
}

/// All non-empty files of a folder with their bytes, except the lock file and SQLite's `-shm` files, which
/// SQLite rebuilds.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let derived = |path: &PathBuf| path.ends_with("lock") || path.to_string_lossy().ends_with("-shm");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| !derived(path)).map(|path| (path.clone(), std::fs::read(path).unwrap()));
    let mut files: Vec<_> = files.filter(|(_, bytes)| !bytes.is_empty()).collect();
    files.sort_unstable();
    files
}

fn assert_unchanged(before: &[(PathBuf, Vec<u8>)], folder: &Path, what: &str) {
    let after = files(folder);
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(before), names(&after), "{what}");
    for ((path, before), (_, after)) in before.iter().zip(&after) {
        let changed = before.iter().zip(after).filter(|(a, b)| a != b).count();
        assert_eq!((before.len(), 0), (after.len(), changed), "{} was changed: {what}", path.display());
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_folder_is_refused_and_the_first_keeps_serving() {
    let hub = Hub::builder(crate::BONGSU).start().await;
    let api = Api::new(&hub);
    let mut stream =
        Stream::request(&hub, "/api/v1/rooms/r/stream").person(1).open().await.expect("a stream");
    let line = refusal(hub.data_dir()).await;
    assert!(line.contains("in use") && line.contains(&format!("pid {}", hub.pid())), "{line}");
    let id = api.publish_to("r", "a.b", json!({})).await;
    assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.id, id);
    // The refused process must not have removed the lock.
    refusal(hub.data_dir()).await;
    hub.kill9().await;
    hub.restart().await;
    let later = api.publish_to("r", "a.b", json!({})).await;
    assert_ne!(later, id);
}

#[tokio::test]
async fn a_damaged_file_is_named_and_left_as_it_is() {
    type Damage = fn(&mut Vec<u8>);
    let flipped: Damage = |bytes| {
        let middle = bytes.len() / 2 / 4_096 * 4_096;
        bytes[middle..middle + 4_096].iter_mut().for_each(|byte| *byte = !*byte);
    };
    let halved: Damage = |bytes| bytes.truncate(bytes.len() / 2 / 4_096 * 4_096);
    let cut_short: Damage = |bytes| bytes.truncate(bytes.len() - 1_000);
    let overwritten: Damage = |bytes| {
        bytes[100..].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 % 251) as u8);
    };
    let cases = [
        ("a page in the middle is flipped", flipped, false),
        ("a page in the middle is flipped, and the log beside it holds more", flipped, true),
        ("half of it is gone", halved, false),
        ("half of it is gone, and the log beside it holds more", halved, true),
        ("it ends within a page", cut_short, false),
        ("everything after the header is garbage", overwritten, false),
    ];
    for (what, damage, killed) in cases {
        let folder = used_folder(killed).await;
        let mut bytes = std::fs::read(database(folder.path())).unwrap();
        damage(&mut bytes);
        std::fs::write(database(folder.path()), bytes).unwrap();
        let before = files(folder.path());
        assert_eq!(before.len(), 1 + usize::from(killed), "{what}: files in the folder");
        let line = refusal(folder.path()).await;
        assert!(line.contains("bongsu.db") && line.contains("damaged"), "{what}: {line}");
        assert_unchanged(&before, folder.path(), what);
    }
}

#[tokio::test]
async fn a_foreign_file_is_named_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for text in ["h", "these are my notes\n", &"not a database, but long enough for a header. ".repeat(100)] {
        std::fs::write(database(folder.path()), text).unwrap();
        let before = files(folder.path());
        let line = refusal(folder.path()).await;
        assert!(line.contains("bongsu.db") && line.contains("not a database of this program"), "{line}");
        assert_unchanged(&before, folder.path(), text);
    }
}

#[tokio::test]
async fn another_programs_database_is_named_and_left_as_it_is() {
    for (mode, mark) in [("DELETE", 0), ("DELETE", 42), ("WAL", 0), ("WAL", 42)] {
        let folder = tempfile::tempdir().unwrap();
        let other = rusqlite::Connection::open(database(folder.path())).unwrap();
        other.pragma_update(None, "journal_mode", mode).unwrap();
        other.pragma_update(None, "application_id", mark).unwrap();
        other.execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES ('precious')").unwrap();
        other.close().unwrap();
        let before = files(folder.path());
        let line = refusal(folder.path()).await;
        assert!(line.contains("bongsu.db") && line.contains("not a database of this program"), "{line}");
        assert_unchanged(&before, folder.path(), mode);
        let other = rusqlite::Connection::open(database(folder.path())).unwrap();
        let kept: String = other.query_row("SELECT a FROM theirs", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "precious");
    }
}

#[tokio::test]
async fn the_write_ahead_log_of_another_programs_database_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let other = rusqlite::Connection::open(database(folder.path())).unwrap();
    other.pragma_update(None, "journal_mode", "WAL").unwrap();
    other.execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES ('precious')").unwrap();
    let line = refusal(folder.path()).await;
    assert!(line.contains("bongsu.db") && line.contains("not a database of this program"), "{line}");
    other.execute_batch("INSERT INTO theirs VALUES ('more')").unwrap();
    let kept: i64 = other.query_row("SELECT count(*) FROM theirs", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 2);
}

#[tokio::test]
async fn an_empty_database_is_named_and_left_as_it_is() {
    let folder = used_folder(false).await;
    std::fs::write(database(folder.path()), "").unwrap();
    let line = refusal(folder.path()).await;
    assert!(line.contains("bongsu.db") && line.contains("is empty") && line.contains("remove it"), "{line}");
    assert_eq!(database(folder.path()).metadata().unwrap().len(), 0);
    std::fs::remove_file(database(folder.path())).unwrap();
    let hub = Hub::builder(crate::BONGSU).data_dir(folder.path()).start().await;
    assert!(Api::new(&hub).stored_ids("r").await.is_empty());
}

#[tokio::test]
async fn a_missing_database_is_named_when_the_log_beside_it_has_changes() {
    let folder = used_folder(true).await;
    std::fs::remove_file(database(folder.path())).unwrap();
    let before = files(folder.path());
    assert_eq!(before.len(), 1, "the write-ahead log");
    let line = refusal(folder.path()).await;
    assert!(line.contains("bongsu.db") && line.contains("missing"), "{line}");
    assert_unchanged(&before, folder.path(), "a missing database");
}

/// The permissions of a folder and of every file in it.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let inside = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let inside = inside.map(|entry| (entry.file_name().into_string().unwrap(), mode(&entry.path())));
    let mut modes: Vec<_> = inside.chain([(".".to_owned(), mode(folder))]).collect();
    modes.sort_unstable();
    modes
}

#[tokio::test]
async fn other_users_cannot_read_the_files_of_a_hub() {
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let is_private = |folder: &Path| {
        let modes = modes(folder);
        assert!(modes.len() >= 4, "{modes:?}");
        assert!(
            modes.iter().all(|(name, mode)| *mode == if name == "." { 0o700 } else { 0o600 }),
            "{modes:?}"
        );
    };
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let hub = Hub::builder(crate::BONGSU).data_dir(&folder).start().await;
    Api::new(&hub).publish_to("r", "a.b", json!({})).await;
    is_private(&folder);
    assert!(!hub.log().contains("other users"));
    assert!(hub.terminate().await.success());
    // Permissions as an earlier version, or a copy by hand, leaves them.
    set(&folder, 0o755);
    set(&database(&folder), 0o644);
    hub.restart().await;
    is_private(&folder);
    let log = hub.log();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("other users had access")).collect();
    assert!(said.len() == 1 && said[0].contains("WARN") && said[0].contains("0700"), "{log}");
    assert_eq!(Api::new(&hub).stored_ids("r").await.len(), 1);
}

#[tokio::test]
async fn a_folder_that_is_shared_with_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "theirs").unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let line = refusal(folder.path()).await;
    assert!(line.contains("other users can write to it") && line.contains("0700"), "{line}");
    assert_eq!(folder.path().metadata().unwrap().permissions().mode() & 0o777, 0o777);
}

#[tokio::test]
async fn a_newer_schema_is_named_and_left_as_it_is() {
    let folder = used_folder(false).await;
    let newer = rusqlite::Connection::open(database(folder.path())).unwrap();
    newer.execute("INSERT INTO migrations VALUES ('log', 99)", []).unwrap();
    newer.close().unwrap();
    let before = files(folder.path());
    let line = refusal(folder.path()).await;
    assert!(line.contains("newer") && line.contains("log migration 99"), "{line}");
    assert_unchanged(&before, folder.path(), "a newer schema");
}

#[tokio::test]
async fn a_data_folder_that_is_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, "a file").unwrap();
    let line = refusal(&file).await;
    assert!(line.contains(&file.display().to_string()), "{line}");
    assert!(refusal(&file.join("below")).await.contains("cannot be used"));
    assert_eq!(std::fs::read(&file).unwrap(), b"a file");
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_refused() {
    let Some(disk) = Disk::mount("size=1m,ro") else { return };
    for data_dir in [disk.path().to_owned(), disk.path().join("new")] {
        let hub = Hub::builder(crate::BONGSU).wrapper(disk.wrapper()).data_dir(&data_dir);
        let line = one_line(&hub.start_expecting_failure().await);
        assert!(line.contains("cannot be used") && line.contains(&data_dir.display().to_string()), "{line}");
    }
}

#[tokio::test]
async fn ids_grow_over_clean_stops_and_crashes() {
    let hub = Hub::builder(crate::BONGSU).start().await;
    let api = Api::new(&hub);
    let mut ids = Vec::new();
    for round in 0..4 {
        for n in 0..5 {
            let id = api.publish_to("r", "a.b", json!({"n": n})).await;
            let (ms, seq) = id.split_once('-').unwrap();
            ids.push((ms.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap()));
        }
        if round % 2 == 0 {
            assert_eq!(hub.terminate().await.code(), Some(0));
        }
        hub.restart().await;
    }
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
}
