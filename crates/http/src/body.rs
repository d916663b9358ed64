//! Request bodies: read whole, within a size and a time limit, and checked to be UTF-8.

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
pub struct SmallBody(pub BodyText);

/// A body of at most 4 MiB, for batch routes.
#[derive(Debug)]
pub struct BulkBody(pub BodyText);

/// Maximum bytes of a [`SmallBody`], and of the data of one event.
pub const MAX_SMALL_BODY_SIZE: usize = 64 << 10;
const MAX_BULK_BODY_SIZE: usize = 4 << 20;

/// The time in which the whole body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// A body that is known to be UTF-8.
#[derive(Debug)]
pub struct BodyText(Bytes);

impl BodyText {
    pub fn fields(&self) -> Result<Fields<'_>, ApiError> {
        Ok(Fields::parse_body(str::from_utf8(&self.0).unwrap_or_default())?)
    }

    pub fn read<R: request::RequestShape>(&self) -> Result<R, ApiError> {
        R::read(&self.fields()?)
    }
}

impl<S: Sync> FromRequest<S> for SmallBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        read(request, MAX_SMALL_BODY_SIZE).await.map(Self)
    }
}

impl<S: Sync> FromRequest<S> for BulkBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        read(request, MAX_BULK_BODY_SIZE).await.map(Self)
    }
}

async fn read(request: Request, limit: usize) -> Result<BodyText, ApiError> {
    let content_length =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if content_length.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(request.into_body(), limit).collect());
    let bytes = match collected.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(ApiError::too_large(limit)),
        Ok(Err(_)) => {
            let text = Text::new("본문을 끝까지 읽을 수 없습니다", "could not be read completely");
            return Err(invalid("body", Reason::Custom(text)));
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
    Ok(BodyText(bytes))
}
