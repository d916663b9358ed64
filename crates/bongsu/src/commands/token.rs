//! `bongsu token`: signs a token of a person with JWT_SECRET, for development and scripts.

use bongsu_http::identity::{Claims, JWKS_URL, JWT_SECRET, mint};
use bongsu_kernel::settings::{SettingError, Values};
use bongsu_kernel::{Clock, Id};
use clap::{ArgMatches, Command};

use super::{given, option, print_line};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    let ttl = option("ttl", "How long the token is valid, in seconds");
    Command::new("token")
        .about("Sign a person's token with JWT_SECRET")
        .arg(option("user", "The person's id").short('u').required(true))
        .arg(ttl.default_value("86400").allow_hyphen_values(true))
        .arg(option("role", "A role, such as admin"))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let (user, ttl) = (given(matches, "user").unwrap_or_default(), given(matches, "ttl").unwrap_or_default());
    let ttl = ttl.parse().ok().filter(|ttl| (1..=31_536_000).contains(ttl)).ok_or_else(|| {
        SettingError(format!("--ttl {ttl:?} is not allowed: a whole number of seconds from 1 to 31536000"))
    })?;
    print_line(&sign(values, user, ttl, given(matches, "role").map(str::to_owned))?);
    Ok(())
}

/// Signs a token of a person that is valid for `ttl` seconds.
pub(crate) fn sign(values: &Values, user: &str, ttl: u64, role: Option<String>) -> Result<String, Failure> {
    if values.get(&JWKS_URL).is_some() {
        let text =
            "JWKS_URL is set: the hub accepts only tokens that are signed with the keys published there";
        return Err(SettingError(text.to_owned()).into());
    }
    let sub = Id::new(user)
        .map_err(|reason| SettingError(format!("--user {user:?} is not allowed: {}", reason.text().en)))?;
    let iat = Clock::system().now() / 1_000;
    let claims = Claims { sub, iat, exp: iat + ttl, nbf: None, token_type: Some("access".to_owned()), role };
    mint(&claims, values.text(&JWT_SECRET)).map_err(Failure::other)
}
