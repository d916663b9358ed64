//! Error codes of the API, and the reasons why a field of a request is invalid.
//!
//! Every error that an API request causes is mapped to a [`Code`], which has an HTTP status and says whether a retry
//! can succeed. Released codes never change; the message texts may.

use crate::text::Text;

/// The reason why an engine cannot be used at the moment. The same call may succeed later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Outage(pub String);

/// Declares the codes, each with its text form and its HTTP status.
macro_rules! codes {
    ($($code:ident = $text:literal, $status:literal;)*) => {
        /// The error codes of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($code),*
        }

        impl Code {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text),*
                }
            }

            pub fn status(self) -> u16 {
                match self {
                    $(Self::$code => $status),*
                }
            }
        }
    };
}

codes! {
    Common400 = "COMMON400", 400;
    Auth4001 = "AUTH4001", 401;
    Common403 = "COMMON403", 403;
    Common404 = "COMMON404", 404;
    Common405 = "COMMON405", 405;
    Common408 = "COMMON408", 408;
    Common409 = "COMMON409", 409;
    Common413 = "COMMON413", 413;
    Common426 = "COMMON426", 426;
    Common429 = "COMMON429", 429;
    Common500 = "COMMON500", 500;
    Common503 = "COMMON503", 503;
    Room4041 = "ROOM4041", 404;
    Notif4001 = "NOTIF4001", 400;
    Notif4091 = "NOTIF4091", 409;
    Notif5001 = "NOTIF5001", 500;
    Redis5001 = "REDIS5001", 503;
    Redis5002 = "REDIS5002", 500;
    Sse5001 = "SSE5001", 503;
}

impl Code {
    /// Whether the same request may succeed a little later. Such an error must not be sent to a browser's EventSource
    /// as an HTTP status, because EventSource stops reconnecting after an error status.
    pub fn is_transient(self) -> bool {
        matches!(self.status(), 429 | 503)
    }
}

/// A field of a request whose value is invalid. `field` is the name as the caller wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {}", reason.text().en)]
pub struct InvalidField {
    pub field: String,
    pub reason: Reason,
}

impl InvalidField {
    pub fn new(field: impl Into<String>, reason: Reason) -> Self {
        Self { field: field.into(), reason }
    }

    pub fn text(&self) -> Text {
        let Text { ko, en } = self.reason.text();
        Text::owned(format!("{}: {ko}", self.field), format!("{}: {en}", self.field))
    }
}

/// Why a value is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    Required,
    Empty,
    TooLong(usize),
    TooMany(usize),
    TooManyBytes(usize),
    IdForm,
    IdCharacters,
    EventTypeForm,
    NotificationType,
    Position,
    CompositePosition,
    NotText,
    ControlCharacters,
    NotAnObject,
    NotAList,
    NotABoolean,
    OneOf(&'static [&'static str]),
    TooDeep(usize),
    Escape,
    Integer {
        min: u64,
        max: u64,
    },
    Json(String),
    Utf8,
    /// A reason whose text the caller provides.
    Custom(Text),
}

impl Reason {
    pub fn text(&self) -> Text {
        match self {
            Self::Required => Text::new("필수 값입니다", "required"),
            Self::Empty => Text::new("비어 있을 수 없습니다", "must not be empty"),
            Self::TooLong(max) => {
                Text::owned(format!("{max}자를 넘을 수 없습니다"), format!("at most {max} characters"))
            }
            Self::TooMany(max) => {
                Text::owned(format!("{max}개를 넘을 수 없습니다"), format!("at most {max} items"))
            }
            Self::TooManyBytes(max) => {
                let kib = max >> 10;
                Text::owned(format!("{kib} KiB를 넘을 수 없습니다"), format!("at most {kib} KiB"))
            }
            Self::IdForm => Text::new(
                "ID는 문자열이거나 ±(2^53−1) 범위의 정수여야 합니다",
                "must be text, or an integer within ±(2^53−1)",
            ),
            Self::IdCharacters => Text::new(
                "ID에는 A-Z a-z 0-9 . _ @ : - 만 쓸 수 있습니다",
                "must have only the characters A-Z a-z 0-9 . _ @ : -",
            ),
            Self::EventTypeForm => Text::new(
                "점으로 나뉜 소문자 이름이어야 합니다 (예: comment.created)",
                "must be a dotted lower-case name such as comment.created",
            ),
            Self::NotificationType => Text::new(
                "대문자 이름이어야 합니다 (예: POST_LIKE)",
                "must be a name in capitals such as POST_LIKE",
            ),
            Self::Position => Text::new(
                "스트림 ID가 아닙니다 (예: 1708070400000-0)",
                "must be a stream id such as 1708070400000-0",
            ),
            Self::CompositePosition => Text::new(
                "이 스트림이 보낸 id(m2!...) 또는 0-0이어야 합니다",
                "must be an id that this stream sent (m2!...), or 0-0",
            ),
            Self::NotText => Text::new("문자열이어야 합니다", "must be text"),
            Self::ControlCharacters => {
                Text::new("제어 문자를 쓸 수 없습니다", "must not have control characters")
            }
            Self::NotAnObject => Text::new("객체여야 합니다", "must be an object"),
            Self::NotAList => Text::new("배열이어야 합니다", "must be a list"),
            Self::NotABoolean => Text::new("true 또는 false여야 합니다", "must be true or false"),
            Self::OneOf(known) => {
                let known = known.join(", ");
                Text::owned(format!("다음 중 하나여야 합니다: {known}"), format!("must be one of {known}"))
            }
            Self::TooDeep(max) => Text::owned(
                format!("{max}단계보다 깊을 수 없습니다"),
                format!("must not be nested deeper than {max} levels"),
            ),
            Self::Escape => Text::new(
                "짝이 없는 유니코드 대리 문자가 있습니다",
                "must not have an unpaired Unicode surrogate",
            ),
            Self::Integer { min, max } => Text::owned(
                format!("{min}에서 {max} 사이의 정수여야 합니다"),
                format!("must be a whole number from {min} to {max}"),
            ),
            Self::Json(detail) => Text::owned(
                format!("JSON을 읽을 수 없습니다: {detail}"),
                format!("must be valid JSON: {detail}"),
            ),
            Self::Utf8 => Text::new("UTF-8이 아닙니다", "must be UTF-8"),
            Self::Custom(text) => text.clone(),
        }
    }
}
