//! Enums that are written as text, with the same values in requests, answers and records.

use bongsu_sql::Error;
use serde::{Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! text_enum {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident = $value:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($variant,)*
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        // Not derived, because a macro cannot fill in the attributes that the derive reads.
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Self::VALUES.iter().copied())).into()
            }
        }

        impl ToSchema for $name {}

        impl $name {
            pub const VALUES: &'static [&'static str] = &[$($value),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)*
                }
            }

            pub fn parse(value: &str) -> Option<Self> {
                match value {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

text_enum! {
    /// The type of a proposal. Only criteria take comments.
    ProposalType {
        Assumption = "assumption",
        Criteria = "criteria",
        Conclusion = "conclusion",
    }
}

text_enum! {
    /// The status of a proposal.
    Status {
        Pending = "PENDING",
        Approved = "APPROVED",
        Rejected = "REJECTED",
    }
}

text_enum! {
    /// The status of a membership. Only accepted members may read and change an event.
    Membership {
        Pending = "PENDING",
        Accepted = "ACCEPTED",
        Rejected = "REJECTED",
    }
}

/// Parses a value that this application has stored.
pub(crate) fn parse_stored<T>(value: &str, parse: fn(&str) -> Option<T>) -> Result<T, Error> {
    parse(value).ok_or_else(|| Error::Failed(format!("a stored row has the unknown value {value:?}")))
}
