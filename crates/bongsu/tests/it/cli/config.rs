//! Settings: where their values come from, how they are shown, and which values are refused.

use std::io::Write as _;

use bongsu_testkit::Hub;

use super::{bongsu, error_line, run, stdout_of, text};
use crate::BONGSU;

/// Source and value of a setting, as `bongsu config` prints them.
fn setting<'a>(shown: &'a str, name: &str) -> (&'a str, &'a str) {
    let line = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
    let mut words = line.unwrap_or_else(|| panic!("no {name} in {shown}")).split_whitespace().skip(1);
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap_or_else(|error| panic!("{error}"));
    file.write_all(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    file
}

#[test]
fn effective_settings_are_shown_with_their_source_and_without_secrets() {
    let file = file(
        "[server]\nserver_port = 1001\nserver_shards = 3\nallowed_origins = [\"https://a.example\", \"https://b.example\"]\n\
         [identity]\njwt_secret = \"secret-of-the-file\"\n[rooms]\nstream_maxlen = 77\n",
    );
    let path = file.path().to_str().unwrap();
    let environment = [
        ("SERVER_PORT", "1002"),
        ("SERVER_SHARDS", "4"),
        ("INTERNAL_API_KEY", "secret-of-the-environment"),
        ("REDIS_URL", "redis://user:secret-of-the-url@host:6379"),
        ("STREAM_MAXLEN_PER_ROOM", ""),
    ];
    let arguments =
        ["config", "--config", path, "--server-port", "1003", "--admin-api-key", "secret-of-the-flag"];
    let shown = stdout_of(&run(&arguments, &environment));
    assert_eq!(setting(&shown, "SERVER_PORT"), ("flag", "1003"));
    assert_eq!(setting(&shown, "SERVER_SHARDS"), ("environment", "4"));
    assert_eq!(setting(&shown, "STREAM_MAXLEN"), ("file", "77"));
    assert_eq!(setting(&shown, "ALLOWED_ORIGINS"), ("file", "https://a.example,https://b.example"));
    assert_eq!(setting(&shown, "SERVER_HOST"), ("default", "127.0.0.1"));
    assert_eq!(setting(&shown, "STREAM_MAXLEN_PER_ROOM"), ("default", "(unset)"));
    for (name, source) in
        [("JWT_SECRET", "file"), ("INTERNAL_API_KEY", "environment"), ("ADMIN_API_KEY", "flag")]
    {
        assert_eq!(setting(&shown, name), (source, "(hidden)"));
    }
    assert!(!shown.contains("secret-of") && shown.contains("host:6379"), "{shown}");
    assert!(!shown.contains("local_dev"), "{shown}");
}

#[test]
fn an_env_file_in_the_working_directory_is_read_and_real_variables_win() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &[u8]| std::fs::write(folder.path().join(".env"), text).unwrap();
    let run = |environment: &[(&str, &str)]| {
        bongsu(&["config"], environment).current_dir(folder.path()).output().unwrap()
    };
    write(
        b"# mine\nexport SERVER_PORT='1001'\nSERVER_SHARDS=3 # threads\nJWT_SECRET=\"secret of the file\"\n",
    );
    let shown = stdout_of(&run(&[("SERVER_SHARDS", "4")]));
    assert_eq!(setting(&shown, "SERVER_PORT"), (".env", "1001"));
    assert_eq!(setting(&shown, "SERVER_SHARDS"), ("environment", "4"));
    assert_eq!(setting(&shown, "JWT_SECRET"), (".env", "(hidden)"));
    assert!(!shown.contains("secret of"), "{shown}");
    // The error names the invalid line of the file in one line, without its content.
    write(b"SERVER_PORT=1001\n\nJWT_SECRET \"secret of the file\"\n");
    let wrong = error_line(&run(&[]), 2);
    assert!(wrong.contains("the file .env is invalid: line 3: ") && !wrong.contains("secret of"), "{wrong}");
    write(b"SERVER_PORT=70000\n");
    assert!(error_line(&run(&[]), 2).contains("SERVER_PORT=\"70000\" is not allowed"));
    write(b"JWT_SECRET=\xFF\n");
    assert!(error_line(&run(&[]), 2).contains("the file .env cannot be read"));
}

#[test]
fn a_folder_named_like_the_env_file_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".env")).unwrap();
    let shown = stdout_of(&bongsu(&["config"], &[]).current_dir(folder.path()).output().unwrap());
    assert_eq!(setting(&shown, "SERVER_PORT"), ("default", "8083"));
}

