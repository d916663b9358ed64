//! What a caller is told when something was refused or failed: its code and its words in two languages.
//!
//! Every error of this part comes through here once, and is logged here if nobody but an operator can help.

use bongsu_http::ApiError;
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use bongsu_live::{LogError, OpenError};

use crate::publish::PublishError;
use crate::register::{MOST_MEMBERS, RegisterError, RightError};
use crate::store::StoreError;

/// Why a stream was not opened.
pub(super) fn not_opened(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson => ApiError::too_many(
            "열려 있는 연결이 너무 많습니다.",
            "You have too many streams open; close one first.",
        ),
        OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Away(outage) => unavailable(&outage.0),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "a stream could not be opened");
    let text = Text::new("지금은 실시간 연결을 할 수 없습니다.", "Live delivery is not available right now.");
    ApiError::new(Code::Sse5001, text)
}

pub(super) fn not_published(error: PublishError) -> ApiError {
    let failed = |ko, en| ApiError::of(Code::Notif5001, ko, en);
    match error {
        PublishError::TypeNotAllowed(event_type) => {
            let (ko, en) = if event_type.is_reserved() {
                ("예약된 이벤트 타입입니다", "is reserved for the hub itself")
            } else {
                (
                    "허용 목록(EVENT_TYPES)에 없는 이벤트 타입입니다",
                    "is not on the list of allowed types (EVENT_TYPES)",
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
        PublishError::NoRoom => no_room(),
        PublishError::NoRecords => ApiError::of(
            Code::Common503,
            "기록이 꺼져 있어(RECORDS=off) recipients의 알림함에 저장할 수 없습니다.",
            "recipients: inbox entries cannot be made: records are off (RECORDS=off).",
        ),
        PublishError::Store(error) => no_store(&error),
        PublishError::Log(LogError::Full) => failed(
            "저장 공간이 부족해 이벤트를 저장하지 못했습니다.",
            "The event was not stored: the disk is full.",
        ),
        PublishError::Log(LogError::TimedOut) => failed(
            "제때 저장을 확인하지 못했습니다. 같은 idempotencyKey로 다시 시도해 주세요.",
            "Storing the event was not confirmed in time; repeat it with the same idempotencyKey.",
        ),
        PublishError::Log(LogError::Failed(_)) => {
            failed("이벤트를 저장하지 못했습니다.", "The event could not be stored.")
        }
        PublishError::Log(LogError::Away(_)) => ApiError::of(
            Code::Redis5001,
            "지금은 Redis에 연결할 수 없습니다.",
            "Redis cannot be reached right now; nothing was stored.",
        ),
        PublishError::Log(LogError::Unanswered(_)) => ApiError::of(
            Code::Redis5001,
            "Redis가 제때 응답하지 않았습니다. 같은 idempotencyKey로 다시 시도해 주세요.",
            "Redis did not answer in time; repeat it with the same idempotencyKey.",
        ),
        PublishError::Log(LogError::Refused(_)) => {
            ApiError::of(Code::Redis5002, "Redis가 요청을 거부했습니다.", "Redis refused to store the event.")
        }
    }
}

/// Why missed events were not given.
pub(super) fn not_read(error: &LogError) -> ApiError {
    tracing::error!(%error, "events could not be read");
    match error {
        LogError::Away(_) | LogError::Unanswered(_) => redis_away(),
        LogError::Refused(_) => redis_refused(),
        LogError::Full | LogError::Failed(_) | LogError::TimedOut => ApiError::unexpected(),
    }
}

/// Why somebody may not read a room.
pub(super) fn not_allowed(error: RightError) -> ApiError {
    match error {
        RightError::NoRoom => no_room(),
        RightError::Stranger => {
            ApiError::forbidden("이 방의 멤버가 아닙니다.", "You are not a member of this room.")
        }
        RightError::Store(error) => no_store(&error),
    }
}

/// Why a room or a member was not registered or removed.
pub(super) fn not_registered(error: RegisterError) -> ApiError {
    match error {
        RegisterError::NoRoom => no_room(),
        RegisterError::Full => ApiError::new(
            Code::Common400,
            Text::owned(
                format!("userId: 한 방의 멤버는 {MOST_MEMBERS}명을 넘을 수 없습니다"),
                format!("userId: a room has at most {MOST_MEMBERS} members"),
            ),
        ),
        RegisterError::NoRecords => ApiError::of(
            Code::Common503,
            "기록이 꺼져 있어(RECORDS=off) 방과 멤버를 등록할 수 없습니다.",
            "Rooms and members cannot be registered: records are off (RECORDS=off).",
        ),
        RegisterError::Store(error) => no_store(&error),
        // The store has the change already.
        RegisterError::Log(LogError::Away(_) | LogError::Unanswered(_)) => ApiError::of(
            Code::Redis5001,
            "지금은 Redis에 연결할 수 없어 변경을 끝내지 못했습니다. 다시 시도해 주세요.",
            "Redis cannot be reached right now: the change is not complete; repeat it.",
        ),
        RegisterError::Log(error) => not_published(PublishError::Log(error)),
    }
}

/// Why nobody knows who is there.
pub(super) fn no_presence(error: &bongsu_presence::Error) -> ApiError {
    tracing::error!(%error, "presence could not be asked or told");
    if error.code() == Code::Redis5001 { redis_away() } else { redis_refused() }
}

fn no_room() -> ApiError {
    ApiError::of(Code::Room4041, "존재하지 않는 방입니다.", "There is no such room.")
}

fn no_store(error: &StoreError) -> ApiError {
    if error.may_pass() {
        // That the database is away is in the log already, and in health.
        tracing::debug!(%error, "the store of rooms is away");
        let text =
            Text::new("지금은 데이터베이스를 사용할 수 없습니다.", "The database cannot be used right now.");
        return ApiError::new(Code::Common503, text);
    }
    tracing::error!(%error, "the store of rooms failed");
    ApiError::unexpected()
}

fn redis_away() -> ApiError {
    let text = Text::new("지금은 Redis에 연결할 수 없습니다.", "Redis cannot be reached right now.");
    ApiError::new(Code::Redis5001, text)
}

fn redis_refused() -> ApiError {
    ApiError::of(Code::Redis5002, "Redis가 요청을 거부했습니다.", "Redis refused the command.")
}
