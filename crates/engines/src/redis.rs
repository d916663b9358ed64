//! Redis: one server, or a Cluster of three masters that share all slots, without replicas.
//!
//! An acknowledged write is on the disk (`appendfsync always`) unless a setting says otherwise. Settings are passed in a
//! file, because Redis and Sentinel write changes made at run time to that file and read them back after a restart.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ports::Port;
use crate::{Instance, programs};

/// Default settings of every server; a test may override them.
pub const DURABLE: [(&str, &str); 3] = [("appendonly", "yes"), ("appendfsync", "always"), ("save", "\"\"")];
/// The number of masters of a Cluster.
pub const NODE_COUNT: usize = 3;
/// The number of hash slots of a Cluster.
pub const SLOTS: u16 = 16_384;

/// A node of a Cluster: its port for clients and its port for the other nodes.
#[derive(Clone, Copy)]
pub struct Node {
    pub port: u16,
    pub bus: u16,
}

impl Node {
    /// The settings that make a server a Cluster node. The bus port is set, because the default (client port + 10000)
    /// may be in use.
    pub fn settings(self) -> [(String, String); 3] {
        let bus = self.bus.to_string();
        [("cluster-enabled", "yes"), ("cluster-port", &bus), ("cluster-announce-ip", "127.0.0.1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    }
}

/// Writes the settings file of a server in `folder` and returns its path.
pub fn write_config(folder: &Path, port: u16, settings: &[(String, String)]) -> PathBuf {
    let mut text = format!("bind 127.0.0.1\nport {port}\ndir \"{}\"\n", folder.display());
    settings.iter().for_each(|(name, value)| text.push_str(&format!("{name} {value}\n")));
    let file = folder.join("redis.conf");
    std::fs::write(&file, text).expect("cannot write the settings file");
    file
}

/// Runs `redis-cli` on a server and returns its output, or the error.
pub fn cli(port: u16, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(programs::path("redis-cli"));
    // With -e an error answer is a failure.
    command.args(["-e", "-h", "127.0.0.1", "-p", &port.to_string()]).args(arguments);
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    match output.status.success() {
        true => Ok(printed),
        false => Err(format!("{command:?}: {printed} {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Divides the slots among running nodes and joins the nodes to one Cluster.
pub fn form_cluster(nodes: &[Node]) -> Result<(), String> {
    for (at, node) in nodes.iter().enumerate() {
        // Nodes with the same config epoch would first have to resolve an epoch collision.
        cli(node.port, &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
        let first = at * usize::from(SLOTS) / nodes.len();
        let last = (at + 1) * usize::from(SLOTS) / nodes.len() - 1;
        cli(node.port, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])?;
    }
    for node in &nodes[1..] {
        let (port, bus) = (node.port.to_string(), node.bus.to_string());
        cli(nodes[0].port, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
    }
    Ok(())
}

/// Whether a node knows all other nodes and reports that all slots are served.
pub fn is_node_ready(port: u16) -> bool {
    cli(port, &["CLUSTER", "INFO"]).is_ok_and(|info| {
        field(&info, "cluster_state") == "ok" && field(&info, "cluster_known_nodes") == NODE_COUNT.to_string()
    })
}

/// The value of a field in the `name:value` lines of INFO and CLUSTER INFO; empty if the field is missing.
pub fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim_end()
}

pub(crate) fn start_single(folder: &Path) -> Instance {
    let port = Port::pick().number();
    let mut instance = Instance::new(format!("redis://127.0.0.1:{port}"));
    launch(&mut instance, folder, "redis", port, Vec::new());
    instance
}

pub(crate) fn is_single_ready(instance: &Instance) -> bool {
    ports(instance).all(|port| cli(port, &["PING"]).is_ok())
}

pub(crate) fn start_cluster(folder: &Path) -> Instance {
    // All ports stay reserved until the last one is picked, so that no port is picked twice.
    let reserved: Vec<[Port; 2]> = (0..NODE_COUNT).map(|_| [Port::pick(), Port::pick()]).collect();
    let nodes: Vec<Node> =
        reserved.iter().map(|[port, bus]| Node { port: port.number(), bus: bus.number() }).collect();
    let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
    let mut instance = Instance::new(format!("redis+cluster://{}", addresses.join(",")));
    for (at, node) in nodes.iter().enumerate() {
        let own = folder.join(format!("node-{at}"));
        std::fs::create_dir(&own).expect("cannot create the folder of a Cluster node");
        launch(&mut instance, &own, "redis", node.port, node.settings().to_vec());
    }
    let started = || nodes.iter().all(|node| cli(node.port, &["PING"]).is_ok());
    for _ in 0..MAX_PINGS {
        if started() {
            break;
        }
        std::thread::sleep(PING_INTERVAL);
    }
    form_cluster(&nodes).expect("the servers did not form a Cluster");
    instance
}

pub(crate) fn is_cluster_ready(instance: &Instance) -> bool {
    ports(instance).all(is_node_ready)
}

const MAX_PINGS: u32 = 3_000;
const PING_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

fn launch(instance: &mut Instance, folder: &Path, name: &str, port: u16, settings: Vec<(String, String)>) {
    let durable = DURABLE.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = write_config(folder, port, &[durable.to_vec(), settings].concat());
    instance.spawn(folder, name, &programs::path("redis-server"), &[config.display().to_string()]);
}

/// The ports in the address of an instance.
fn ports(instance: &Instance) -> impl Iterator<Item = u16> {
    instance.address.split([',', '/']).filter_map(|address| address.rsplit(':').next()?.parse().ok())
}
