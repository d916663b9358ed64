//! The examples of docs/outbox.md, run as their readers run them: committed rows are sent once, rolled back rows are
//! not. The document shows these very files.

#[path = "../../../../../docs/examples/outbox/change.rs"]
#[allow(unreachable_pub, reason = "a program would use it from outside")]
mod change;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bongsu_kernel::Id;
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{DatabaseAddress, Error, Options, Records};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::tier;
use serde_json::json;

use super::{OutboxTest, WAIT_TIMEOUT, open};

const CREATE_TASKS_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS tasks (id VARCHAR(36) PRIMARY KEY, title VARCHAR(200) NOT NULL)";
/// The compiler command that change.ts names.
const TSC_COMMAND: &str = "tsc --strict --target es2022 --module nodenext --types node change.ts";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/outbox")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap()
}

/// Runs a command to its end: whether it succeeded, and its output.
async fn run(mut command: Command) -> (bool, String) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.expect("a command that starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), said.concat())
}

impl OutboxTest {
    /// The database URL or file for a program.
    fn url(&self) -> String {
        match &self.database {
            Some((_, url)) => url.clone(),
            None => self.hub.data_dir().join("bongsu.db").display().to_string(),
        }
    }

    /// Runs a file of SQL with the database's own command line client; returns its output.
    async fn run_file(&self, file: &str) -> String {
        if let Some((flavour, url)) = &self.database {
            let isolation = match flavour {
                Flavour::MariaDb => "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\n",
                Flavour::Postgres => "",
            };
            let sql = format!("{isolation}{}", text(file));
            return flavour.shared().await.execute(Server::database_name(url), &sql);
        }
        let mut command = Command::new(tier::program("sqlite3"));
        command.args(["-bail", "-cmd", ".timeout 60000"]).arg(self.url());
        command.stdin(Stdio::from(std::fs::File::open(folder().join(file)).unwrap()));
        let (succeeded, said) = run(command).await;
        assert!(succeeded, "{file}: {said}");
        said
    }

    /// A stream of event 42 for person 7.
    async fn follower(&self) -> Stream {
        self.run_file("members.sql").await;
        open(self.stream_request("42", 7)).await
    }

    /// Checks that exactly these tasks were sent, in this order, both on the live stream and to a reader of the whole
    /// stream.
    async fn expect_received(&self, live: Stream, titles: &[&str]) {
        self.sql(
            "INSERT INTO outbox_events (event_type, payload, target_event_id) \
             VALUES ('task.added.v1', '{\"task_id\":\"\",\"title\":\"the end\"}', '42')",
        )
        .await;
        for mut stream in [live, open(self.stream_request("42", 7).last_event_id("0")).await] {
            let mut told = Vec::new();
            loop {
                let event = stream.take_events(1, WAIT_TIMEOUT).await[0].json();
                assert_eq!(event["event_type"], "task.added.v1");
                let payload = event["payload"].as_object().unwrap().clone();
                assert!(payload.len() == 2 && payload["task_id"].is_string(), "{event}");
                if payload["title"] == "the end" {
                    break;
                }
                told.push(payload["title"].clone());
            }
            assert_eq!(json!(told), json!(titles));
        }
        assert_eq!(self.tasks().await, titles.len(), "the sent tasks and the stored tasks differ");
    }

    async fn tasks(&self) -> usize {
        let count = "SELECT COUNT(*) FROM tasks";
        match &self.database {
            None => {
                let file = rusqlite::Connection::open(self.url()).unwrap();
                file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap() as usize
            }
            Some((flavour, url)) => {
                let counted = flavour.shared().await.execute(Server::database_name(url), count);
                counted.trim().parse().unwrap()
            }
        }
    }

    /// Runs a program that adds two tasks, and then the same program with an empty title, so that it rolls back both
    /// of its tasks.
    async fn expect_program(&self, program: impl Fn() -> Command) {
        let stream = self.follower().await;
        let with = |titles: &[&str]| {
            let mut command = program();
            command.args([self.url().as_str(), "42"]).args(titles);
            command
        };
        let (succeeded, said) = run(with(&["Buy bread", "Buy 'milk' & \"eggs\""])).await;
        assert!(succeeded, "{said}");
        let (succeeded, said) = run(with(&["Buy salt", ""])).await;
        assert!(!succeeded && said.contains("a task needs a title"), "{said}");
        self.expect_received(stream, &["Buy bread", "Buy 'milk' & \"eggs\""]).await;
    }
}

