//! Actions between the commands of a document, which its text asks of the reader or assumes: the hub is
//! restarted, other streams are open, another program writes a row.
//!
//! A step is triggered by words of the document. If the document does not contain them, its test fails.

use std::path::Path;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, wait};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::parse::root;
use super::run::{DocumentRun, WAIT_TIMEOUT};

pub(super) struct Step {
    pub(super) document: &'static str,
    pub(super) trigger: Trigger,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) enum Trigger {
    /// The text between two blocks contains these words.
    Text(&'static str),
    /// The next command begins with this text.
    BeforeCommand(&'static str),
    /// The stream of the command that begins with this text has sent its first lines.
    DuringStream(&'static str),
}

pub(super) enum Action {
    RestartHub,
    OpenFiveStreams,
    /// Runs a file of docs/examples/outbox on the database of the hub.
    RunExample(&'static str),
    /// Stores a follow-up record that is not JSON, and waits until it is a dead letter.
    AddUnreadableFollowUp,
    /// Inserts rows 2 and 3, which cannot be relayed to a room, and waits until they are dead letters.
    AddUnusableRows,
    /// Waits until this many attempts to relay rows have failed and row 2 is a dead letter.
    WaitForFailures(u32),
    /// Notifies people 7 and 8 with the event id `like-981`; person 7 marks the entry as read.
    NotifyAndRead,
}

use Action::{
    AddUnreadableFollowUp, AddUnusableRows, NotifyAndRead, OpenFiveStreams, RestartHub, RunExample,
    WaitForFailures,
};
use Trigger::{BeforeCommand, DuringStream, Text};

const fn step(document: &'static str, trigger: Trigger, action: Action) -> Step {
    Step { document, trigger, action }
}

pub(super) const STEPS: [Step; 10] = [
    step("README.md", Text("Start it again in the first terminal"), RestartHub),
    step("README.ko.md", Text("첫 번째 터미널에서 다시 시작하고"), RestartHub),
    step("docs/rooms.md", Text("The sixth stream of a person:"), OpenFiveStreams),
    step("docs/inbox.md", Text("until an operator redrives or drops them:"), AddUnreadableFollowUp),
    step("docs/outbox.md", Text("status `ACCEPTED` may open the stream"), RunExample("members.sql")),
    step("docs/outbox.md", DuringStream("curl -sN $HUB/events/42/stream"), RunExample("change.sql")),
    step("docs/outbox.md", Text("A row that was given up waits in the queue"), AddUnusableRows),
    step("docs/outbox.md", BeforeCommand("bongsu dlq redrive outbox --all"), WaitForFailures(2)),
    step("docs/outbox.md", BeforeCommand("curl -s \"$HUB/api/admin/dlq/outbox"), WaitForFailures(3)),
    step("docs/operating.md", Text("`bongsu explain` reads what is stored about an event"), NotifyAndRead),
];

/// JSON that is not an object, and text that is not JSON.
const UNUSABLE_PAYLOADS: [&str; 2] = ["[4]", "{broken"];

impl Action {
    pub(super) async fn run(&self, document_run: &mut DocumentRun) {
        let api = Api::new(&document_run.hub);
        match self {
            RestartHub => document_run.hub.restart().await,
            OpenFiveStreams => {
                let health = async || api.get("/health").await.expect(200);
                wait::until(WAIT_TIMEOUT, async || health().await.result()["activeConnections"] == 0).await;
                for room in 1..=5 {
                    let request = Stream::request(&document_run.hub, &format!("/api/v1/rooms/{room}/stream"));
                    document_run.streams.push(request.person(7).open().await.ok().unwrap());
                }
            }
            RunExample(file) => {
                let sql = std::fs::read_to_string(root().join("docs/examples/outbox").join(file)).unwrap();
                database(document_run.hub.data_dir()).execute_batch(&sql).unwrap();
            }
            AddUnreadableFollowUp => {
                let insert = "INSERT INTO follow_ups (record) VALUES ('no JSON')";
                database(document_run.hub.data_dir()).execute(insert, []).unwrap();
                wait::until(WAIT_TIMEOUT, async || letters(&api, "follow-ups").await.len() == 1).await;
            }
            AddUnusableRows => {
                let insert = "INSERT INTO outbox_events (event_type, payload, target_event_id) \
                              VALUES ('task.added.v1', ?1, '42')";
                for payload in UNUSABLE_PAYLOADS {
                    database(document_run.hub.data_dir()).execute(insert, [payload]).unwrap();
                }
                wait::until(WAIT_TIMEOUT, async || letters(&api, "outbox").await.len() == 2).await;
            }
            WaitForFailures(count) => {
                let failures = async || document_run.hub.metrics().await.get("outbox_failures_total", &[]);
                wait::until(WAIT_TIMEOUT, async || failures().await >= f64::from(*count)).await;
                let has_row_2 = |letters: Vec<Value>| letters.iter().any(|letter| letter["id"] == 2);
                wait::until(WAIT_TIMEOUT, async || has_row_2(letters(&api, "outbox").await)).await;
            }
            NotifyAndRead => {
                let like = json!({"eventId": "like-981", "type": "POST_LIKE", "targetIds": [7, 8], "actorId": 2,
                    "refId": 100, "payload": {"actorName": "Ada"}});
                api.post("/api/v1/members/notify", like).await.expect(202);
                api.person(7).call("PATCH", "/api/notifications/like-981/read", "").await.expect(200);
            }
        }
    }
}

/// The dead letters of a queue.
async fn letters(api: &Api, queue: &str) -> Vec<Value> {
    let list = api.admin().get(&format!("/api/admin/dlq/{queue}")).await.expect(200);
    list.result()["letters"].as_array().unwrap().clone()
}

/// Opens the database of a running hub, as another program does.
fn database(data_dir: &Path) -> Connection {
    let database = Connection::open(data_dir.join("bongsu.db")).unwrap();
    database.busy_timeout(WAIT_TIMEOUT).unwrap();
    database
}
