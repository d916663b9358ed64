//! Serves pages on a separate origin, for cross-origin browser tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::local_http::{LocalHttp, Reply};

/// Serves given pages on a free loopback port until it is dropped.
pub struct Fixture {
    server: LocalHttp,
}

impl Fixture {
    /// Serves one HTML page at every path.
    pub async fn page(html: impl Into<String>) -> Self {
        let html = html.into();
        let server =
            LocalHttp::start(move |_| Reply::new(200, "text/html; charset=utf-8", html.clone())).await;
        Self { server }
    }

    /// Serves several pages, given as (path, content type, content). Other paths are answered 404.
    pub async fn pages(pages: impl IntoIterator<Item = (&str, &str, &str)>) -> Self {
        let pages: BTreeMap<String, (String, String)> = pages
            .into_iter()
            .map(|(path, content_type, content)| {
                (path.to_owned(), (content_type.to_owned(), content.to_owned()))
            })
            .collect();
        let server = LocalHttp::start(move |target| {
            let path = target.split('?').next().unwrap_or_default();
            match pages.get(path) {
                Some((content_type, content)) => Reply::new(200, content_type, content.clone()),
                None => Reply::new(404, "text/plain", "no such page"),
            }
        })
        .await;
        Self { server }
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// `http://127.0.0.1:port`: another origin than the hub's, but the same site, so the browser sends cookies.
    pub fn origin(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// `http://localhost:port`: another origin and another site than those of the hub.
    pub fn other_site(&self) -> String {
        format!("http://localhost:{}", self.addr().port())
    }

    /// The URL of a page on [`Fixture::origin`].
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin())
    }
}