async fn plain_sql(flavour: Option<Flavour>) {
    if flavour.is_none() && !tier::needs_engine("sqlite3") {
        return;
    }
    let Some(test) = OutboxTest::start(flavour).await else { return };
    let stream = test.follower().await;
    test.run_file("change.sql").await;
    test.expect_received(stream, &["Buy bread"]).await;
    assert!(test.run_file("watch.sql").await.contains("task.added.v1"));
    if flavour.is_some() {
        assert!(test.run_file("worker.sql").await.contains("sql-1"));
        // The other row is the one that the test wrote last.
        assert!(test.run_file("watch.sql").await.lines().any(|line| line.starts_with("task.added.v1\t1\t")));
    }
}

async fn python(flavour: Option<Flavour>) {
    if !tier::needs_engine("example-python") {
        return;
    }
    let Some(test) = OutboxTest::start(flavour).await else { return };
    let program = || {
        let mut command = Command::new(tier::program("example-python"));
        command.arg(folder().join("change.py"));
        command
    };
    test.expect_program(program).await;
}

async fn typescript(flavour: Option<Flavour>) {
    if !tier::needs_engine("example-tsc") || !tier::needs_engine("node") {
        return;
    }
    assert!(text("change.ts").contains(&format!("npx {TSC_COMMAND}\n")));
    let Some(test) = OutboxTest::start(flavour).await else { return };
    // A folder with the file and its packages, as npm creates it.
    let (home, tsc) = (tempfile::tempdir().unwrap(), tier::program("example-tsc"));
    let packages =
        tsc.ancestors().find(|folder| folder.file_name() == Some(OsStr::new("node_modules"))).unwrap();
    std::os::unix::fs::symlink(packages, home.path().join("node_modules")).unwrap();
    std::fs::copy(folder().join("change.ts"), home.path().join("change.ts")).unwrap();
    let mut compile = Command::new(tsc);
    compile.args(TSC_COMMAND.split(' ').skip(1)).current_dir(home.path());
    let (succeeded, said) = run(compile).await;
    assert!(succeeded, "{said}");
    let program = || {
        let mut command = Command::new(tier::program("node"));
        command.arg(home.path().join("change.js"));
        command
    };
    test.expect_program(program).await;
}

async fn rust(flavour: Option<Flavour>) {
    let Some(test) = OutboxTest::start(flavour).await else { return };
    let stream = test.follower().await;
    test.sql(CREATE_TASKS_TABLE).await;
    let options = Options { address: DatabaseAddress::parse(&test.url()).unwrap(), max_connections: 2 };
    let migrations = bongsu::PARTS.migrations(&Values::default(), options.address.dialect()).unwrap();
    let records = Records::connect_as_is(&options, &migrations, &Supervisor::new()).await.unwrap();
    let task = |id: &str, title: &str| change::Task {
        id: id.to_owned(),
        title: title.to_owned(),
        event: Id::new("42").unwrap(),
    };
    change::add_task(&records, task("rust-1", "Buy bread")).await.unwrap();
    let undone = change::add_task(&records, task("rust-2", "")).await;
    assert!(matches!(undone, Err(Error::RolledBack)), "{undone:?}");
    test.expect_received(stream, &["Buy bread"]).await;
}

macro_rules! examples {
    ($($example:ident on $($database:ident)*;)*) => {$(
        mod $example {
            $(
                #[tokio::test]
                async fn $database() {
                    super::$example(examples!(@ $database)).await;
                }
            )*
        }
    )*};
    (@ embedded) => { None };
    (@ postgres) => { Some(bongsu_testkit::sql::Flavour::Postgres) };
    (@ mariadb) => { Some(bongsu_testkit::sql::Flavour::MariaDb) };
}

// No embedded case for TypeScript: Node has supported SQLite files only recently.
examples! {
    plain_sql on embedded postgres mariadb;
    python on embedded postgres mariadb;
    typescript on postgres mariadb;
    rust on postgres mariadb;
}

#[test]
fn the_outbox_document_shows_the_example_files() {
    let document = std::fs::read_to_string(folder().join("../../outbox.md")).unwrap();
    let files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    for file in &files {
        assert!(
            document.contains(&format!("(examples/outbox/{file})")),
            "docs/outbox.md does not name {file}"
        );
    }
    let mut shown = 0;
    for block in document.split("\n```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').unwrap();
        let ending = match language {
            "sql" | "rust" | "python" | "ts" => {
                format!(".{}", &language.replace("rust", "rs").replace("python", "py"))
            }
            _ => continue,
        };
        let is_there = |file: &&String| file.ends_with(&ending) && text(file).contains(&format!("{code}\n"));
        assert!(files.iter().any(|file| is_there(&file)), "no example file has this block:\n{code}");
        shown += 1;
    }
    assert!(shown >= 5, "the document shows {shown} examples only");
}
