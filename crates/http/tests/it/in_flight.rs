//! Limits of unfinished requests: clients that request large responses and do not read them, over HTTP/1.1
//! and HTTP/2.

use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::get;
use bongsu_http::identity::Identity;
use bongsu_http::in_flight::Options;
use bongsu_http::{ListChunk, Person, list_response};
use bongsu_testkit::http2::{self, Http2};
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, raw, tokens};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::WAIT_TIMEOUT;
use crate::test_server::TestServer;

/// Items of a response: many more than the kernel buffers for a client that does not read.
const ITEM_COUNT: usize = 200;
/// Bytes of an item.
const ITEM_SIZE: usize = 32 << 10;
/// A stall timeout that no test reaches.
const LONG_STALL: Duration = Duration::from_secs(3_600);
const SHORT_STALL: Duration = Duration::from_secs(1);

#[derive(Default, Serialize)]
struct Listing {
    items: Vec<String>,
    count: usize,
}

#[derive(Clone)]
struct App(Identity);

impl FromRef<App> for Identity {
    fn from_ref(app: &App) -> Self {
        app.0.clone()
    }
}

fn item(number: usize) -> String {
    format!("{number:08}").repeat(ITEM_SIZE / 8)
}

/// A server with a list of items, each in a chunk of its own, for persons.
async fn serve(per_person: usize, waiting_bytes: usize, stall: Duration) -> TestServer {
    let list = async |_: Person| {
        let chunks = (1..=ITEM_COUNT).map(|number| match item(number) {
            last if number == ITEM_COUNT => {
                ListChunk::Last(vec![last], Listing { items: Vec::new(), count: ITEM_COUNT })
            }
            item => ListChunk::Items(vec![item]),
        });
        list_response("items", stream::iter(chunks)).await
    };
    let limits = Options { per_person, waiting_bytes, stall };
    TestServer::start_with_limits(limits, |identity| {
        Router::new().route("/list", get(list)).with_state(App(identity))
    })
    .await
}

fn request(person: u32) -> Vec<u8> {
    let token = tokens::token(person);
    format!("GET /list HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n")
        .into_bytes()
}

/// Sends a request and reads only the first bytes of the response, so that the response has begun. Returns the client
/// and those bytes.
async fn open_without_reading(test_server: &TestServer, person: u32) -> (TcpStream, String) {
    let mut client = raw::send_without_reading(test_server.addr, &request(person)).await;
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    (client, String::from_utf8_lossy(&status).into_owned())
}

#[tokio::test]
async fn a_person_with_too_many_requests_is_refused_until_one_ends() {
    let test_server = serve(3, 1 << 30, LONG_STALL).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let (client, status) = open_without_reading(&test_server, 7).await;
        assert_eq!(status, "HTTP/1.1 200");
        open.push(client);
    }
    let refused = raw::answer(test_server.addr, &request(7), WAIT_TIMEOUT).await.unwrap();
    assert_eq!((refused.status, refused.code()), (429, "COMMON429"));
    assert!(refused.header("retry-after").parse::<u32>().is_ok(), "{:?}", refused.headers);
    assert_eq!(
        open_without_reading(&test_server, 8).await.1,
        "HTTP/1.1 200",
        "another person has a separate limit"
    );
    drop(open.pop());
    until(WAIT_TIMEOUT, || async { open_without_reading(&test_server, 7).await.1 == "HTTP/1.1 200" }).await;
}

#[tokio::test]
async fn waiting_bytes_are_bounded_and_reading_clients_get_everything() {
    let limit = 512 << 10;
    let test_server = serve(0, limit, LONG_STALL).await;
    let mut silent = Vec::new();
    for person in 0..60 {
        silent.push(open_without_reading(&test_server, person).await.0);
        let waiting = test_server.in_flight.waiting_bytes();
        assert!(waiting <= limit, "{waiting} bytes wait after {} clients", silent.len());
    }
    let waiting = test_server.wait_until_stable(|| test_server.in_flight.waiting_bytes()).await;
    assert!(waiting > limit / 2, "too few bytes wait to test the limit: {waiting}");
    let reader = Api::at(&format!("http://{}", test_server.addr)).person(61);
    let answer = reader.get("/list").await.expect(200);
    let items: Vec<String> = (1..=ITEM_COUNT).map(item).collect();
    assert!(answer.result()["items"] == serde_json::json!(items), "a reader did not get the list");
    assert_eq!(answer.result()["count"], ITEM_COUNT);
    // The response that waited longest was aborted.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(WAIT_TIMEOUT, silent[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && rest.len() < ITEM_COUNT * ITEM_SIZE, "the first client still has its response");
}

