//! The words that a few things are told apart by, the same in requests, answers and records.

use bongsu_sql::Error;
use serde::Serialize;
use utoipa::ToSchema;

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
        pub enum $name {
            $(#[serde(rename = $word)] $variant,)*
        }

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

            /// What a record says.
            pub(crate) fn kept(word: &str) -> Result<Self, Error> {
                Self::named(word).ok_or_else(|| Error::Failed(format!("a record says {word:?}")))
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
