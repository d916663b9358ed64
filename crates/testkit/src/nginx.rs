//! A real nginx before several hubs, set up as one is for event streams: nothing is buffered, a hub that is gone or
//! draining is passed over, and whoever is connected stays with its hub.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::ports::{Port, loopback};
use crate::{mortal, tier, wait};

const START: Duration = Duration::from_secs(60);

/// A running nginx; ended when it is dropped, or with the test process.
pub struct Nginx {
    port: Port,
    child: Child,
    // Last, so that the process is gone before its folder goes.
    folder: TempDir,
}

impl Nginx {
    /// Starts one before these addresses, which it takes turns with, and waits until it accepts.
    pub async fn start(hubs: &[SocketAddr]) -> Self {
        let folder = tempfile::Builder::new().prefix("bongsu-nginx-").tempdir().expect("a temporary folder");
        let (port, file) = (Port::pick(), folder.path().join("nginx.conf"));
        std::fs::write(&file, config(port.number(), hubs, folder.path())).expect("a file for the settings");
        let program = tier::program("nginx");
        let log = log_file(&folder);
        let arguments = [Path::new("-e"), &log, Path::new("-p"), folder.path(), Path::new("-c"), &file];
        let child = mortal::start(&program, &arguments, &log);
        let nginx = Self { port, child, folder };
        let accepts = wait::holds_within(START, async || TcpStream::connect(nginx.addr()).await.is_ok());
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

    /// All that it complained about.
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

/// One process, so that ending it leaves nobody behind.
fn config(port: u16, hubs: &[SocketAddr], folder: &Path) -> String {
    let servers: String = hubs.iter().map(|hub| format!("server {hub} max_fails=0; ")).collect();
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid \"{folder}/pid\";
        worker_rlimit_nofile 16384;
        events {{ worker_connections 8192; }}
        http {{
            access_log off;
            client_body_temp_path \"{folder}/body\"; proxy_temp_path \"{folder}/proxy\";
            fastcgi_temp_path \"{folder}/fastcgi\"; uwsgi_temp_path \"{folder}/uwsgi\";
            scgi_temp_path \"{folder}/scgi\";
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
            }}
        }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Api, Fixture};

    #[tokio::test]
    async fn requests_go_to_one_that_is_there() {
        if !tier::needs_engine("nginx") {
            return;
        }
        let (gone, here) = (Port::pick(), Fixture::page("hello").await);
        let nginx = Nginx::start(&[loopback(gone.number()), here.addr()]).await;
        for _ in 0..4 {
            assert_eq!(Api::at(&nginx.url()).get("/").await.expect(200).text(), "hello", "{}", nginx.log());
        }
    }
}
