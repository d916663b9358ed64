//! Checks the host that a request names.
//!
//! Every request names one host: in HTTP/1.1 by `Host`, in HTTP/2 by `:authority`. While development secrets are in use
//! the host has to be a loopback name. Otherwise a foreign site can let its own name resolve to 127.0.0.1 (DNS
//! rebinding): its pages then have the same origin as the hub, and can sign in as any person with the known secrets.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Reason};
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Version};

use crate::answer::{ApiError, invalid};
use crate::identity::MIN_SECRET_BYTES;

/// Which hosts requests may name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostPolicy {
    /// Names of settings whose secrets are weak or publicly known. If empty, requests for any host are served.
    weak_secrets: Arc<[&'static str]>,
}

impl HostPolicy {
    pub fn new(weak_secrets: &[&'static str]) -> Self {
        Self { weak_secrets: weak_secrets.into() }
    }

    fn check(&self, parts: &Parts) -> Result<(), ApiError> {
        let is_served = match authority(parts)? {
            _ if self.weak_secrets.is_empty() => true,
            Some(authority) => is_loopback(authority.host()),
            // HTTP/1.0 without a host. No browser sends such a request.
            None => true,
        };
        if is_served { Ok(()) } else { Err(self.refusal()) }
    }

    fn refusal(&self) -> ApiError {
        let settings = self.weak_secrets.join(", ");
        ApiError::new(
            Code::Common403,
            Text::owned(
                format!(
                    "개발용 비밀 값을 쓰는 동안에는 localhost, 127.0.0.1, [::1], *.localhost로 보낸 요청만 처리합니다. \
                     다른 호스트 이름으로 쓰려면 {settings}에 {MIN_SECRET_BYTES}바이트 이상의 비밀 값을 설정하세요."
                ),
                format!(
                    "With development secrets, only requests to localhost, 127.0.0.1, [::1] and *.localhost are served. \
                     To serve other host names, set {settings} to secrets of your own, of at least {MIN_SECRET_BYTES} bytes."
                ),
            ),
        )
    }
}

/// Refuses requests that do not name exactly one host, or name one that is not served.
pub async fn check_host(State(policy): State<HostPolicy>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match policy.check(&parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => {
            let mut response = refusal.into_response();
            if parts.version == Version::HTTP_11 {
                // The body of the request is not read, and further requests of this client would name the same host.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}

/// The host and port that a request names; `None` only in HTTP/1.0, which need not name any.
pub(crate) fn authority(parts: &Parts) -> Result<Option<Authority>, ApiError> {
    let target = parts.uri.authority();
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(parse_host(host).ok_or_else(|| {
            invalid_host(
                "호스트 이름과 포트여야 합니다",
                "must be a host name, with a port if it is not the default",
            )
        })?),
        (None, _) => None,
        (Some(_), Some(_)) => return Err(invalid_host("한 번만 있어야 합니다", "must appear only once")),
    };
    match (target, host) {
        (Some(target), Some(host)) if !target.as_str().eq_ignore_ascii_case(host.as_str()) => {
            Err(invalid_host("요청 대상과 같아야 합니다", "must equal the host of the request target"))
        }
        (_, Some(host)) => Ok(Some(host)),
        // HTTP/2 names the host in the request target; HTTP/1.1 requires the header even then.
        (Some(target), None) if parts.version != Version::HTTP_11 => Ok(Some(target.clone())),
        (None, None) if parts.version < Version::HTTP_11 => Ok(None),
        (_, None) => Err(invalid(HOST.as_str(), Reason::Required)),
    }
}

fn parse_host(host: &HeaderValue) -> Option<Authority> {
    // The parser would accept a user name and a password before the host.
    let host = host.to_str().ok().filter(|host| !host.contains('@'))?;
    let authority: Authority = host.parse().ok()?;
    // The parser would also accept any text after a bracket or a colon.
    let rest = host.strip_prefix(authority.host())?;
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(authority)
}

fn invalid_host(ko: &'static str, en: &'static str) -> ApiError {
    invalid(HOST.as_str(), Reason::Custom(Text::new(ko, en)))
}

/// Whether a host is a name or an address of this machine for every client, independent of DNS.
fn is_loopback(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name == "localhost"
        || name.ends_with(".localhost")
        || literal.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn only_hosts_that_always_mean_this_machine_are_loopback() {
        for name in [
            "localhost",
            "LocalHost",
            "localhost.",
            "a.localhost",
            "a.b.LOCALHOST",
            "127.0.0.1",
            "127.9.8.7",
            "[::1]",
        ] {
            assert!(is_loopback(name), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "0.0.0.0",
            "[::]",
            "10.0.0.1",
            "127.1.evil",
        ] {
            assert!(!is_loopback(name), "{name}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let ask = |version: Version, target: &str, hosts: &[&str]| {
            let request = Request::builder().version(version).uri(target);
            let request = hosts.iter().fold(request, |request, host| request.header(HOST, *host));
            let (parts, ()) = request.body(()).unwrap().into_parts();
            authority(&parts).map(|authority| authority.map(|authority| authority.to_string()))
        };
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(ask(Version::HTTP_11, "/", &["a:1"]).unwrap(), is("a:1"));
        assert_eq!(ask(Version::HTTP_11, "http://a:1/", &["A:1"]).unwrap(), is("A:1"));
        assert_eq!(ask(Version::HTTP_2, "http://a:1/", &[]).unwrap(), is("a:1"));
        assert_eq!(ask(Version::HTTP_2, "/", &["a:1"]).unwrap(), is("a:1"));
        assert_eq!(ask(Version::HTTP_10, "/", &[]).unwrap(), None);
        for (version, target, hosts) in [
            (Version::HTTP_11, "/", &[][..]),
            (Version::HTTP_11, "http://a/", &[]),
            (Version::HTTP_11, "/", &["a", "a"]),
            (Version::HTTP_11, "http://a/", &["b"]),
            (Version::HTTP_11, "/", &[""]),
            (Version::HTTP_11, "/", &["user@a"]),
            (Version::HTTP_11, "/", &["a b"]),
            (Version::HTTP_11, "/", &["[::1].evil.example"]),
            (Version::HTTP_11, "/", &["localhost:evil"]),
            (Version::HTTP_11, "/", &["localhost:99999"]),
            (Version::HTTP_2, "/", &[]),
            (Version::HTTP_2, "http://a/", &["b"]),
            (Version::HTTP_2, "http://a/", &["a", "a"]),
            (Version::HTTP_10, "/", &["a", "b"]),
        ] {
            assert_eq!(
                ask(version, target, hosts).unwrap_err().code,
                Code::Common400,
                "{version:?} {target} {hosts:?}"
            );
        }
    }
}
