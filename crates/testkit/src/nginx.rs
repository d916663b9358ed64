//! A real nginx in front of hubs: with the configuration file that the project ships (`deploy/nginx.conf`), or with a
//! plain one that balances round-robin between several hubs and skips unreachable ones.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::ports::{Port, loopback};
use crate::{child_process, tier, wait};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running nginx. It ends when this value is dropped or the test process ends.
pub struct Nginx {
    port: Port,
    child: Child,
    // Last field, so that the process ends before its folder is removed.
    folder: TempDir,
}

impl Nginx {
    /// Starts an nginx that balances between these addresses, and waits until it accepts connections.
    pub async fn start(hubs: &[SocketAddr]) -> Self {
        Self::run(|port, _| plain_site(port, hubs)).await
    }

    /// Starts an nginx in front of a hub with the shipped configuration: HTTPS with HTTP/2 and a self-signed
    /// certificate.
    pub async fn shipped(hub: SocketAddr) -> Self {
        Self::run(|port, folder| {
            make_certificate(folder);
            shipped_site(&format!("listen 127.0.0.1:{port} ssl http2;"), hub, folder)
        })
        .await
    }

    /// As [`Nginx::shipped`] but without TLS, for clients that verify certificates.
    pub async fn shipped_without_tls(hub: SocketAddr) -> Self {
        Self::run(|port, folder| {
            make_certificate(folder);
            shipped_site(&format!("listen 127.0.0.1:{port};"), hub, folder)
        })
        .await
    }

    async fn run(site: impl FnOnce(u16, &Path) -> String) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("bongsu-nginx-")
            .tempdir()
            .expect("cannot create a temporary folder");
        let (port, file) = (Port::pick(), folder.path().join("nginx.conf"));
        let site = site(port.number(), folder.path());
        std::fs::write(&file, config(folder.path(), &site)).expect("cannot write nginx.conf");
        let program = tier::program("nginx");
        let log = log_file(&folder);
        let arguments = [Path::new("-e"), &log, Path::new("-p"), folder.path(), Path::new("-c"), &file];
        let child = child_process::start(&program, &arguments, &log);
        let nginx = Self { port, child, folder };
        let accepts =
            wait::holds_within(START_TIMEOUT, async || TcpStream::connect(nginx.addr()).await.is_ok());
        assert!(accepts.await, "nginx does not accept:\n{}", nginx.log());
        nginx
    }

    pub fn addr(&self) -> SocketAddr {
        loopback(self.port.number())
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The error log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(log_file(&self.folder)).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_file(folder: &TempDir) -> PathBuf {
    folder.path().join("nginx.log")
}

/// The configuration around a site. nginx runs as a single process, so that killing it leaves no worker behind.
fn config(folder: &Path, site: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid \"{folder}/pid\";
        worker_rlimit_nofile 16384;
        events {{ worker_connections 8192; }}
        http {{
            client_body_temp_path \"{folder}/body\"; proxy_temp_path \"{folder}/proxy\";
            fastcgi_temp_path \"{folder}/fastcgi\"; uwsgi_temp_path \"{folder}/uwsgi\";
            scgi_temp_path \"{folder}/scgi\";
            {site}
        }}\n"
    )
}

fn plain_site(port: u16, hubs: &[SocketAddr]) -> String {
    let servers: String = hubs.iter().map(|hub| format!("server {hub} max_fails=0; ")).collect();
    format!(
        "access_log off;
        upstream hubs {{ {servers}}}
        server {{
            listen 127.0.0.1:{port} backlog=4096;
            location / {{
                proxy_pass http://hubs;
                proxy_http_version 1.1;
                proxy_set_header Connection \"\";
                proxy_set_header Host $host;
                proxy_buffering off;
                proxy_read_timeout 1h;
                proxy_connect_timeout 2s;
                proxy_next_upstream error timeout http_503;
            }}
        }}"
    )
}

/// The shipped file with the example addresses and paths replaced by those of this test.
fn shipped_site(listen: &str, hub: SocketAddr, folder: &Path) -> String {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nginx.conf");
    let shipped = std::fs::read_to_string(shipped).expect("cannot read deploy/nginx.conf");
    let replacements = [
        ("listen 443 ssl http2;", listen.to_owned()),
        ("server 127.0.0.1:8083 ", format!("server {hub} ")),
        ("/etc/ssl/certs/hub.example.com.pem", certificate(folder).display().to_string()),
        ("/etc/ssl/private/hub.example.com.key", certificate_key(folder).display().to_string()),
        ("/var/log/nginx/bongsu.log", folder.join("access.log").display().to_string()),
    ];
    replacements.into_iter().fold(shipped, |text, (example, replacement)| {
        assert_eq!(
            text.matches(example).count(),
            1,
            "deploy/nginx.conf must contain {example:?} exactly once"
        );
        text.replace(example, &replacement)
    })
}

fn certificate(folder: &Path) -> PathBuf {
    folder.join("certificate.pem")
}

fn certificate_key(folder: &Path) -> PathBuf {
    folder.join("certificate.key")
}

fn make_certificate(folder: &Path) {
    let mut command = Command::new(tier::program("openssl"));
    command.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
        "-keyout",
    ]);
    command.arg(certificate_key(folder)).arg("-out").arg(certificate(folder));
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(output.status.success(), "openssl failed: {}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Api, Fixture};

    #[tokio::test]
    async fn requests_skip_an_unreachable_hub() {
        if !tier::needs_engine("nginx") {
            return;
        }
        let (unreachable, reachable) = (Port::pick(), Fixture::page("hello").await);
        let nginx = Nginx::start(&[loopback(unreachable.number()), reachable.addr()]).await;
        for _ in 0..4 {
            assert_eq!(Api::at(&nginx.url()).get("/").await.expect(200).text(), "hello", "{}", nginx.log());
        }
    }
}
