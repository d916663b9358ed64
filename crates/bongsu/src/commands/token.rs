//! `bongsu token`: signs a person's token with the shared secret, for development and for scripts.

use bongsu_http::identity::{Claims, JWKS_URL, JWT_SECRET, mint};
use bongsu_kernel::settings::{Bad, Values};
use bongsu_kernel::{Clock, Id};
use clap::{ArgMatches, Command};

use super::{given, option, say};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("token")
        .about("Sign a person's token with JWT_SECRET")
        .arg(option("user", "The person's id").short('u').required(true))
        .arg(
            option("ttl", "How long it is valid, in seconds")
                .default_value("86400")
                .allow_hyphen_values(true),
        )
        .arg(option("role", "A role, such as admin"))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let (user, ttl) = (given(matches, "user").unwrap_or_default(), given(matches, "ttl").unwrap_or_default());
    let ttl = ttl.parse().ok().filter(|ttl| (1..=31_536_000).contains(ttl)).ok_or_else(|| {
        Bad(format!("--ttl {ttl:?} is not allowed: a whole number of seconds from 1 to 31536000"))
    })?;
    say(&sign(values, user, ttl, given(matches, "role").map(str::to_owned))?);
    Ok(())
}

/// A token for a person.
pub(crate) fn sign(values: &Values, user: &str, ttl: u64, role: Option<String>) -> Result<String, Failure> {
    if values.given(&JWKS_URL).is_some() {
        return Err(Bad(
            "JWKS_URL is set: tokens are signed elsewhere, with a key that is not here".to_owned()
        )
        .into());
    }
    let sub = Id::new(user)
        .map_err(|reason| Bad(format!("--user {user:?} is not allowed: {}", reason.text().en)))?;
    let iat = Clock::system().now() / 1_000;
    let claims = Claims { sub, iat, exp: iat + ttl, nbf: None, token_type: Some("access".to_owned()), role };
    mint(&claims, values.text(&JWT_SECRET)).map_err(Failure::other)
}
