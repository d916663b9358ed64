//! Tests of the hub process with a stand-in: this test executable itself. The argument `serve` is taken as the name of
//! a test that does not exist, and further arguments make the executable run [`serve_as_a_stand_in`].

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use super::*;
use crate::local_http::{LocalHttp, Reply};
use crate::sse::{ResumingClient, Stream};
use crate::{Api, Engine};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn serve_as_a_stand_in() {
    let Ok(behaviour) = std::env::var("STAND_IN") else { return };
    assert_ne!(behaviour, "refuse", "refusing to start");
    let port = std::env::var("SERVER_PORT").unwrap().parse().unwrap();
    std::fs::create_dir_all(std::env::var("DATA_DIR").unwrap()).unwrap();
    let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    println!("stand-in: {behaviour} {}", names.join(","));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _server = LocalHttp::start_at(port, |path| match path {
            "/ready" => Reply::new(200, "application/json", "{}"),
            "/metrics" => Reply::new(200, "text/plain", "sse_active_connections{room=\"a\"} 3\n"),
            "/environment" => {
                let named = |name: &str| std::env::var(name).unwrap_or_default();
                let names = ["SERVER_PORT", "DATA_DIR", "REDIS_URL", "REDIS_KEY_PREFIX", "RECORDS", "ROLES"];
                Reply::new(200, "text/plain", names.map(named).join(" "))
            }
            _ => Reply::new(
                404,
                "application/json",
                r#"{"isSuccess":false,"code":"COMMON404","message":"no","result":null}"#,
            ),
        })
        .await;
        std::future::pending::<()>().await;
    });
}

fn stand_in() -> Builder {
    let builder = Hub::builder(std::env::current_exe().unwrap()).env("STAND_IN", "first");
    // Without --nocapture the test harness would capture the output of the stand-in.
    builder.arg("--exact").arg("hub::tests::serve_as_a_stand_in").arg("--nocapture")
}

#[tokio::test]
async fn a_killed_hub_restarts_on_the_same_port() {
    let hub = stand_in().start().await;
    assert!(hub.log().contains("stand-in: first"));
    assert!(!hub.log().contains("CARGO"), "the environment was not cleared: {}", hub.log());
    assert!(hub.data_dir().is_dir());
    assert_eq!(hub.metrics().await.get("sse_active_connections", &[]), 3.0);
    assert!(hub.rss_kib() > 100 && hub.peak_rss_kib() >= 100 && hub.open_files() > 3 && hub.threads() >= 1);
    Api::new(&hub).get("/nothing").await.expect_error(404, "COMMON404");

    let (port, pid) = (hub.port(), hub.pid());
    hub.kill9().await;
    assert!(hub.has_exited());
    assert_eq!(hub.wait_exit(Duration::ZERO).await.unwrap().signal(), Some(9));
    hub.restart_with(&[("STAND_IN", "second")]).await;
    assert!(hub.log().contains("stand-in: second"));
    assert_eq!(hub.port(), port);
    assert_ne!(hub.pid(), pid);
    hub.restart().await;
    assert_eq!(hub.log().matches("stand-in: first").count(), 2);

    let (status, output) = hub.restart_expecting_failure(&[("STAND_IN", "refuse")]).await;
    assert!(!status.success());
    assert!(output.contains("refusing to start") && !output.contains("stand-in: first"));
}

