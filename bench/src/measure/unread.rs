//! Measures clients that request a large page of events and do not read it: the memory of the hub, and how long another
//! person waits for the same page.

use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::process::{peak_resident_kib, resident_kib};
use crate::stats::rounded;
use bongsu_testkit::http2::Http2;
use bongsu_testkit::{Api, raw, tokens};
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const PATH: &str = "/api/v1/rooms/large/events?since=0-0&count=500";
/// Number and size of the events: together about the maximum size of a page.
const EVENTS: usize = 500;
const EVENT_SIZE: usize = 4_000;
/// Requests on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: usize = 100;
/// How often the other person requests the page: right after the clients have sent their requests, and again later.
const PAGE_REQUESTS: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    /// With a flow control window of 0 bytes.
    Http2,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnreadReport {
    pub(crate) protocol: &'static str,
    pub(crate) requests: usize,
    pub(crate) people: usize,
    pub(crate) page_bytes: usize,
    pub(crate) before_mib: f64,
    pub(crate) during_mib: f64,
    pub(crate) peak_mib: f64,
    /// Latency of the other person's page: before the clients connect, and the highest one while they do not read.
    pub(crate) page_ms_before: f64,
    pub(crate) page_ms_during: f64,
}

/// A connection that stays open until the measurement ends.
enum Client {
    Http1(#[expect(dead_code, reason = "stays open")] TcpStream),
    Http2(#[expect(dead_code, reason = "stays open")] Http2),
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<Vec<UnreadReport>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rows = Vec::new();
    for requests in sizes.unread_requests {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            for people in [1, requests] {
                rows.push(runtime.block_on(measure_with(
                    &hubs.start()?,
                    protocol,
                    requests,
                    people,
                    sizes,
                ))?);
            }
        }
    }
    Ok(rows)
}

async fn measure_with(
    hub: &Server,
    protocol: Protocol,
    requests: usize,
    people: usize,
    sizes: &Sizes,
) -> Result<UnreadReport> {
    let name = if protocol == Protocol::Http1 { "HTTP/1.1" } else { "HTTP/2" };
    progress(&format!("unread: {requests} requests of {people} persons, {name}"));
    let api = Api::at(&format!("http://{}", hub.target().address));
    publish_large_events(&api).await;
    let other = api.person("other");
    let (page_bytes, page_before) = get_page(&other).await?;
    let before = resident_kib(hub.pid())?;
    let clients = send_requests(hub, protocol, requests, people).await?;
    let mut page_during = Duration::ZERO;
    for _ in 0..PAGE_REQUESTS {
        page_during = page_during.max(get_page(&other).await?.1);
    }
    tokio::time::sleep(sizes.settle_time).await;
    for _ in 0..PAGE_REQUESTS {
        page_during = page_during.max(get_page(&other).await?.1);
    }
    let mib = |kib: u64| rounded(kib as f64 / 1_024.0, 1);
    let ms = |time: Duration| rounded(time.as_secs_f64() * 1_000.0, 1);
    let report = UnreadReport {
        protocol: name,
        requests,
        people,
        page_bytes,
        before_mib: mib(before),
        during_mib: mib(resident_kib(hub.pid())?),
        peak_mib: mib(peak_resident_kib(hub.pid())?),
        page_ms_before: ms(page_before),
        page_ms_during: ms(page_during),
    };
    drop(clients);
    Ok(report)
}

async fn publish_large_events(api: &Api) {
    let text = "x".repeat(EVENT_SIZE);
    let event =
        |n: usize| json!({"roomId": "large", "eventType": "bench.large", "data": {"n": n, "text": text}});
    api.publish_batch(&(0..EVENTS).map(event).collect::<Vec<_>>()).await.expect(200);
}

async fn get_page(person: &Api) -> Result<(usize, Duration)> {
    let started = Instant::now();
    let page = person.get(PATH).await;
    if page.status != 200 {
        return Err(format!("the page of the other person was answered with status {}", page.status).into());
    }
    Ok((page.bytes.len(), started.elapsed()))
}

/// Sends all requests without reading answers. Of an HTTP/2 connection it reads frames up to the first one of a stream.
async fn send_requests(
    hub: &Server,
    protocol: Protocol,
    requests: usize,
    people: usize,
) -> Result<Vec<Client>> {
    let (address, mut clients) = (hub.target().address, Vec::new());
    let bearer = |request: usize| format!("Bearer {}", tokens::token(format!("unread{}", request % people)));
    match protocol {
        Protocol::Http1 => {
            for request in 0..requests {
                let head = format!(
                    "GET {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n",
                    bearer(request)
                );
                clients.push(Client::Http1(raw::send_without_reading(address, head.as_bytes()).await));
            }
        }
        Protocol::Http2 => {
            for first in (0..requests).step_by(STREAMS_PER_CONNECTION) {
                let mut client = Http2::connect(address, 0).await;
                for request in first..(first + STREAMS_PER_CONNECTION).min(requests) {
                    client.get(PATH, &[("authorization", &bearer(request))]).await?;
                }
                client.next().await.ok_or("the hub closed a connection")?;
                clients.push(Client::Http2(client));
            }
        }
    }
    Ok(clients)
}
