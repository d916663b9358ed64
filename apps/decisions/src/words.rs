//! The words that a few things are told apart by, the same in requests, answers and records.

use bongsu_sql::Error;
use serde::{Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($variant,)*
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        // By hand: what a derive reads in attributes, a macro cannot fill in.
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Self::WORDS.iter().copied())).into()
            }
        }

        impl ToSchema for $name {}

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            pub fn named(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// What a proposal is about. Comments belong to criteria.
    ProposalType {
        Assumption = "assumption",
        Criteria = "criteria",
        Conclusion = "conclusion",
    }
}

words! {
    /// What became of a proposal.
    Status {
        Pending = "PENDING",
        Approved = "APPROVED",
        Rejected = "REJECTED",
    }
}

words! {
    /// Whether somebody takes part. Only those who are accepted do.
    Membership {
        Pending = "PENDING",
        Accepted = "ACCEPTED",
        Rejected = "REJECTED",
    }
}

/// What one of our own records says.
pub(crate) fn kept<T>(word: &str, named: fn(&str) -> Option<T>) -> Result<T, Error> {
    named(word).ok_or_else(|| Error::Failed(format!("a record says {word:?}")))
}
