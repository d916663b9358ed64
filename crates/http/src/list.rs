//! A successful response with a list that is produced in chunks, as fast as the client reads.
//!
//! Byte for byte the response equals that of [`Answer`](crate::Answer) for the whole list. While the client does not
//! read, one chunk is in memory and the next one is not produced.

use std::pin::Pin;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;

use crate::answer::{ApiError, json_headers, succeeded};

/// A chunk of a list. `R` is the result of the response with its list left empty; the fields before the list must have
/// the same values as in `R::default()`.
#[derive(Debug)]
pub enum ListChunk<I, R> {
    Items(Vec<I>),
    /// The last items, and the result with the fields after the list.
    Last(Vec<I>, R),
}

/// Builds the response from the chunks of a list, of which the last one has to be a [`ListChunk::Last`]. A single chunk
/// gives a response of known length.
pub async fn list_response<I, R>(
    field: &'static str,
    chunks: impl Stream<Item = ListChunk<I, R>> + Send + 'static,
) -> Result<Response, ApiError>
where
    I: Serialize + 'static,
    R: Serialize + Default + 'static,
{
    let serialize_error = |error| {
        tracing::error!(field, %error, "failed to serialize a list as JSON; answering COMMON500");
        ApiError::unexpected()
    };
    let (mut written, _) = split_at_list(field, &R::default()).map_err(serialize_error)?;
    let mut list = ChunkedList { field, chunks: Box::pin(chunks), has_items: false, is_ended: false };
    let first = list.chunks.next().await.ok_or_else(ApiError::unexpected)?;
    list.write(first, &mut written).map_err(serialize_error)?;
    let body = if list.is_ended {
        Body::from(written)
    } else {
        Body::from_stream(stream::iter([Ok(written)]).chain(stream::try_unfold(list, ChunkedList::next)))
    };
    Ok((json_headers(), body).into_response())
}

/// Serializes a response and splits it into the bytes before the first item of its list and those after the last one.
fn split_at_list(field: &str, result: &impl Serialize) -> Result<(Vec<u8>, Vec<u8>), serde_json::Error> {
    let mut before = serde_json::to_vec(&succeeded(result))?;
    // The message cannot contain this text, because quotation marks in the message are escaped.
    let start = format!("\"{field}\":[");
    let at = before.windows(start.len()).position(|window| window == start.as_bytes());
    let at = at.ok_or_else(|| serde::ser::Error::custom("the result has no such list"))?;
    let after = before.split_off(at + start.len());
    Ok((before, after))
}

struct ChunkedList<I, R> {
    field: &'static str,
    chunks: Pin<Box<dyn Stream<Item = ListChunk<I, R>> + Send>>,
    has_items: bool,
    is_ended: bool,
}

impl<I: Serialize, R: Serialize> ChunkedList<I, R> {
    async fn next(mut self) -> Result<Option<(Vec<u8>, Self)>, serde_json::Error> {
        let mut written = Vec::new();
        while written.is_empty() && !self.is_ended {
            let chunk = self.chunks.next().await;
            let chunk = chunk.ok_or_else(|| serde::ser::Error::custom("the last chunk is missing"))?;
            self.write(chunk, &mut written)?;
        }
        Ok((!written.is_empty()).then_some((written, self)))
    }

    fn write(&mut self, chunk: ListChunk<I, R>, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let (items, result) = match chunk {
            ListChunk::Items(items) => (items, None),
            ListChunk::Last(items, result) => (items, Some(result)),
        };
        for item in items {
            if std::mem::replace(&mut self.has_items, true) {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, &item)?;
        }
        if let Some(result) = result {
            out.extend_from_slice(&split_at_list(self.field, &result)?.1);
            self.is_ended = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;
    use crate::Answer;

    #[derive(Clone, Debug, Default, Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Listing {
        items: Vec<String>,
        last_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        trimmed: Option<bool>,
    }

    async fn bytes(response: Response) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_list_in_chunks_has_the_same_bytes_as_a_whole_list() {
        let items =
            |range: std::ops::Range<u32>| range.map(|n| format!("\"items\":[{n}]")).collect::<Vec<_>>();
        let end = Listing { last_id: "9-0".to_owned(), trimmed: Some(true), ..Listing::default() };
        for cuts in [vec![0, 0], vec![0, 1], vec![0, 3, 3, 7], vec![0, 0, 5], vec![0, 1, 2, 3, 4]] {
            let last = cuts.len() - 2;
            let chunks: Vec<ListChunk<String, Listing>> = cuts
                .windows(2)
                .enumerate()
                .map(|(at, cut)| match items(cut[0]..cut[1]) {
                    items if at == last => ListChunk::Last(items, end.clone()),
                    items => ListChunk::Items(items),
                })
                .collect();
            let is_single = chunks.len() == 1;
            let response = list_response("items", stream::iter(chunks)).await.unwrap();
            let whole = Listing { items: items(0..cuts[cuts.len() - 1]), ..end.clone() };
            let expected = Answer(whole).into_response();
            assert_eq!(response.headers(), expected.headers());
            let exact = response.body().size_hint().exact();
            assert_eq!(exact, is_single.then_some(expected.body().size_hint().exact()).flatten());
            assert_eq!(bytes(response).await, bytes(expected).await);
        }
    }

    #[tokio::test]
    async fn a_list_without_its_last_chunk_is_an_error() {
        let chunks: [ListChunk<u32, Listing>; 1] = [ListChunk::Items(vec![1])];
        let response = list_response("items", stream::iter(chunks)).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    }
}
