//! What unfinished requests cost: clients that ask for much and read nothing, over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::get;
use bongsu_http::identity::Identity;
use bongsu_http::in_flight::Options;
use bongsu_http::{Part, Person, listed};
use bongsu_testkit::http2::{self, Http2};
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, raw, tokens};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::LONG;
use crate::serving::Serving;

/// Much more than the kernel takes for a client that does not read.
const PARTS: usize = 200;
const ITEM: usize = 32 << 10;
/// Longer than a test takes.
const NEVER: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_secs(1);

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
    format!("{number:08}").repeat(ITEM / 8)
}

/// A list of items, each a part of its own, for a person.
async fn serve(per_person: usize, waiting_bytes: usize, stall: Duration) -> Serving {
    let list = async |_: Person| {
        let parts = (1..=PARTS).map(|number| match item(number) {
            last if number == PARTS => Part::Last(vec![last], Listing { items: Vec::new(), count: PARTS }),
            item => Part::Items(vec![item]),
        });
        listed("items", stream::iter(parts)).await
    };
    let limits = Options { per_person, waiting_bytes, stall };
    Serving::start_within(limits, |identity| {
        Router::new().route("/list", get(list)).with_state(App(identity))
    })
    .await
}

fn request(person: u32) -> Vec<u8> {
    let token = tokens::token(person);
    format!("GET /list HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n")
        .into_bytes()
}

/// A client that reads the first bytes of its response, so that this has begun, and nothing more.
async fn unread(serving: &Serving, person: u32) -> (TcpStream, String) {
    let mut client = raw::unread(serving.addr, &request(person)).await;
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    (client, String::from_utf8_lossy(&status).into_owned())
}

#[tokio::test]
async fn a_person_with_too_many_requests_in_flight_is_refused_until_one_of_them_ends() {
    let serving = serve(3, 1 << 30, NEVER).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let (client, status) = unread(&serving, 7).await;
        assert_eq!(status, "HTTP/1.1 200");
        open.push(client);
    }
    let refused = raw::answer(serving.addr, &request(7), LONG).await.unwrap();
    assert_eq!((refused.status, refused.code()), (429, "COMMON429"));
    assert!(refused.header("retry-after").parse::<u32>().is_ok(), "{:?}", refused.headers);
    assert_eq!(unread(&serving, 8).await.1, "HTTP/1.1 200", "another person has requests of their own");
    drop(open.pop());
    until(LONG, || async { unread(&serving, 7).await.1 == "HTTP/1.1 200" }).await;
}

#[tokio::test]
async fn bytes_that_wait_are_bounded_and_those_who_read_get_everything() {
    let limit = 512 << 10;
    let serving = serve(0, limit, NEVER).await;
    let mut silent = Vec::new();
    for person in 0..60 {
        silent.push(unread(&serving, person).await.0);
        let waiting = serving.in_flight.waiting_bytes();
        assert!(waiting <= limit, "{waiting} bytes wait after {} clients", silent.len());
    }
    let waiting = serving.settled(|| serving.in_flight.waiting_bytes()).await;
    assert!(waiting > limit / 2, "too little waits to show anything: {waiting}");
    let reader = Api::at(&format!("http://{}", serving.addr)).person(61);
    let answer = reader.get("/list").await.expect(200);
    let items: Vec<String> = (1..=PARTS).map(item).collect();
    assert!(answer.result()["items"] == serde_json::json!(items), "a reader did not get the list");
    assert_eq!(answer.result()["count"], PARTS);
    // Those that waited longest made room.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(LONG, silent[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && rest.len() < PARTS * ITEM, "the first client still has its response");
}

#[tokio::test]
async fn a_response_whose_client_takes_nothing_is_cut_off() {
    let serving = serve(1, 1 << 30, SOON).await;
    let (mut client, _) = unread(&serving, 7).await;
    until(LONG, || async { serving.in_flight.waiting_bytes() == 0 }).await;
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
    assert!(rest.len() < PARTS * ITEM, "all of it came: {} bytes", rest.len());
    // The person's place is free again.
    until(LONG, || async { unread(&serving, 7).await.1 == "HTTP/1.1 200" }).await;
}

#[tokio::test]
async fn a_response_that_is_produced_slowly_is_not_the_clients_fault() {
    // Longer than a client may take nothing for. The pause is what is tested, not a wait for something.
    let pause = 4 * SOON;
    let slow = async move |_: Person| {
        let parts = stream::iter(1..=2).then(move |number| async move {
            tokio::time::sleep(if number == 2 { pause } else { Duration::ZERO }).await;
            match number {
                2 => Part::Last(Vec::new(), Listing { items: Vec::new(), count: 1 }),
                number => Part::Items(vec![item(number)]),
            }
        });
        listed("items", Box::pin(parts)).await
    };
    let limits = Options { per_person: 0, waiting_bytes: 1 << 30, stall: SOON };
    let serving = Serving::start_within(limits, |identity| {
        Router::new().route("/slow", get(slow)).with_state(App(identity))
    })
    .await;
    let reader = Api::at(&format!("http://{}", serving.addr)).person(1);
    assert_eq!(reader.get("/slow").await.expect(200).result()["count"], 1);
}

#[tokio::test]
async fn a_closed_http2_window_costs_a_piece_for_each_request_and_these_are_reset_in_time() {
    let serving = serve(10, 1 << 30, SOON).await;
    let bearer = format!("Bearer {}", tokens::token(7));
    let mut client = Http2::connect(serving.addr, 0).await;
    for _ in 0..20 {
        client.get("/list", &[("authorization", &bearer)]).await.unwrap();
    }
    let (mut heads, mut reset) = (0, 0);
    while heads < 20 || reset < 20 {
        let waiting = serving.in_flight.waiting_bytes();
        assert!(waiting <= 10 * 2 * ITEM + 10 * 1_024, "{waiting} bytes wait");
        let frame = tokio::time::timeout(LONG, client.next()).await.expect("a frame").expect("a connection");
        match frame.kind {
            http2::HEADERS => heads += 1,
            http2::RST_STREAM => reset += 1,
            other => panic!("a frame of the kind {other} for a stream whose window is closed"),
        }
    }
    until(LONG, || async { serving.in_flight.waiting_bytes() == 0 }).await;
    // The connection serves on.
    let next = client.get("/list", &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(client.next().await.map(|frame| (frame.kind, frame.stream)), Some((http2::HEADERS, next)));
}

#[tokio::test]
async fn a_connection_that_holds_the_end_of_a_response_back_is_closed() {
    let serving = serve(0, 1 << 30, SOON).await;
    let mut client = Http2::connect(serving.addr, 1).await;
    // Answered with four bytes, all of which are given to the connection at once.
    client.get("/", &[]).await.unwrap();
    let mut taken = 0;
    let ended = tokio::time::timeout(LONG, async {
        while let Some(frame) = client.next().await {
            taken += if frame.kind == http2::DATA { frame.payload.len() } else { 0 };
        }
    });
    assert!(ended.await.is_ok(), "the connection is still there");
    assert_eq!((taken, serving.in_flight.waiting_bytes()), (1, 0));
}
