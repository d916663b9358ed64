//! The shared engine is started once and ends with its process, however the process ends.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::redis::Client;
use crate::{engine::Engine as Profile, print_line, wait};

#[tokio::test]
async fn the_shared_engine_is_started_once() {
    if !tier::needs_engine("redis") {
        return;
    }
    assert_eq!(Profile::Embedded.shared_url().await, None);
    let (one, other) = tokio::join!(Profile::Redis.shared_url(), Profile::Redis.shared_url());
    assert_eq!(one, other);
    let addr = one.unwrap().strip_prefix("redis://").unwrap().parse().unwrap();
    let mut client = Client::connect(addr).await.unwrap();
    assert_eq!(client.call(&["PING"]).await.unwrap().text(), "PONG");
    assert_eq!(client.call(&["CONFIG", "GET", "appendfsync"]).await.unwrap().items()[1].text(), "always");
    let cluster = Profile::Cluster.shared_url().await.unwrap();
    assert_eq!(cluster.split(',').count(), 3, "{cluster}");
}

/// Not a test by itself: `the_engine_ends_with_its_process` runs it as a child process.
#[tokio::test]
async fn a_process_with_an_engine() {
    let Ok(ending) = std::env::var("ENGINE_PROCESS") else {
        return tier::not_applicable("another test runs it as a child process");
    };
    let address = Profile::Redis.shared_url().await.unwrap();
    let mut client =
        Client::connect(address.strip_prefix("redis://").unwrap().parse().unwrap()).await.unwrap();
    let info = client.call(&["INFO", "server"]).await.unwrap();
    let folder = client.call(&["CONFIG", "GET", "dir"]).await.unwrap();
    let pid = bongsu_engines::redis::field(info.text(), "process_id");
    print_line(&format!("engine {pid} {}", folder.items()[1].text()));
    match ending.as_str() {
        "end" => {}
        "panic" => panic!("requested by ENGINE_PROCESS"),
        _ => std::future::pending().await,
    }
}

#[tokio::test]
async fn the_engine_ends_with_its_process() {
    if !tier::needs_engine("redis") {
        return;
    }
    for ending in ["end", "panic", "kill"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "shared::tests::a_process_with_an_engine", "--nocapture"]);
        command
            .env_remove("BONGSU_SHARED_REDIS")
            .env("ENGINE_PROCESS", ending)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find_map(|line| line.strip_prefix("engine ").map(str::to_owned)).unwrap();
        let (pid, folder) = line.split_once(' ').unwrap();
        if ending == "kill" {
            assert!(Path::new(&format!("/proc/{pid}/exe")).exists() && Path::new(folder).is_dir());
            process.kill().unwrap();
        }
        process.wait().unwrap();
        wait::until(Duration::from_secs(60), async || {
            // A zombie has no `exe` link, so it counts as ended even if no process has collected it.
            !Path::new(&format!("/proc/{pid}/exe")).exists() && !Path::new(folder).exists()
        })
        .await;
    }
}
