//! `bongsu token`: signs a person's token with the shared secret, for development and for scripts.

use bongsu_http::identity::{Claims, JWKS_URL, JWT_SECRET, mint};
use bongsu_kernel::settings::{Bad, Values};
use bongsu_kernel::{Clock, Id};
use clap::{Arg, ArgMatches, Command};

use super::say;
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("token")
        .about("Sign a person's token with JWT_SECRET")
        .arg(Arg::new("user").long("user").short('u').required(true).help("The person's id"))
        .arg(
            Arg::new("ttl")
                .long("ttl")
                .default_value("86400")
                .allow_hyphen_values(true)
                .help("How long it is valid, in seconds"),
        )
        .arg(Arg::new("role").long("role").help("A role, such as admin"))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let user = matches.get_one::<String>("user").map_or("", String::as_str);
    let ttl = matches.get_one::<String>("ttl").map_or("", String::as_str);
    let ttl = ttl.parse().ok().filter(|ttl| (1..=31_536_000).contains(ttl)).ok_or_else(|| {
        Bad(format!("--ttl {ttl:?} is not allowed: a whole number of seconds from 1 to 31536000"))
    })?;
    say(&sign(values, user, ttl, matches.get_one::<String>("role").cloned())?);
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
