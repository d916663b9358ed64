//! Tests of the stream clients against scripted connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::ports::loopback;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

/// Serves one connection per script: writes the pieces of the script and closes the connection. The task returns the
/// heads of the requests.
async fn scripted(scripts: Vec<Vec<String>>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind(loopback(0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let mut heads = Vec::new();
        for script in scripts {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(socket.read_buf(&mut head).await.unwrap() > 0);
            }
            heads.push(String::from_utf8(head).unwrap());
            for piece in script {
                // The client may have disconnected.
                let _ = socket.write_all(piece.as_bytes()).await;
                tokio::task::yield_now().await;
            }
        }
        heads
    });
    (addr, serving)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[tokio::test]
async fn a_chunked_stream_is_read_to_its_proper_end() {
    let whole =
        [CHUNKED, &chunk("retry: 5\n\n:hi\n\nid: 1\nda"), &chunk("ta: {\"a\":1}\n\n"), "0\r\n\r\n"].concat();
    // One byte per write, so that the stream is split at every byte.
    let (addr, serving) = scripted(vec![whole.chars().map(String::from).collect()]).await;
    let mut stream = Request::new(addr, "/s?x=1").person(7).last_event_id("0-0").open().await.unwrap();
    assert_eq!((stream.status, stream.last_event_id()), (200, "0-0"));
    assert_eq!(stream.next(WAIT_TIMEOUT).await, Some(Item::Retry(5)));
    assert_eq!(stream.next(WAIT_TIMEOUT).await, Some(Item::Comment("hi".to_owned())));
    let event = stream.expect_event("message", WAIT_TIMEOUT).await;
    assert_eq!((event.json()["a"].as_i64(), event.own_id.as_deref()), (Some(1), Some("1")));
    assert_eq!(stream.last_event_id(), "1");
    assert_eq!(stream.next_event(WAIT_TIMEOUT).await, None);
    assert_eq!(stream.end(), Some(End::Proper));
    let heads = serving.await.unwrap();
    assert!(heads[0].starts_with("GET /s?x=1 HTTP/1.1\r\n"));
    assert!(heads[0].contains("\r\naccept: text/event-stream\r\n"));
    assert!(heads[0].contains("\r\nauthorization: Bearer ey"));
    assert!(heads[0].contains("\r\nlast-event-id: 0-0\r\n"));
}

