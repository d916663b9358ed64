//! `bongsu tail` prints the events of a room, across restarts of the hub.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::token;
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, Hub};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, bongsu, error_line, run};
use crate::BONGSU;

/// A running `bongsu tail` process, killed when it is dropped.
struct TailProcess {
    child: Child,
    lines: Receiver<String>,
}

impl TailProcess {
    fn start(arguments: &[&str]) -> Self {
        let mut command = bongsu(&["tail"], &[]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("tail does not start: {error}"));
        let (sender, lines) = channel();
        let out = child.stdout.take();
        std::thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()) {
                let _ = line.map(|line| sender.send(line));
            }
        });
        Self { child, lines }
    }

    /// Id, type and data of the next event; `system.close` and `presence.update` are skipped.
    fn next_event(&self) -> (String, String, Value) {
        loop {
            let line =
                self.lines.recv_timeout(WAIT_TIMEOUT).unwrap_or_else(|error| panic!("no line: {error}"));
            let mut words = line.splitn(3, ' ');
            let (id, kind, data) = (words.next(), words.next(), words.next());
            let data = serde_json::from_str(data.unwrap_or_default());
            let data = data.unwrap_or_else(|error| panic!("{line:?}: {error}"));
            match kind {
                Some("system.close" | "presence.update") => {}
                kind => {
                    return (id.unwrap_or_default().to_owned(), kind.unwrap_or_default().to_owned(), data);
                }
            }
        }
    }

    /// Waits for the process to end; returns its exit code and its error output.
    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let mut complaint = String::new();
                    if let Some(mut err) = self.child.stderr.take() {
                        let _ = err.read_to_string(&mut complaint);
                    }
                    return (status.code(), complaint);
                }
                _ => assert!(Instant::now() < deadline, "tail did not end"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for TailProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn listens(hub: &Hub) {
    until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 1.0).await;
}

#[tokio::test(flavor = "current_thread")]
async fn tail_shows_events_and_comes_back_after_a_restart() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let url = hub.url("");
    let first = api.publish_to("a", "comment.created", json!({"n": 1})).await;
    let tail = TailProcess::start(&["--room", "a", "--since", "0-0", "--url", &url]);
    let (id, kind, data) = tail.next_event();
    assert_eq!((id, kind.as_str(), &data["n"]), (first, "comment.created", &json!(1)));
    listens(&hub).await;
    let second = api.publish_to("a", "comment.created", json!({"n": 2})).await;
    assert_eq!(tail.next_event().0, second);
    // The hub is killed, then shut down: `tail` misses no event in either case.
    hub.restart().await;
    let third = Api::new(&hub).publish_to("a", "comment.created", json!({"n": 3})).await;
    assert_eq!(tail.next_event().0, third);
    hub.terminate().await;
    hub.restart().await;
    let fourth = Api::new(&hub).publish_to("a", "comment.created", json!({"n": 4})).await;
    assert_eq!(tail.next_event().0, fourth);
}

#[tokio::test(flavor = "current_thread")]
async fn tail_and_doctor_do_not_appear_in_presence() {
    let hub = Hub::builder(BONGSU).start().await;
    let (api, url) = (Api::new(&hub), hub.url(""));
    let request = |room: &str| Stream::request(&hub, &format!("/api/v1/rooms/{room}/stream")).person(3);
    let mut there = request("a").with_presence().open().await.ok().unwrap();
    // The room in which doctor opens its test stream.
    let mut tried = request("bongsu-doctor").with_presence().open().await.ok().unwrap();
    for stream in [&mut there, &mut tried] {
        assert_eq!(
            stream.expect_event("presence.update", WAIT_TIMEOUT).await.json()["onlineUsers"],
            json!([3])
        );
    }
    let tail = TailProcess::start(&["--room", "a", "--since", "0-0", "--url", &url]);
    let theirs = TailProcess::start(&["--room", "a", "--since", "0-0", "--url", &url, "--token", &token(9)]);
    run(&["doctor", "--url", &url], &[]);
    for room in ["a", "bongsu-doctor"] {
        let id = api.publish_to(room, "comment.created", json!({})).await;
        if room == "a" {
            assert_eq!(
                (tail.next_event().0, theirs.next_event().0),
                (id.clone(), id),
                "both processes must print the event"
            );
        }
        let present = api.person(3).get(&format!("/api/v1/rooms/{room}/presence")).await.expect(200);
        assert_eq!(present.result()["count"], 1, "{}", present.text());
    }
    drop((tail, theirs));
    for stream in [&mut there, &mut tried] {
        stream.expect_event("comment.created", WAIT_TIMEOUT).await;
    }
}

#[tokio::test]
async fn tail_says_why_it_cannot_start() {
    let hub = Hub::builder(BONGSU).start().await;
    let url = hub.url("");
    let refused = error_line(&run(&["tail", "--room", "a", "--token", "forged", "--url", &url], &[]), 1);
    assert!(refused.contains("AUTH4001"), "{refused}");
    let since = error_line(&run(&["tail", "--room", "a", "--since", "x", "--url", &url], &[]), 1);
    assert!(since.contains("COMMON400") && since.contains("Last-Event-ID"), "{since}");
    hub.terminate().await;
    assert!(error_line(&run(&["tail", "--room", "a", "--url", &url], &[]), 1).contains("cannot be reached"));
}

#[tokio::test]
async fn tail_says_why_its_reconnect_was_refused() {
    let hub = Hub::builder(BONGSU).start().await;
    let tail = TailProcess::start(&["--room", "a", "--url", &hub.url("")]);
    listens(&hub).await;
    hub.restart_with(&[("JWT_SECRET", "another")]).await;
    let (code, complaint) = tail.end();
    assert_eq!(code, Some(1), "a refused reconnect must fail");
    assert!(complaint.contains("AUTH4001"), "{complaint:?}");
}
