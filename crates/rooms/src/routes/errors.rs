//! Maps the errors of rooms to API errors: a code, and a text in Korean and English.
//!
//! Every error of this part is mapped here once. Failures whose reason the answer
//! does not contain are logged here.

use bongsu_http::ApiError;
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use bongsu_live::{LogError, OpenError};

use crate::publish::PublishError;
use crate::registration::{AccessError, MAX_MEMBERS, RegisterError};
use crate::store::StoreError;

/// The error of a stream that was not opened.
pub(super) fn open_error(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson => ApiError::too_many(
            "열려 있는 연결이 너무 많습니다.",
            "You have too many open streams; close one first.",
        ),
        OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Unavailable(outage) => unavailable(&outage.0),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "failed to open a stream; answering SSE5001");
    let text = Text::new("지금은 실시간 연결을 할 수 없습니다.", "Live delivery is not available right now.");
    ApiError::new(Code::Sse5001, text)
}

pub(super) fn publish_error(error: PublishError) -> ApiError {
    let failed = |ko, en| ApiError::of(Code::Notif5001, ko, en);
    if let PublishError::Log(error @ (LogError::Failed(_) | LogError::Refused(_))) = &error {
        // The answer does not contain the reason.
        tracing::error!(%error, "failed to store an event or a control record; refusing the request");
    }
    match error {
        PublishError::TypeNotAllowed(event_type) => {
            let (ko, en) = if event_type.is_reserved() {
                ("예약된 이벤트 타입입니다", "is reserved for the hub")
            } else {
                (
                    "허용 목록(EVENT_TYPES)에 없는 이벤트 타입입니다",
                    "is not one of the allowed event types (EVENT_TYPES)",
                )
            };
            let text = Text::owned(
                format!("eventType: {event_type}: {ko}"),
                format!("eventType: {event_type} {en}"),
            );
            ApiError::new(Code::Notif4001, text)
        }
        PublishError::Conflict => ApiError::of(
            Code::Notif4091,
            "idempotencyKey: 같은 키가 다른 내용으로 이미 사용되었습니다",
            "idempotencyKey: this key was used for other content",
        ),
        PublishError::NoRoom => room_not_found(),
        PublishError::NoRecords => ApiError::of(
            Code::Common503,
            "기록이 꺼져 있어(RECORDS=off) recipients의 알림함에 저장할 수 없습니다.",
            "recipients: inbox entries cannot be stored, because records are off (RECORDS=off).",
        ),
        PublishError::Store(error) => store_error(&error),
        PublishError::Log(LogError::Full) => failed(
            "저장 공간이 부족해 이벤트를 저장하지 못했습니다.",
            "The event was not stored: the disk is full.",
        ),
        PublishError::Log(LogError::TimedOut) => failed(
            "제때 저장을 확인하지 못했습니다. 같은 idempotencyKey로 다시 시도해 주세요.",
            "The event was not confirmed in time; repeat the request with the same idempotencyKey.",
        ),
        PublishError::Log(LogError::Failed(_)) => {
            failed("이벤트를 저장하지 못했습니다.", "The event was not stored because of an internal error.")
        }
        PublishError::Log(LogError::Unavailable(_)) => ApiError::of(
            Code::Redis5001,
            "지금은 Redis에 연결할 수 없습니다.",
            "Redis is not available right now; the event was not stored.",
        ),
        PublishError::Log(LogError::Unanswered(_)) => ApiError::of(
            Code::Redis5001,
            "Redis가 제때 응답하지 않았습니다. 같은 idempotencyKey로 다시 시도해 주세요.",
            "Redis did not answer in time; repeat the request with the same idempotencyKey.",
        ),
        PublishError::Log(LogError::Refused(_)) => {
            ApiError::of(Code::Redis5002, "Redis가 요청을 거부했습니다.", "Redis refused to store the event.")
        }
    }
}

/// The error of a failed read of missed events.
pub(super) fn read_error(error: &LogError) -> ApiError {
    tracing::error!(%error, "failed to read the events of a room; refusing the request");
    match error {
        LogError::Unavailable(_) | LogError::Unanswered(_) => ApiError::redis_unavailable(),
        LogError::Refused(_) => ApiError::redis_refused(),
        LogError::Full | LogError::Failed(_) | LogError::TimedOut => ApiError::unexpected(),
    }
}

/// The error of a person who may not read a room.
pub(super) fn access_error(error: AccessError) -> ApiError {
    match error {
        AccessError::NoRoom => room_not_found(),
        AccessError::NotMember => {
            ApiError::forbidden("이 방의 멤버가 아닙니다.", "You are not a member of this room.")
        }
        AccessError::Store(error) => store_error(&error),
    }
}

/// The error of a failed registration or removal of a room or a member.
pub(super) fn registration_error(error: RegisterError) -> ApiError {
    match error {
        RegisterError::NoRoom => room_not_found(),
        RegisterError::Full => ApiError::new(
            Code::Common400,
            Text::owned(
                format!("userId: 한 방의 멤버는 {MAX_MEMBERS}명을 넘을 수 없습니다"),
                format!("userId: a room may have at most {MAX_MEMBERS} members"),
            ),
        ),
        RegisterError::NoRecords => ApiError::of(
            Code::Common503,
            "기록이 꺼져 있어(RECORDS=off) 방과 멤버를 등록할 수 없습니다.",
            "Rooms and members cannot be registered, because records are off (RECORDS=off).",
        ),
        RegisterError::Store(error) => store_error(&error),
        // The change is in the records already, but possibly not in the log.
        RegisterError::Log(LogError::Unavailable(_) | LogError::Unanswered(_)) => ApiError::of(
            Code::Redis5001,
            "지금은 Redis에 연결할 수 없어 변경을 끝내지 못했습니다. 다시 시도해 주세요.",
            "Redis is not available right now, so the change is incomplete; repeat the request.",
        ),
        RegisterError::Log(error) => publish_error(PublishError::Log(error)),
    }
}

/// The error of a presence request that failed.
pub(super) fn presence_error(error: &bongsu_presence::Error) -> ApiError {
    tracing::error!(%error, "failed to read or update the presence of a room; refusing the request");
    if error.code() == Code::Redis5001 { ApiError::redis_unavailable() } else { ApiError::redis_refused() }
}

fn room_not_found() -> ApiError {
    ApiError::of(Code::Room4041, "존재하지 않는 방입니다.", "The room does not exist.")
}

fn store_error(error: &StoreError) -> ApiError {
    if error.is_transient() {
        // The SQL engine logs an outage of the database once, and `/health` shows it.
        tracing::debug!(%error, "the database of rooms is unavailable; answering COMMON503");
        return ApiError::database_unavailable();
    }
    tracing::error!(%error, "failed to run a query of rooms; answering COMMON500");
    ApiError::unexpected()
}