#[tokio::test]
async fn proper_and_cut_ends_are_distinguished() {
    let cut = vec![CHUNKED.to_owned(), chunk("data: a\n\n")];
    let closed = vec![UNTIL_CLOSE.to_owned(), "data: a\n\n".to_owned()];
    let (addr, _serving) = scripted(vec![cut, closed]).await;
    for end in [End::Cut, End::Proper] {
        let mut stream = Request::new(addr, "/").open().await.unwrap();
        assert_eq!(stream.read_to_end(WAIT_TIMEOUT).await.len(), 1);
        assert_eq!(stream.end(), Some(end));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_a_stream_is_returned() {
    let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 19\r\n\r\n{\"code\":\"AUTH4001\"}".to_owned();
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n".to_owned();
    let none = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let (addr, _serving) = scripted(vec![vec![refusal], vec![page], vec![none]]).await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(Request::new(addr, "/").open().await.err().unwrap());
    }
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [401, 200, 204]);
    assert_eq!(answers[0].code(), "AUTH4001");
}

#[tokio::test]
async fn the_position_is_that_of_the_last_returned_event() {
    let events = "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\n\n".to_owned();
    let (addr, _serving) = scripted(vec![vec![UNTIL_CLOSE.to_owned(), events]]).await;
    let mut stream = Request::new(addr, "/").open().await.unwrap();
    stream.next_event(WAIT_TIMEOUT).await;
    assert_eq!(stream.last_event_id(), "1");
    stream.next_event(WAIT_TIMEOUT).await;
    assert_eq!(stream.next_event(WAIT_TIMEOUT).await, None);
    assert_eq!(stream.last_event_id(), "3");
}

#[tokio::test]
async fn a_slow_reader_receives_all_events() {
    let frame = format!("data: {}\n\n", "x".repeat(92));
    let body = frame.repeat(30);
    let (addr, _serving) = scripted(vec![vec![UNTIL_CLOSE.to_owned(), body]]).await;
    let mut stream =
        Request::new(addr, "/").receive_buffer(2048).open().await.unwrap().stop_reading().resume();
    stream.read_slowly(10_000);
    let started = Instant::now();
    let events = stream.take_events(30, WAIT_TIMEOUT).await;
    assert!(events.iter().all(|event| event.data.len() == 92));
    // The 30 frames have 3,000 bytes, which take 300 ms at this speed; bytes that arrived with the head and the last
    // step are not delayed.
    assert!(started.elapsed() > Duration::from_millis(100), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_timeout_loses_no_bytes() {
    let listener = TcpListener::bind(loopback(0)).await.unwrap();
    let request = Request::new(listener.local_addr().unwrap(), "/");
    let (stream, mut socket) = tokio::join!(request.open(), async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(UNTIL_CLOSE.as_bytes()).await.unwrap();
        socket.write_all(b"data: half").await.unwrap();
        socket
    });
    let mut stream = stream.unwrap();
    assert_eq!(stream.try_next(Duration::from_millis(20)).await, Err(TimedOut));
    socket.write_all(b" whole\n\n").await.unwrap();
    assert_eq!(stream.next_event(WAIT_TIMEOUT).await.unwrap().data, "half whole");
}

#[tokio::test]
async fn a_resuming_client_reconnects_with_its_position_until_204() {
    let stream = |text: &str| vec![UNTIL_CLOSE.to_owned(), text.to_owned()];
    let (addr, serving) = scripted(vec![
        stream("retry: 1\n\nid: 1\ndata: a\n\nid: 2\ndata: cut o"),
        vec![],
        stream("data: b\n\n"),
        stream("id: end.3502.2\nevent: system.close\ndata: {}\n\n"),
        vec!["HTTP/1.1 204 No Content\r\n\r\n".to_owned()],
    ])
    .await;
    let mut client = ResumingClient::new(Request::new(addr, "/"));
    let mut seen = Vec::new();
    while let Some(event) = client.next_event(WAIT_TIMEOUT).await {
        seen.push((event.data, event.id));
    }
    let expected = [("a", "1"), ("b", "1"), ("{}", "end.3502.2")];
    assert_eq!(seen, expected.map(|(data, id)| (data.to_owned(), id.to_owned())));
    assert_eq!((client.connections(), client.stopped_by().unwrap().status), (3, 204));
    assert_eq!(client.next_event(WAIT_TIMEOUT).await, None);
    let positions: Vec<Option<String>> = serving
        .await
        .unwrap()
        .iter()
        .map(|head| head.lines().find_map(|line| line.strip_prefix("last-event-id: ")).map(str::to_owned))
        .collect();
    assert_eq!(
        positions,
        [None, Some("1"), Some("1"), Some("1"), Some("end.3502.2")].map(|id| id.map(str::to_owned))
    );
}

#[tokio::test]
async fn a_broken_connection_resumes_after_the_last_returned_event() {
    let first = vec![UNTIL_CLOSE.to_owned(), "id: 1\ndata: a\n\nid: 2\ndata: b\n\n".to_owned()];
    let second = vec![UNTIL_CLOSE.to_owned(), "id: 2\ndata: b\n\n".to_owned()];
    let (addr, serving) = scripted(vec![first, second]).await;
    let mut client = ResumingClient::new(Request::new(addr, "/")).max_retry_delay(Duration::from_millis(1));
    assert_eq!(client.next_event(WAIT_TIMEOUT).await.unwrap().data, "a");
    client.break_connection();
    assert_eq!(client.next_event(WAIT_TIMEOUT).await.unwrap().data, "b");
    assert!(serving.await.unwrap()[1].contains("last-event-id: 1\r\n"));
}

#[tokio::test]
async fn the_retry_delay_is_that_of_the_server() {
    let stream = |text: &str| vec![UNTIL_CLOSE.to_owned(), text.to_owned()];
    let (addr, _serving) = scripted(vec![stream("retry: 70\n\ndata: a\n\n"), stream("data: b\n\n")]).await;
    let mut client = ResumingClient::new(Request::new(addr, "/"));
    assert_eq!(client.retry(), Duration::from_secs(3));
    client.next_event(WAIT_TIMEOUT).await;
    assert_eq!(client.retry(), Duration::from_millis(70));
    let ended = Instant::now();
    client.next_event(WAIT_TIMEOUT).await;
    assert!(ended.elapsed() >= Duration::from_millis(70));
    assert_eq!(client.max_retry_delay(Duration::from_millis(9)).retry(), Duration::from_millis(9));
}

#[tokio::test]
async fn a_position_is_returned_before_the_first_event() {
    let pieces = ["id: 5-", "1\nretry: 7\n", "\n", "data: {}\n\nid: 6-0\ndata: 1\n\n"].map(str::to_owned);
    let script = std::iter::once(UNTIL_CLOSE.to_owned()).chain(pieces).collect();
    let (addr, serving) = scripted(vec![script]).await;
    let mut stream = Request::new(addr, "/s").open().await.unwrap();
    assert_eq!(stream.position(WAIT_TIMEOUT).await, "5-1");
    let found = stream.find_event("the second event", WAIT_TIMEOUT, |event| event.data == "1").await;
    assert_eq!(found.own_id.as_deref(), Some("6-0"));
    serving.await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "waited for an event that is never sent, but the stream ended")]
async fn a_missing_event_is_named_in_the_panic() {
    let (addr, _serving) = scripted(vec![vec![format!("{UNTIL_CLOSE}data: 1\n\n")]]).await;
    let mut stream = Request::new(addr, "/s").open().await.unwrap();
    stream.find_event("an event that is never sent", WAIT_TIMEOUT, |_| false).await;
}