#[test]
fn every_setting_of_the_contract_has_its_default() {
    let shown = stdout_of(&run(&["config"], &[]));
    let defaults = [
        ("SERVER_HOST", "127.0.0.1"),
        ("SERVER_PORT", "8083"),
        ("DATA_DIR", "./bongsu-data"),
        ("REDIS_URL", "(unset)"),
        ("REDIS_KEY_PREFIX", "(unset)"),
        ("DATABASE_URL", "(unset)"),
        ("AMQP_URL", "(unset)"),
        ("KAFKA_BROKERS", "(unset)"),
        ("JWKS_URL", "(unset)"),
        ("ALLOWED_ORIGINS", "http://localhost:3000,http://localhost:5173,http://localhost:5174"),
        ("RUST_LOG", "info"),
        ("ROLES", "hub"),
        ("RECORDS", "on"),
        ("ROOMS_MODE", "open"),
        ("EVENT_TYPES", "(unset)"),
        ("SSE_CHANNEL_CAPACITY", "256"),
        ("STREAM_MAXLEN", "10000"),
        ("STREAM_MAXLEN_PER_ROOM", "(unset)"),
        ("SSE_MAX_CONNECTIONS_PER_USER", "5"),
        ("SSE_MAX_CONNECTIONS", "0"),
        ("PRESENCE_USER_TTL_SECS", "60"),
        ("PRESENCE_HASH_TTL_SECS", "120"),
        ("WRITE_BEHIND_INTERVAL_SECS", "30"),
        ("WRITE_BEHIND_BATCH_SIZE", "200"),
        ("LOCK_TTL_SECS", "10"),
        ("MEMBER_MAX_CONNECTIONS", "3"),
        ("OUTBOX_RETENTION", "7d"),
        // The contracts specify these values, but name no setting for them.
        ("SSE_KEEPALIVE_SECS", "15"),
        ("SSE_STALL_SECS", "30"),
        ("MEMBER_STREAM_PING_SECS", "20"),
        ("MEMBER_STREAM_LIFETIME_SECS", "1800"),
        ("INBOX_RETENTION_DAYS", "30"),
        ("OUTBOX_PING_SECS", "30"),
    ];
    for (name, default) in defaults {
        assert_eq!(setting(&shown, name), ("default", default), "{name}");
    }
    let (reference, example) = (
        stdout_of(&run(&["config", "--reference"], &[])),
        stdout_of(&run(&["config", "--env-example"], &[])),
    );
    for (name, _) in defaults {
        assert!(reference.contains(&format!("`{name}`")) && example.contains(&format!("#{name}=")), "{name}");
    }
    // `bongsu config` hides secrets; the reference lists their development values.
    for (name, development) in [
        ("JWT_SECRET", "local_dev_secret"),
        ("INTERNAL_API_KEY", "local_dev_internal_key"),
        ("ADMIN_API_KEY", "local_dev_admin_key"),
    ] {
        assert_eq!(setting(&shown, name), ("default", "(hidden)"), "{name}");
        assert!(reference.contains(&format!("| `{name}` | `{development}` |")), "{name}: {reference}");
    }
}

