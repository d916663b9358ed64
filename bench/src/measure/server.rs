//! Starts measured servers on loopback: a hub with an empty data folder or on engines, or the bare loop.
//! Dropping a `Server` kills its process.

use crate::Result;
use crate::args::RunOptions;
use crate::generator::Target;
use crate::process::{ChildGuard, ScratchDir};
use crate::wire::head::Head;
use bongsu_testkit::tokens;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const INTERNAL_KEY: &str = "local_dev_internal_key";
const START_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    child: ChildGuard,
    target: Target,
    // Declared after the child, so that the process has ended when the folder is removed.
    _scratch: ScratchDir,
}

pub(crate) struct HubStarter {
    hub: PathBuf,
    settings: Vec<(String, String)>,
    tokens: Rc<[String]>,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(crate) fn target(&self) -> Target {
        self.target.clone()
    }

    pub(crate) fn start_bare_loop(frame_bytes: usize) -> Result<Self> {
        let port = free_port()?;
        let program = std::env::current_exe()?;
        Self::start("bare-loop", &program, port, Rc::from([String::from("none")]), |command| {
            command.args(["bare-loop", "--port", &port.to_string()]);
            command.args(["--frame-bytes", &frame_bytes.to_string()]);
        })
    }

    fn start(
        name: &str,
        program: &Path,
        port: u16,
        tokens: Rc<[String]>,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let scratch = ScratchDir::new(name)?;
        let log_path = scratch.path().join("log");
        let log = File::create(&log_path)?;
        let also_log = log.try_clone()?;
        let child = ChildGuard::spawn(program, |command| {
            command.env("DATA_DIR", scratch.path().join("data")).stdout(log).stderr(also_log);
            prepare(command);
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server =
            Self { child, target: Target { address, tokens, internal_key: INTERNAL_KEY }, _scratch: scratch };
        let started = Instant::now();
        while !is_ready(address) {
            if server.child.has_ended()? || started.elapsed() > START_TIMEOUT {
                let output = fs::read_to_string(&log_path).unwrap_or_default();
                return Err(format!("{name} did not become ready; its output:\n{output}").into());
            }
            sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl HubStarter {
    /// Prepares hubs, and signs the tokens of the persons that open streams.
    pub(crate) fn new(options: &RunOptions) -> Result<Self> {
        let hub =
            options.hub.canonicalize().map_err(|error| format!("{}: {error}", options.hub.display()))?;
        let tokens = (1..=options.users.max(1)).map(tokens::token).collect();
        Ok(Self { hub, settings: options.hub_settings.clone(), tokens })
    }

    /// Starts an embedded hub.
    pub(crate) fn start(&self) -> Result<Server> {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, settings: &[(&str, String)]) -> Result<Server> {
        self.start_for(Rc::clone(&self.tokens), settings)
    }

    /// Starts a hub for streams with these tokens.
    pub(crate) fn start_for(&self, tokens: Rc<[String]>, settings: &[(&str, String)]) -> Result<Server> {
        let port = free_port()?;
        Server::start("hub", &self.hub, port, tokens, |command| {
            command
                .arg("serve")
                .env_remove("REDIS_URL")
                .env_remove("DATABASE_URL")
                .env_remove("AMQP_URL")
                .env_remove("KAFKA_BROKERS")
                .env_remove("BONGSU_ENV")
                .env("SERVER_HOST", "127.0.0.1")
                .env("SERVER_PORT", port.to_string())
                .env("SSE_MAX_CONNECTIONS_PER_USER", "0")
                .env("RUST_LOG", "warn")
                .env("JWT_SECRET", tokens::SECRET)
                .env("INTERNAL_API_KEY", INTERNAL_KEY)
                .envs(settings.iter().map(|(name, value)| (name, value)))
                .envs(self.settings.iter().map(|(name, value)| (name, value)));
        })
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn is_ready(address: SocketAddr) -> bool {
    let request_ready = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = [0; 4_096];
        let read = socket.read(&mut answer)?;
        Ok(Head::parse(&answer[..read]).is_some_and(|head| head.status() == 200))
    };
    request_ready().unwrap_or(false)
}
