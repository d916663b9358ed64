//! Request bodies: bounded in size and in time, and text before anything reads them.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Reason};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::answer::{ApiError, invalid};
use crate::fields::Fields;
use crate::request;

/// A body of at most 64 KiB.
#[derive(Debug)]
pub struct Small(pub Utf8);

/// A body of at most 4 MiB, for batch routes.
#[derive(Debug)]
pub struct Bulk(pub Utf8);

/// Bytes of a body where nothing else is said, and of one event.
pub const SMALL_BODY: usize = 64 << 10;
const BULK_BODY: usize = 4 << 20;

/// A whole body must have arrived by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that are known to be text.
#[derive(Debug)]
pub struct Utf8(Bytes);

impl Utf8 {
    pub fn fields(&self) -> Result<Fields<'_>, ApiError> {
        Ok(Fields::of_body(str::from_utf8(&self.0).unwrap_or_default())?)
    }

    pub fn read<R: request::Request>(&self) -> Result<R, ApiError> {
        R::read(&self.fields()?)
    }
}

impl<S: Sync> FromRequest<S> for Small {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        read(request, SMALL_BODY).await.map(Self)
    }
}

impl<S: Sync> FromRequest<S> for Bulk {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        read(request, BULK_BODY).await.map(Self)
    }
}

async fn read(request: Request, limit: usize) -> Result<Utf8, ApiError> {
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    let collected = tokio::time::timeout(PATIENCE, Limited::new(request.into_body(), limit).collect());
    let bytes = match collected.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(ApiError::too_large(limit)),
        Ok(Err(_)) => {
            let text = Text::new("본문을 끝까지 읽을 수 없습니다", "could not be read to its end");
            return Err(invalid("body", Reason::Given(text)));
        }
        Err(_) => {
            let text =
                Text::new("요청 본문이 너무 느리게 도착합니다.", "The request body arrives too slowly.");
            return Err(ApiError::new(Code::Common408, text));
        }
    };
    if str::from_utf8(&bytes).is_err() {
        return Err(invalid("body", Reason::Utf8));
    }
    Ok(Utf8(bytes))
}