#[test]
fn an_invalid_value_is_reported_in_one_line_with_the_allowed_values() {
    let bad = [
        ("SERVER_PORT", "70000", "65535"),
        ("SERVER_PORT", "http", "whole number"),
        ("SERVER_HOST", "somewhere", "IP address"),
        ("STREAM_MAXLEN", "0", "1"),
        ("SSE_KEEPALIVE_SECS", "-1", "whole number"),
        ("SSE_CHANNEL_CAPACITY", "1.5", "whole number"),
        ("SSE_MAX_CONNECTIONS_PER_USER", "many", "whole number"),
        ("BONGSU_ENV", "staging", "production"),
        ("EVENT_TYPES", "Comment", "comment.created"),
        ("EVENT_TYPES", "system.close", "system."),
        ("STREAM_MAXLEN_PER_ROOM", "lobby", "room=number"),
        ("STREAM_MAXLEN_PER_ROOM", "lobby=0", "room=number"),
        ("ALLOWED_ORIGINS", "localhost:3000", "https://"),
        ("ALLOWED_ORIGINS", "*", "https://"),
        ("JWKS_URL", "keys.json", "http"),
        ("JWT_ALGORITHM", "none", "HS256"),
        ("JWT_ALGORITHM", "RS256", "JWKS_URL"),
        ("RUST_LOG", "rooms=loud", "info"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (name, value, allowed) in bad {
        let environment = [("DATA_DIR", data.to_str().unwrap()), ("SERVER_PORT", "0"), (name, value)];
        let line = error_line(&run(&["serve"], &environment), 2);
        for part in [name, value, allowed] {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
    }
    assert!(!data.exists(), "a refused start must create no folder");
}

#[test]
fn a_malformed_configuration_file_is_reported_in_one_line_with_its_position() {
    let bad = [
        ("[server]\nport = 1", "port"),
        ("[servers]\nserver_port = 1", "server_port"),
        ("server_port = 1", "server_port"),
        ("[server]\nserver_port = 99999", "SERVER_PORT"),
        ("[server]\nserver_port = { a = 1 }", "server_port"),
        ("[server\n", "file"),
        ("\u{0}", "file"),
    ];
    for (text, named) in bad {
        let file = file(text);
        let line = error_line(&run(&["serve", "--config", file.path().to_str().unwrap()], &[]), 2);
        assert!(line.contains(named), "{named:?} is not in {line:?}");
    }
    assert!(error_line(&run(&["serve", "--config", "/no/such.toml"], &[]), 2).contains("/no/such.toml"));
}

#[test]
fn an_invalid_redis_url_is_refused_without_printing_it() {
    let urls = [
        "localhost:6379",
        "redis://:pass-word@a:1,b:2",
        "redis+sentinel://:pass-word@a:1",
        "redis://:pass-word@a:x",
    ];
    for url in urls {
        let line = error_line(&run(&["serve"], &[("REDIS_URL", url)]), 2);
        assert!(line.contains("REDIS_URL") && !line.contains("pass-word"), "{line}");
    }
    let braces = [("REDIS_URL", "redis://localhost:1"), ("REDIS_KEY_PREFIX", "a{b}")];
    assert!(error_line(&run(&["serve"], &braces), 2).contains("REDIS_KEY_PREFIX"));
}

#[test]
fn an_invalid_database_url_is_refused_without_printing_it() {
    let urls = [
        "localhost:5432",
        "redis://me:pass-word@a/db",
        "postgres://me:pass-word@a",
        "postgres://me:pass-word@a:x/db",
        "mysql://me:pass-word@a/db?colour=red",
    ];
    for url in urls {
        for command in ["serve", "migrate"] {
            let line = error_line(&run(&[command], &[("DATABASE_URL", url)]), 2);
            assert!(line.contains("DATABASE_URL") && !line.contains("pass-word"), "{line}");
        }
    }
    let url = ("DATABASE_URL", "postgres://me:pass-word@localhost/db");
    let off = [url, ("RECORDS", "off"), ("REDIS_URL", "redis://localhost:1")];
    let line = error_line(&run(&["serve"], &off), 2);
    assert!(line.contains("RECORDS") && line.contains("DATABASE_URL"), "{line}");
    let shown = stdout_of(&run(&["config"], &[url]));
    assert_eq!(setting(&shown, "DATABASE_URL"), ("environment", "(hidden)"));
    assert_eq!(setting(&shown, "DATABASE_MAX_CONNECTIONS"), ("default", "20"));
}

#[test]
fn no_address_is_shown_with_its_credentials() {
    for (name, value) in [
        ("JWKS_URL", "ftp://me:pass-word@a/keys"),
        ("JWKS_URL", "me:pass-word@a/keys"),
        ("ALLOWED_ORIGINS", "https://a.example,https://me:pass-word@b.example"),
    ] {
        let line = error_line(&run(&["serve"], &[(name, value)]), 2);
        assert!(line.contains(name) && !line.contains("pass-word"), "{line}");
    }
    for value in [
        "redis://me:pass-word@host:6379",
        "redis://me:pass,word@host:6379",
        "redis://me:pass@word@host:6379",
        "redis://me:pass/word@host:6379",
        "me:pass-word@host:6379",
    ] {
        let shown = stdout_of(&run(&["config"], &[("REDIS_URL", value), ("AMQP_URL", value)]));
        assert!(!shown.contains("pass") && !shown.contains("word@"), "{value}: {shown}");
    }
    let folder = tempfile::tempdir().unwrap();
    let data = [("DATA_DIR", folder.path().to_str().unwrap())];
    let looked = text(&run(&["doctor", "--url", "http://me:pass-word@127.0.0.1:1"], &data).stdout);
    assert!(looked.contains("127.0.0.1:1") && !looked.contains("pass-word"), "{looked}");
}

#[test]
fn an_engine_that_is_not_in_this_build_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let engines = [("AMQP_URL", "amqp://me:pass-word@localhost"), ("KAFKA_BROKERS", "localhost:9092")];
    for (name, value) in engines {
        for command in ["serve", "migrate"] {
            let line =
                error_line(&run(&[command], &[("DATA_DIR", data.to_str().unwrap()), (name, value)]), 2);
            assert!(line.contains(name) && !line.contains("pass-word"), "{line}");
        }
    }
    assert!(!data.exists());
}

#[tokio::test]
async fn a_hub_runs_from_a_file_and_flags_win() {
    let file =
        file("[rooms]\nstream_maxlen = 3\nevent_types = [\"from.file\"]\n[live]\nsse_max_connections = 1\n");
    let path = file.path().to_str().unwrap();
    let builder = Hub::builder(BONGSU).arg("--config").arg(path).arg("--event-types").arg("from.flag");
    let hub = builder.start().await;
    let api = bongsu_testkit::Api::new(&hub);
    api.publish_to("a", "from.flag", serde_json::json!({})).await;
    let event = serde_json::json!({"roomId": "a", "eventType": "from.file", "data": {}});
    api.publish(event).await.expect_error(400, "NOTIF4001");
}
