//! The `# HELP` text of every metric that the hub exports. A test compares the names with the source code.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Name and description of every metric.
pub const METRICS: &[(&str, &str)] = &[
    ("bus_malformed_total", "Messages of the bus that could not be decoded."),
    (
        "bus_repairs_total",
        "Comparisons of a subject with its log, because messages of the bus may have been lost.",
    ),
    ("delivery_latency_seconds", "Time from accepting an event to handing it to a live stream."),
    ("events_delivered_total", "Events written to streams."),
    ("events_lagged_total", "Events that slow readers missed because the log had trimmed them."),
    ("events_published_total", "New events, by type; after 200 types, further ones count as other."),
    ("http_accept_errors_total", "Connections that could not be accepted."),
    (
        "http_request_duration_seconds",
        "Time from a request to the head of its response, by method, route and status.",
    ),
    ("http_requests_total", "Requests, by method, route and status."),
    ("http_response_bytes_waiting", "Bytes of responses in memory that wait for their clients."),
    (
        "http_responses_cut_total",
        "Responses that were cut off: the client stalled, or too many bytes waited in memory.",
    ),
    (
        "idempotency_keys_dropped_early_total",
        "Idempotency keys removed before 24 hours, because there were too many.",
    ),
    ("inbox_dead_letters_total", "Follow-up records that became dead letters."),
    ("inbox_follow_ups_refused_total", "Failed attempts to make the inbox entries of a room event."),
    ("inbox_template_failures_total", "Failed renderings of a notification template."),
    (
        "live_subjects",
        "Subjects in memory: those with streams, and those that had some within the last minute.",
    ),
    ("lock_acquire_total", "Attempts to acquire a lock, by result."),
    (
        "member_bus_dropped_total",
        "Messages to personal streams dropped because the queue to the bus was full.",
    ),
    (
        "outbox_failing",
        "1 while outbox rows cannot be read (part tail) or get no positions (part sequencer).",
    ),
    ("outbox_failures_total", "Failed attempts of the outbox worker to handle a row."),
    ("outbox_overdue_rows", "Outbox rows past their retention that wait for a worker."),
    ("outbox_removed_total", "Outbox rows removed after their retention."),
    ("outbox_sequenced_total", "Outbox rows that got a position."),
    ("outbox_tail_lag_rows", "Outbox rows with a position that this instance has not read yet."),
    ("outbox_unusable_total", "Outbox rows that cannot be sent, by reason."),
    ("presence_heartbeat_total", "Presence heartbeats that people sent."),
    ("pubsub_reconnect_total", "Connections of the bus that ended and were opened again."),
    ("queue_dead_letters_total", "Messages of a queue that were given up."),
    ("queue_depth", "Messages in a queue, counted up to 100,000."),
    ("queue_failures_total", "Failed attempts to handle a message of a queue."),
    ("queue_handled_total", "Messages of a queue that were handled."),
    (
        "queue_oldest_ready_age_seconds",
        "How long the oldest message of a queue that can be handled has waited.",
    ),
    ("queue_published_total", "Messages published to queues."),
    ("redis_command_duration_seconds", "Duration of a Redis command or script, including retries."),
    ("sql_query_duration_seconds", "Duration of a database query, by the name of its file."),
    (
        "sql_transaction_duration_seconds",
        "Duration of a transaction on a database server, including waiting and retries.",
    ),
    ("sse_active_connections", "Open streams."),
    ("sse_active_rooms", "Rooms with at least one stream."),
    ("sse_closed_total", "Streams that the hub closed, by close code."),
    ("store_commit_duration_seconds", "Duration of a synced group commit."),
    ("store_commits_total", "Group commits that changed something; each is synced."),
    ("write_behind_flush_entries", "Read marks that one flush wrote to the records."),
    ("write_behind_flush_total", "Flushes of buffered read marks to the records."),
];

/// Registers the descriptions with the recorder, which must be installed.
pub(crate) fn register() {
    for &(name, description) in METRICS {
        if name.ends_with("_total") {
            describe_counter!(name, description);
        } else if name.ends_with("_seconds") || name.ends_with("_entries") {
            describe_histogram!(name, description);
        } else {
            describe_gauge!(name, description);
        }
    }
}
