//! The hub as its users see it: a separate process, real sockets, real kills, a real browser.
//!
//! The tests assert behaviour that a user notices. Sizes and fault rounds grow with `cargo xtask prove`.

mod bad_input;
mod browser;
mod cli;
mod crash_points;
mod data_folder;
mod decisions;
mod documents;
mod drain;
mod failed_start;
mod fleet;
mod fleet_people;
mod fleet_records;
mod identity;
mod inbox;
mod nginx;
mod operate;
mod outbox;
mod queries;
mod records_off;
mod rooms_crash;
mod rooms_edges;
mod rooms_events;
mod rooms_frames;
mod rooms_many;
mod rooms_once;
mod rooms_orders;
mod rooms_presence;
mod rooms_publish;
mod rooms_registered;
mod rooms_seam;
mod rooms_slow;
mod rooms_socket;
mod rooms_stream;
mod schema;
mod topics;
mod weak_settings;

/// The hub's binary, as cargo built it for these tests.
const BONGSU: &str = env!("CARGO_BIN_EXE_bongsu");