#[tokio::test]
async fn a_response_whose_client_reads_nothing_is_aborted() {
    let test_server = serve(1, 1 << 30, SHORT_STALL).await;
    let (mut client, _) = open_without_reading(&test_server, 7).await;
    until(WAIT_TIMEOUT, || async { test_server.in_flight.waiting_bytes() == 0 }).await;
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
    assert!(rest.len() < ITEM_COUNT * ITEM_SIZE, "the whole response arrived: {} bytes", rest.len());
    // The aborted request no longer counts towards the limit of the person.
    until(WAIT_TIMEOUT, || async { open_without_reading(&test_server, 7).await.1 == "HTTP/1.1 200" }).await;
}

#[tokio::test]
async fn a_response_that_is_produced_slowly_is_not_aborted() {
    // The pause is longer than the stall timeout. The test examines the pause itself; the pause does not wait
    // for a condition.
    let pause = 4 * SHORT_STALL;
    let slow = async move |_: Person| {
        let chunks = stream::iter(1..=2).then(move |number| async move {
            tokio::time::sleep(if number == 2 { pause } else { Duration::ZERO }).await;
            match number {
                2 => ListChunk::Last(Vec::new(), Listing { items: Vec::new(), count: 1 }),
                number => ListChunk::Items(vec![item(number)]),
            }
        });
        list_response("items", Box::pin(chunks)).await
    };
    let limits = Options { per_person: 0, waiting_bytes: 1 << 30, stall: SHORT_STALL };
    let test_server = TestServer::start_with_limits(limits, |identity| {
        Router::new().route("/slow", get(slow)).with_state(App(identity))
    })
    .await;
    let reader = Api::at(&format!("http://{}", test_server.addr)).person(1);
    assert_eq!(reader.get("/slow").await.expect(200).result()["count"], 1);
}

#[tokio::test]
async fn requests_with_a_closed_http2_window_hold_one_piece_and_are_reset() {
    let test_server = serve(10, 1 << 30, SHORT_STALL).await;
    let bearer = format!("Bearer {}", tokens::token(7));
    let mut client = Http2::connect(test_server.addr, 0).await;
    for _ in 0..20 {
        client.get("/list", &[("authorization", &bearer)]).await.unwrap();
    }
    let (mut heads, mut reset) = (0, 0);
    while heads < 20 || reset < 20 {
        let waiting = test_server.in_flight.waiting_bytes();
        assert!(waiting <= 10 * 2 * ITEM_SIZE + 10 * 1_024, "{waiting} bytes wait");
        let frame =
            tokio::time::timeout(WAIT_TIMEOUT, client.next()).await.expect("a frame").expect("a connection");
        match frame.kind {
            http2::HEADERS => heads += 1,
            http2::RST_STREAM => reset += 1,
            other => panic!("a frame of type {other} on a stream whose window is closed"),
        }
    }
    until(WAIT_TIMEOUT, || async { test_server.in_flight.waiting_bytes() == 0 }).await;
    // The connection is still served.
    let next = client.get("/list", &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(client.next().await.map(|frame| (frame.kind, frame.stream)), Some((http2::HEADERS, next)));
}

#[tokio::test]
async fn a_connection_that_blocks_the_end_of_a_response_is_closed() {
    let test_server = serve(0, 1 << 30, SHORT_STALL).await;
    let mut client = Http2::connect(test_server.addr, 1).await;
    // The response has four bytes, which the connection gets at once, and the window of the client is one byte.
    client.get("/", &[]).await.unwrap();
    let mut received = 0;
    let ended = tokio::time::timeout(WAIT_TIMEOUT, async {
        while let Some(frame) = client.next().await {
            received += if frame.kind == http2::DATA { frame.payload.len() } else { 0 };
        }
    });
    assert!(ended.await.is_ok(), "the connection is still open");
    assert_eq!((received, test_server.in_flight.waiting_bytes()), (1, 0));
}
