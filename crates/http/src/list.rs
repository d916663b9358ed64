//! A successful answer with a list that is produced in parts, as the client reads them.
//!
//! On the wire it is what [`Answer`](crate::Answer) would have sent of the whole, byte for byte. While the client does not
//! read, one part is in memory and whatever produces the next one is not asked for it.

use std::pin::Pin;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;

use crate::answer::{ApiError, json_headers, succeeded};

/// What a list is produced in. `R` is the result of the answer with its list left empty: what stands before the list must be
/// the same in its default.
#[derive(Debug)]
pub enum Part<I, R> {
    Items(Vec<I>),
    /// The last items, and what is known only after them.
    Last(Vec<I>, R),
}

/// Answers with the parts of a list, the last of which comes last. One part alone is an answer of known length.
pub async fn listed<I, R>(
    field: &'static str,
    parts: impl Stream<Item = Part<I, R>> + Send + 'static,
) -> Result<Response, ApiError>
where
    I: Serialize + 'static,
    R: Serialize + Default + 'static,
{
    let unwritable = |error| {
        tracing::error!(%error, "an answer could not be written as JSON");
        ApiError::unexpected()
    };
    let (mut written, _) = around_list(field, &R::default()).map_err(unwritable)?;
    let mut list = List { field, parts: Box::pin(parts), has_items: false, is_ended: false };
    let first = list.parts.next().await.ok_or_else(ApiError::unexpected)?;
    list.write(first, &mut written).map_err(unwritable)?;
    let body = if list.is_ended {
        Body::from(written)
    } else {
        Body::from_stream(stream::iter([Ok(written)]).chain(stream::try_unfold(list, List::next)))
    };
    Ok((json_headers(), body).into_response())
}

/// What stands before the first item of a list, and after the last one.
fn around_list(field: &str, result: &impl Serialize) -> Result<(Vec<u8>, Vec<u8>), serde_json::Error> {
    let mut before = serde_json::to_vec(&succeeded(result))?;
    // In the message a quotation mark would be escaped, so this is the field itself.
    let start = format!("\"{field}\":[");
    let at = before.windows(start.len()).position(|window| window == start.as_bytes());
    let at = at.ok_or_else(|| serde::ser::Error::custom("the result has no such list"))?;
    let after = before.split_off(at + start.len());
    Ok((before, after))
}

struct List<I, R> {
    field: &'static str,
    parts: Pin<Box<dyn Stream<Item = Part<I, R>> + Send>>,
    has_items: bool,
    is_ended: bool,
}

impl<I: Serialize, R: Serialize> List<I, R> {
    async fn next(mut self) -> Result<Option<(Vec<u8>, Self)>, serde_json::Error> {
        let mut written = Vec::new();
        while written.is_empty() && !self.is_ended {
            let part = self.parts.next().await;
            self.write(
                part.ok_or_else(|| serde::ser::Error::custom("the last part is missing"))?,
                &mut written,
            )?;
        }
        Ok((!written.is_empty()).then_some((written, self)))
    }

    fn write(&mut self, part: Part<I, R>, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let (items, result) = match part {
            Part::Items(items) => (items, None),
            Part::Last(items, result) => (items, Some(result)),
        };
        for item in items {
            if std::mem::replace(&mut self.has_items, true) {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, &item)?;
        }
        if let Some(result) = result {
            out.extend_from_slice(&around_list(self.field, &result)?.1);
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
    async fn a_list_in_parts_is_the_same_bytes_as_the_whole() {
        let items =
            |range: std::ops::Range<u32>| range.map(|n| format!("\"items\":[{n}]")).collect::<Vec<_>>();
        let end = Listing { last_id: "9-0".to_owned(), trimmed: Some(true), ..Listing::default() };
        for cuts in [vec![0, 0], vec![0, 1], vec![0, 3, 3, 7], vec![0, 0, 5], vec![0, 1, 2, 3, 4]] {
            let last = cuts.len() - 2;
            let parts: Vec<Part<String, Listing>> = cuts
                .windows(2)
                .enumerate()
                .map(|(at, cut)| match items(cut[0]..cut[1]) {
                    items if at == last => Part::Last(items, end.clone()),
                    items => Part::Items(items),
                })
                .collect();
            let is_one = parts.len() == 1;
            let response = listed("items", stream::iter(parts)).await.unwrap();
            let whole = Listing { items: items(0..cuts[cuts.len() - 1]), ..end.clone() };
            let expected = Answer(whole).into_response();
            assert_eq!(response.headers(), expected.headers());
            let exact = response.body().size_hint().exact();
            assert_eq!(exact, is_one.then_some(expected.body().size_hint().exact()).flatten());
            assert_eq!(bytes(response).await, bytes(expected).await);
        }
    }

    #[tokio::test]
    async fn a_list_without_its_last_part_is_an_error_and_not_a_short_list() {
        let parts: [Part<u32, Listing>; 1] = [Part::Items(vec![1])];
        let response = listed("items", stream::iter(parts)).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    }
}