#[tokio::test]
async fn a_hub_ends_on_sigterm_and_on_drop() {
    let hub = stand_in().start().await;
    assert_eq!(hub.terminate().await.signal(), Some(15));
    hub.restart().await;
    let pid = hub.pid();
    drop(hub);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn a_failed_start_returns_status_and_output() {
    let (status, output) = stand_in().env("STAND_IN", "refuse").start_expecting_failure().await;
    assert_eq!(status.code(), Some(101));
    assert!(output.contains("refusing to start"));
}

#[tokio::test]
#[should_panic(expected = "refusing to start")]
async fn a_failed_start_shows_the_log() {
    stand_in().env("STAND_IN", "refuse").start().await;
}

#[tokio::test]
async fn the_hub_behind_a_wrapper_is_found_and_killed() {
    // The shell stays the parent of the hub, as a tracer does.
    let wrapper = ["sh", "-c", r#""$@"; exit $?"#, "wrapper"].map(str::to_owned).to_vec();
    let hub = stand_in().wrapper(wrapper).start().await;
    let pid = hub.pid();
    assert!(process::runs(pid, &std::env::current_exe().unwrap()));
    hub.kill9().await;
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(hub.wait_exit(Duration::ZERO).await.unwrap().code(), Some(128 + 9));
    hub.restart().await;
    let pid = hub.pid();
    drop(hub);
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists());
}

#[tokio::test]
async fn a_hub_is_shared_with_the_tasks_that_load_and_kill_it() {
    let hub = Arc::new(stand_in().start().await);
    let (loaded, killed) = (Arc::clone(&hub), Arc::clone(&hub));
    let (noticed, is_noticed) = tokio::sync::oneshot::channel();
    let load = tokio::spawn(async move {
        let api = Api::new(&loaded);
        wait::until(WAIT_TIMEOUT, async || api.try_publish(serde_json::json!({})).await.is_err()).await;
        noticed.send(()).unwrap();
        let mut stream = ResumingClient::new(Stream::request(&loaded, "/").person(1));
        assert_eq!(stream.next_event(WAIT_TIMEOUT).await, None);
    });
    let kill = tokio::spawn(async move {
        killed.kill9().await;
        wait::until(WAIT_TIMEOUT, async || killed.has_exited()).await;
        // Without this wait the hub could be back before the other task has noticed that it was down.
        is_noticed.await.unwrap();
        killed.restart_with(&[]).await;
        assert_eq!(killed.metrics().await.samples().len(), 1);
    });
    kill.await.unwrap();
    load.await.unwrap();
    hub.terminate().await;
}

/// The environment of the stand-in that the client sends requests to: port, data folder, engine, key prefix, records,
/// roles.
async fn environment(api: &Api) -> [String; 6] {
    let text = api.get("/environment").await.expect(200).text();
    text.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()
}

#[tokio::test]
async fn on_a_shared_engine_a_twin_starts_and_ends_with_its_hub() {
    if !crate::tier::needs_engine("redis") {
        return;
    }
    let wrapper = ["env", "WRAPPED=1"].map(str::to_owned).to_vec();
    let hub = stand_in().engine(Engine::Redis).wrapper(wrapper).start().await;
    let twin = hub.twin().expect("the hub has no twin");
    assert!(hub.log().contains("WRAPPED") && !twin.log().contains("WRAPPED"));
    let streams = environment(&Api::at(&hub.url(""))).await;
    let requests = environment(&Api::new(&hub)).await;
    assert_eq!((&streams[0], &requests[0]), (&hub.port().to_string(), &twin.port().to_string()));
    assert_ne!(streams[1], requests[1]);
    assert_eq!(streams[2..], requests[2..]);
    assert_eq!((Engine::Redis.shared_url().await.as_ref(), "off"), (Some(&streams[2]), streams[4].as_str()));
    assert!(streams[3].starts_with('t') && streams[3].ends_with(':'));
    assert_eq!(hub.metrics().await.get("sse_active_connections", &[]), 6.0);

    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path().to_str().unwrap();
    hub.restart_with(&[("STAND_IN", "second"), ("DATA_DIR", folder)]).await;
    assert!(hub.log().contains("stand-in: second") && twin.log().contains("stand-in: second"));
    assert_eq!(environment(&Api::at(&hub.url(""))).await[1], folder);
    assert_eq!(environment(&Api::new(&hub)).await, requests);
    twin.kill9().await;
    assert!(!hub.has_exited() && twin.has_exited());
    hub.kill9().await;
    assert!(hub.has_exited());
    hub.restart().await;
    assert!(!twin.has_exited());
    assert_eq!(hub.terminate().await.signal(), Some(15));
    let (status, _) = hub.restart_expecting_failure(&[("STAND_IN", "refuse")]).await;
    assert!(!status.success());

    let other = stand_in().engine(Engine::Redis).start().await;
    let own = environment(&Api::new(&other)).await;
    assert_eq!(own[2], streams[2]);
    assert_ne!(own[3], streams[3]);
    let alone = stand_in().engine(Engine::Redis).env("REDIS_URL", "redis://own").start().await;
    assert!(alone.twin().is_none());
    assert_eq!(environment(&Api::new(&alone)).await[2..], ["redis://own", "", "", ""]);
}

#[tokio::test]
async fn split_roles_run_in_an_api_process_and_a_worker_process() {
    let split = || stand_in().engine(Engine::Split).env("REDIS_URL", "redis://own");
    let hub = split().env("DATABASE_URL", "postgres://own").start().await;
    let worker = hub.worker().expect("the hub has no worker");
    assert!(hub.twin().is_none() && worker.worker().is_none());
    let served = environment(&Api::new(&hub)).await;
    assert_eq!((&served[0], served[5].as_str()), (&hub.port().to_string(), "api"));
    assert_eq!(environment(&Api::at(&worker.url(""))).await[5], "worker");
    worker.kill9().await;
    assert!(hub.has_any_exited() && !hub.has_exited());
    hub.restart().await;
    assert!(!hub.has_any_exited());
    hub.kill9().await;
    assert!(worker.has_exited());

    // A test that sets ROLES, or has no database that two processes could share, gets a hub with one process.
    for one in [split(), split().env("DATABASE_URL", "postgres://own").env("ROLES", "hub")] {
        assert!(one.start().await.worker().is_none());
    }
}

#[tokio::test]
async fn the_hub_behind_a_tracer_is_killed() {
    if !crate::tier::needs_engine("strace") {
        return;
    }
    let trace = tempfile::NamedTempFile::new().unwrap();
    let file = trace.path().display().to_string();
    let words = ["strace", "-f", "-e", "trace=listen", "-o", &file].map(str::to_owned).to_vec();
    let hub = stand_in().wrapper(words).start().await;
    hub.kill9().await;
    assert_eq!(hub.wait_exit(Duration::ZERO).await.unwrap().signal(), Some(9));
    assert!(std::fs::read_to_string(trace.path()).unwrap().contains("listen("));
}
