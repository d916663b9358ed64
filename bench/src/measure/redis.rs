//! A Redis server for the measurements of a fleet, which syncs every write to the disk, and its counters of commands.

use super::progress;
use crate::Result;
use crate::process::{ChildGuard, ScratchDir};
use bongsu_testkit::tier;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct RedisServer {
    child: ChildGuard,
    address: SocketAddr,
    _scratch: ScratchDir,
}

impl RedisServer {
    pub(crate) fn start() -> Result<Self> {
        let program = tier::program("redis-server");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let scratch = ScratchDir::new("redis")?;
        let child = ChildGuard::spawn(&program, |command| {
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"]);
            command.arg("--dir").arg(scratch.path());
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Self { child, address, _scratch: scratch };
        let started = Instant::now();
        while !server.request("PING").is_ok_and(|answer| answer.starts_with("+PONG")) {
            if started.elapsed() > START_TIMEOUT {
                return Err(format!("{} did not become ready", program.display()).into());
            }
            sleep(Duration::from_millis(50));
        }
        progress(&format!("redis: {address}, appendfsync always"));
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How often clients and scripts have called a command.
    pub(crate) fn calls_of(&self, command: &str) -> Result<u64> {
        let stats = self.request("INFO commandstats")?;
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        Ok(line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0))
    }

    /// How many commands the server has processed.
    pub(crate) fn processed_commands(&self) -> Result<u64> {
        let stats = self.request("INFO stats")?;
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.and_then(|count| count.trim().parse().ok()).ok_or_else(|| "no count of commands".into())
    }

    fn request(&self, command: &str) -> Result<String> {
        let mut socket = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    }
}
