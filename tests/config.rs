//! Settings: every key is explained, the layers override each other in order, and an invalid value
//! is reported with its source, its key and the allowed values.

use std::{ffi::OsString, fs, net::SocketAddr, path::PathBuf, time::Duration};

use expect_test::{Expect, expect};
use gridhook::{
    config::{
        Config, DEFAULTS, KeySource, LogFormat, NatsLogin, SettingFlag, SettingSources, TrustRoots,
    },
    manual,
    policy::{
        edition::{Edition, StepOrigin},
        outcome::Failure,
    },
    storage::destination::backup_store,
};

/// The settings that are in force with this file, these variables and these flags.
fn load(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &'static str, &str)],
) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gridhook.toml");
    fs::write(&path, file).expect("a file that can be written");
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let flags = flags.iter().map(|(name, key, value)| SettingFlag {
        name,
        key,
        value: (*value).to_owned(),
    });
    let sources = SettingSources {
        file: Some(path),
        environment: environment.collect(),
        flags: flags.collect(),
    };
    let folder = format!("{}/", folder.path().display());
    Config::load(&sources).map_err(|error| error.to_string().replace(&folder, ""))
}

fn refuses(file: &str, environment: &[(&str, &str)], expected: Expect) {
    expected.assert_eq(&load(file, environment, &[]).expect_err("settings that cannot be used"));
}

fn defaults() -> Config {
    Config::load(&SettingSources::default()).expect("the defaults can be used")
}

#[test]
fn every_key_stands_below_a_comment_of_one_to_three_lines() {
    let mut comment = 0;
    let mut keys = 0;
    for line in DEFAULTS.lines() {
        let is_key = !line.starts_with('#') && line.contains(" = ");
        assert!(
            !is_key || (1..=3).contains(&comment),
            "{comment} lines of comment: {line}"
        );
        keys += usize::from(is_key);
        comment = if line.starts_with("# ") {
            comment + 1
        } else {
            0
        };
    }
    assert!(keys > 30, "{keys} keys were found");
}

#[test]
fn every_default_stands_in_a_section_and_is_read_as_it_is() {
    let table: toml::Table = DEFAULTS.parse().expect("the defaults are TOML");
    for (section, keys) in &table {
        let keys = keys.as_table().expect("a section");
        assert!(
            keys.values().all(|value| !value.is_table()),
            "[{section}] has a section inside"
        );
    }
    let again = load(DEFAULTS, &[], &[]).expect("the file can be given as it is");
    assert_eq!(format!("{again:?}"), format!("{:?}", defaults()));
}

/// Units of durations and of sizes, in milliseconds and bytes.
const UNITS: [(&str, f64); 10] = [
    ("ms", 1.0),
    ("s", 1e3),
    ("m", 60e3),
    ("h", 3_600e3),
    ("d", 86_400e3),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// The number with its unit that the text begins with, and the rest.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..end].trim_end_matches('.').parse().ok()?;
    let rest = text[end..].trim_start();
    let unit_end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..unit_end]);
    Some(match unit {
        Some((_, factor)) => (number * factor, rest[unit_end..].trim_start()),
        None => (number, rest),
    })
}

/// The bounds of the first `from X to Y` in a text.
fn bounds(text: &str) -> Option<[f64; 2]> {
    let text = format!("{} ", text.replace("From ", "from "));
    text.split("from ").skip(1).find_map(|range| {
        let (min, rest) = quantity(range)?;
        let (max, _) = quantity(rest.strip_prefix("to ")?)?;
        Some([min, max])
    })
}

/// The bounds that an error names.
fn allowed_bounds(error: &str) -> Option<[f64; 2]> {
    let (_, allowed) = error.split_once("expected ")?;
    let Some(durations) = allowed.strip_prefix("a duration from ") else {
        return bounds(allowed);
    };
    let (range, _) = durations.split_once(" with its unit")?;
    let (min, max) = range.split_once(" to ")?;
    let milliseconds = |text| Some(humantime::parse_duration(text).ok()?.as_secs_f64() * 1e3);
    Some([milliseconds(min)?, milliseconds(max)?])
}

#[test]
fn each_range_of_the_file_is_that_of_its_setting() {
    let mut section = String::new();
    let mut comment = String::new();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for line in DEFAULTS.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some(more) = line.strip_prefix("# ") {
            comment = format!("{comment} {more}");
            continue;
        } else if let Some((key, _)) = line.split_once(" = ")
            && let Some(documented) = bounds(&comment)
        {
            let file = format!("[{section}]\n{} = []\n", key.trim_start_matches('#'));
            let error = load(&file, &[], &[]).expect_err(&file);
            if let Some(read) = allowed_bounds(&error) {
                if documented != read {
                    wrong.push(error);
                }
                compared += 1;
            }
        }
        comment.clear();
    }
    assert!(
        wrong.is_empty(),
        "other ranges than those of the file: {wrong:#?}"
    );
    assert!(compared > 60, "{compared} ranges were compared");
}

#[test]
fn the_defaults_are_those_of_the_design() {
    let _rows = crate::spec::shows(&[
        "S000-021, S002-007, S003-041: Event Grid waits 30 seconds for a response after delivering \
         a message.",
        "S000-036, S002-020, S003-056: If the endpoint responds within 3 minutes, Event Grid \
         tries, on a best-effort basis, to remove the event from the retry queue.",
    ]);
    let config = defaults();
    assert_server_defaults(&config);
    assert_publish_and_delivery_defaults(&config);
    assert_store_defaults(&config);
    assert_limits_and_metrics_defaults(&config);
}

fn assert_server_defaults(config: &Config) {
    assert!(!config.deployments.ignore_foreign);
    assert!(config.cluster.is_none());
    assert_eq!(
        (config.clock.jump_max, config.clock.expiry_pause_max),
        (Duration::from_secs(3_600), Duration::from_secs(12 * 3_600))
    );
    assert_eq!(
        config.server.listen,
        SocketAddr::from(([127, 0, 0, 1], 8080))
    );
    assert!(config.server.admin_token.is_none() && config.server.public_url.is_none());
    assert_eq!(
        (config.log.format, config.log.filter.as_str()),
        (LogFormat::Text, "info,actix_server=warn")
    );
    assert!(config.auth.issuer.is_none() && config.auth.trusted_proxies.is_empty());
    assert_eq!(
        (
            config.system_topic.name.as_deref(),
            config.system_topic.disk_free_bytes
        ),
        (None, 1 << 30)
    );
    assert!(!config.chaos.enabled);
    assert!(config.telemetry.otlp_endpoint.is_none() && config.telemetry.sample_share == 1.0);
    assert!(config.server.admin_listen.is_none());
    assert!(config.server.dashboard);
}

fn assert_publish_and_delivery_defaults(config: &Config) {
    assert_eq!(
        (
            config.publish.request_bytes,
            config.publish.event_bytes,
            config.publish.events_per_request
        ),
        (1_536_000, 1_049_600, 5_000)
    );
    assert_eq!(config.publish.bytes_in_flight, 64 << 20);
    assert_eq!(
        (
            config.publish.events_per_second,
            config.publish.bytes_per_second
        ),
        (0, 0)
    );
    assert_eq!(
        (
            config.delivery.response_timeout,
            config.delivery.concurrency
        ),
        (Duration::from_secs(30), 64)
    );
    assert_eq!(config.delivery.late_timeout, Duration::from_secs(180));
    assert_eq!(
        (
            config.delivery.batch_events,
            config.delivery.batch_kilobytes
        ),
        (5000, 64)
    );
    assert_eq!(
        (
            config.policy.edition.as_str(),
            config.policy.editions.names().collect::<Vec<_>>()
        ),
        (
            "current",
            vec!["2020", "2021", "2023", "current", "namespace"]
        )
    );
}

fn assert_store_defaults(config: &Config) {
    assert!(
        config.backup.store.is_none()
            && config.backup.schedule.is_none()
            && config.backup.key_file.is_none()
    );
    assert_eq!(
        (config.backup.keep, config.backup.keep_for),
        (7, Duration::from_secs(30 * 24 * 3_600))
    );
    assert_eq!(
        (config.journal.outcome_delay, config.journal.retention),
        (Duration::from_millis(10), Duration::ZERO)
    );
    assert_eq!(
        (
            config.journal.write_buffer_bytes,
            config.journal.max_total_wal_bytes
        ),
        (32 << 20, 64 << 20)
    );
    assert_eq!(
        (config.topic.recent_events_bytes, config.limits.read_bytes),
        (32 << 20, 64 << 20)
    );
    let folder = std::path::absolute("data/dead-letters").expect("a folder");
    let stores: Vec<_> = config
        .dead_letter
        .stores
        .iter()
        .map(|(name, store)| (name.as_str(), store.address.to_string()))
        .collect();
    assert_eq!(stores, [("folder", format!("file://{}", folder.display()))]);
}

fn assert_limits_and_metrics_defaults(config: &Config) {
    assert_eq!(
        (
            config.metrics.subscriptions,
            config.metrics.subscriptions_per_topic,
            config.metrics.topics
        ),
        (100, 50, 100)
    );
    assert!(!config.metrics.public && config.metrics.token.is_none());
    assert_eq!(
        (
            config.limits.connections,
            config.limits.connections_per_address
        ),
        (8192, 4096)
    );
    assert_eq!(
        (
            config.limits.event_types,
            config.limits.advanced_filters,
            config.limits.advanced_values,
            config.limits.filter_text
        ),
        (25, 25, 25, 512)
    );
}

#[test]
fn a_flag_goes_over_a_variable_and_that_over_the_file() {
    let file =
        "[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"of-file\"\n[delivery]\nconcurrency = 3\n";
    let variables = [
        ("GRIDHOOK_SERVER__LISTEN", "127.0.0.1:2"),
        ("GRIDHOOK_SERVER__DATA_DIR", "of-variable"),
        ("GRIDHOOK_CHAOS__ENABLED", "true"),
        ("GRIDHOOK_DELIVERY__SUSPEND_AFTER_FAILURES", "4"),
        ("GRIDHOOK_DELIVERY__BATCH_EVENTS", "20"),
        ("GRIDHOOK_DELIVERY__BATCH_KILOBYTES", "128"),
        ("GRIDHOOK_SYSTEM_TOPIC__NAME", "system"),
        ("HOME", "/nowhere"),
    ];
    let config = load(
        file,
        &variables,
        &[("--listen", "server.listen", "127.0.0.1:3")],
    )
    .expect("good settings");
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.data_dir, PathBuf::from("of-variable"));
    assert_eq!(config.delivery.concurrency, 3);
    assert_eq!(
        (
            config.delivery.batch_events,
            config.delivery.batch_kilobytes
        ),
        (20, 128)
    );
    assert_eq!(config.system_topic.name.as_deref(), Some("system"));
    assert!(config.chaos.enabled);
    let edition = config.policy.editions.get("current").expect("the edition");
    assert_eq!(edition.probation.after_failures, 4);
}

/// Wrong settings of a cluster: the variable, its value, the key that the error names, and what is
/// allowed.
const CLUSTER_MISTAKES: [(&str, &str, &str, &str); 19] = [
    (
        "ENGINE",
        "none",
        "cluster.engine",
        "no addresses of NATS servers",
    ),
    ("ENGINE", "kafka", "cluster.engine", "\"none\" or \"nats\""),
    ("NAME", "a.b", "cluster.name", "letters, digits"),
    ("NODE", "", "cluster.node", "no other node has"),
    ("URLS", "http://h", "cluster.urls", "nats://"),
    (
        "URLS",
        "nats://u:secret@h",
        "cluster.urls is (not shown)",
        "without user information",
    ),
    (
        "USERNAME",
        "u",
        "cluster.credentials",
        "cluster.username with cluster.password_file",
    ),
    (
        "DURABILITY",
        "fsync",
        "cluster.system_credentials",
        "unchecked",
    ),
    (
        "DURABILITY",
        "lazy",
        "cluster.durability",
        "\"fsync\" or \"unchecked\"",
    ),
    ("REPLICAS", "2", "cluster.replicas", "1, 3 or 5"),
    ("SHARDS", "65", "cluster.shards", "from 1 to 64"),
    (
        "STREAM_BYTES",
        "2047 MiB",
        "cluster.stream_bytes",
        "at least twice cluster.stream_keep_bytes",
    ),
    ("EXPIRY", "150ms", "cluster.expiry", "200ms"),
    (
        "NODE_LISTEN",
        "",
        "cluster.node_listen",
        "other nodes reach",
    ),
    (
        "NODE_LISTEN",
        "0.0.0.0:1",
        "cluster.advertise",
        "host and port",
    ),
    ("SECRET_FILE", "", "cluster.secret_file", "share"),
    ("CA_FILE", "ca", "cluster.urls", "tls://"),
    (
        "CERTIFICATE_FILE",
        "c",
        "cluster.certificate_file",
        "set together",
    ),
    (
        "NODE_KEY_FILE",
        "k",
        "cluster.node_certificate_file",
        "set together",
    ),
];

#[test]
fn a_node_of_a_cluster_names_what_it_lacks() {
    let base = "[server]\nadmin_token = \"0123456789abcdef\"\n[cluster]\nengine = \"nats\"\nnode = \
        \"a\"\nurls = [\"nats://h:4222\"]\n\
        durability = \"unchecked\"\nnode_listen = \"127.0.0.1:0\"\nsecret_file = \"s\"\n";
    assert_logins(base);
    for (variable, value, key, allowed) in CLUSTER_MISTAKES {
        let name = format!("GRIDHOOK_CLUSTER__{variable}");
        let error = load(base, &[(name.as_str(), value)], &[])
            .expect_err(variable)
            .to_string();
        assert!(
            error.contains(key) && error.contains(allowed),
            "{variable}={value}: {error}"
        );
    }
    assert_node_tls_is_read(base);
    for (most, keep) in [("2 GiB", "1 GiB"), ("0", "64 TiB"), ("1 MiB", "0")] {
        let sizes = [
            ("GRIDHOOK_CLUSTER__STREAM_BYTES", most),
            ("GRIDHOOK_CLUSTER__STREAM_KEEP_BYTES", keep),
        ];
        assert!(load(base, &sizes, &[]).is_ok(), "{most} and {keep}");
    }
    let refused = load(base, &[("GRIDHOOK_SERVER__ADMIN_TOKEN", "")], &[])
        .expect_err("no token")
        .to_string();
    assert!(
        refused.contains("server.admin_token") && refused.contains("share"),
        "{refused}"
    );
}

fn assert_logins(base: &str) {
    let cluster = load(base, &[], &[])
        .expect("good settings")
        .cluster
        .expect("a node");
    assert_eq!(
        (cluster.node.as_str(), cluster.replicas, cluster.login),
        ("a", 3, NatsLogin::Anonymous)
    );
    let both = [
        ("GRIDHOOK_CLUSTER__USERNAME", "u"),
        ("GRIDHOOK_CLUSTER__PASSWORD_FILE", "p"),
    ];
    let login = load(base, &both, &[])
        .expect("good settings")
        .cluster
        .expect("a node")
        .login;
    assert_eq!(
        login,
        NatsLogin::Password("u".to_owned(), PathBuf::from("p"))
    );
}

fn assert_node_tls_is_read(base: &str) {
    let files = ["NODE_CA_FILE", "NODE_CERTIFICATE_FILE", "NODE_KEY_FILE"]
        .map(|key| format!("GRIDHOOK_CLUSTER__{key}"));
    let tls = [
        (files[0].as_str(), "ca"),
        (files[1].as_str(), "crt"),
        (files[2].as_str(), "key"),
    ];
    let tls = load(base, &tls, &[])
        .expect("good settings")
        .cluster
        .expect("a node")
        .node_tls
        .expect("TLS");
    assert_eq!(
        (tls.authorities, tls.identity.key),
        (PathBuf::from("ca"), PathBuf::from("key"))
    );
}

#[test]
fn only_the_issuers_own_keys_are_accepted() {
    let with = |issuer: &str, jwks: &str| {
        load(
            &format!(
                "[auth]\nissuer = \"{issuer}\"\njwks = \"{jwks}\"\ntrusted_proxies = \
                 [\"10.0.0.0/8\"]\n"
            ),
            &[],
            &[],
        )
    };
    let keys = |jwks: &str| {
        with("https://issuer/", jwks)
            .expect("good settings")
            .auth
            .issuer
            .expect("an issuer")
            .keys
    };
    assert_eq!(
        keys("keys.json"),
        KeySource::File(PathBuf::from("keys.json"))
    );
    for url in [
        "https://issuer/keys",
        "http://127.0.0.1:9/keys",
        "http://[::1]/keys",
        "http://localhost/keys",
    ] {
        assert_eq!(keys(url), KeySource::Web(url.parse().expect("a URL")));
    }
    let refused = [
        ("https://issuer/", "http://issuer/keys"),
        ("https://issuer/", ""),
        ("", "keys.json"),
    ];
    let lines: Vec<_> = refused
        .iter()
        .map(|(issuer, jwks)| with(issuer, jwks).expect_err("it is refused"))
        .collect();
    expect![[r#"
        gridhook.toml: auth.jwks is "http://issuer/keys"; expected a file, an https URL, or an http URL of loopback
        gridhook.toml: auth.jwks is ""; expected the location of the keys of auth.issuer
        gridhook.toml: auth.issuer is ""; expected the issuer of the keys in auth.jwks"#]]
    .assert_eq(&lines.join("\n"));
    let proxies = load(
        "",
        &[("GRIDHOOK_AUTH__TRUSTED_PROXIES", "10.0.0.0/8, ::1/128")],
        &[],
    )
    .expect("good settings");
    assert_eq!(proxies.auth.trusted_proxies.len(), 2);
    // Peers are compared as IPv4.
    let mapped = load(
        "",
        &[(
            "GRIDHOOK_AUTH__TRUSTED_PROXIES",
            "::ffff:10.0.0.0/104, ::1/128",
        )],
        &[],
    )
    .expect("good settings");
    assert_eq!(mapped.auth.trusted_proxies, proxies.auth.trusted_proxies);
    // As in a settings file.
    let bracketed = load(
        "",
        &[
            (
                "GRIDHOOK_AUTH__TRUSTED_PROXIES",
                r#"["10.0.0.0/8", "::1/128"]"#,
            ),
            ("GRIDHOOK_SERVER__LISTEN", "[::]:8080"),
        ],
        &[],
    )
    .expect("good settings");
    assert_eq!(bracketed.auth.trusted_proxies, proxies.auth.trusted_proxies);
    assert_eq!(bracketed.server.listen.port(), 8080);
    refuses(
        "[auth]\ntrusted_proxies = [\"10.0.0.1\"]\n",
        &[],
        expect![[
            r#"gridhook.toml: auth.trusted_proxies is ["10.0.0.1"]; expected a list of networks such as ["10.0.0.0/8", "fd00::/8"]"#
        ]],
    );
}

#[test]
fn the_admin_token_has_a_short_variable_and_is_never_shown() {
    let config = load(
        "",
        &[("GRIDHOOK_ADMIN_TOKEN", "a-token-of-some-length")],
        &[],
    )
    .expect("good settings");
    let token = config
        .server
        .admin_token
        .as_ref()
        .map(|token| token.expose().to_owned());
    assert_eq!(token.as_deref(), Some("a-token-of-some-length"));
    assert!(!format!("{config:?}").contains("a-token"));
    // Only a setting that is a list has a list in its variable.
    let bracketed = "[1234567890123456]";
    let config = load("", &[("GRIDHOOK_ADMIN_TOKEN", bracketed)], &[]).expect("good settings");
    let token = config.server.admin_token.expect("a token");
    assert_eq!(token.expose(), bracketed);
    refuses(
        "",
        &[("GRIDHOOK_ADMIN_TOKEN", "short")],
        expect![
            "environment variable GRIDHOOK_ADMIN_TOKEN: server.admin_token is (not shown); expected \
             16 to 256 visible ASCII characters"
        ],
    );
}

#[test]
fn an_unknown_key_is_reported_with_similar_ones() {
    refuses(
        "[chaos]\nenable = true\n",
        &[],
        expect!["gridhook.toml: unknown key chaos.enable; did you mean chaos.enabled?"],
    );
    refuses(
        "",
        &[("GRIDHOOK_SERVER__LISTN", "127.0.0.1:80")],
        expect![
            "environment variable GRIDHOOK_SERVER__LISTN: unknown key server.listn; did you mean \
             GRIDHOOK_SERVER__LISTEN?"
        ],
    );
    refuses(
        "server = 5\n",
        &[],
        expect![
            "gridhook.toml: unknown key server; expected one of server.admin_listen, \
             server.admin_token, server.apply, server.dashboard, server.data_dir, \
             server.host_names, server.listen, server.public_url, server.shutdown_timeout, \
             server.tls_certificate, server.tls_key, server.tls_minimum_version, \
             server.tls_reload, server.workers"
        ],
    );
}

#[test]
fn an_empty_table_is_a_section_that_is_known() {
    for known in [
        "[server]",
        "[dead_letter.stores]",
        "[dead_letter.stores.main]",
        "[backup.store]",
        "[delivery]",
    ] {
        load(known, &[], &[]).unwrap_or_else(|error| panic!("{known}: {error}"));
    }
    for (unknown, key) in [
        ("[servr]", "servr"),
        ("[server.tls]", "server.tls"),
        ("[a.b.c]", "a.b.c"),
    ] {
        let error = load(unknown, &[], &[]).expect_err(unknown);
        assert!(
            error.contains(&format!("gridhook.toml: unknown key {key}")),
            "{unknown}: {error}"
        );
    }
}

#[test]
fn azure_is_a_rate_and_other_words_are_none() {
    let rates = |file: &str, variables: &[(&str, &str)]| {
        let publish = load(file, variables, &[]).expect("good settings").publish;
        (publish.events_per_second, publish.bytes_per_second)
    };
    let azure = "[publish]\nevents_per_second = \"azure\"\nbytes_per_second = \"azure\"\n";
    assert_eq!(rates(azure, &[]), (5_000, 5_000_000));
    let names = [
        "GRIDHOOK_PUBLISH__EVENTS_PER_SECOND",
        "GRIDHOOK_PUBLISH__BYTES_PER_SECOND",
    ];
    assert_eq!(
        rates("", &names.map(|name| (name, "azure"))),
        (5_000, 5_000_000)
    );
    assert_eq!(rates(azure, &names.map(|name| (name, "0"))), (0, 0));
    assert_eq!(
        rates(
            "[publish]\nevents_per_second = 7\nbytes_per_second = \"2 MB\"\n",
            &[]
        ),
        (7, 2_000_000)
    );
    refuses(
        "[publish]\nevents_per_second = \"aws\"\n",
        &[],
        expect![[
            r#"gridhook.toml: publish.events_per_second is "aws"; expected a whole number from 0 to 1000000000, or "azure" for 5000; 0 is no limit"#
        ]],
    );
    refuses(
        "[publish]\nbytes_per_second = \"much\"\n",
        &[],
        expect![[
            r#"gridhook.toml: publish.bytes_per_second is "much"; expected a size from 0 B to 1.0 TiB, or "azure" for 5.0 MB; 0 is no limit"#
        ]],
    );
}

#[test]
fn host_names_are_hosts_without_ports() {
    let names = |file: &str| {
        load(file, &[], &[])
            .map(|config| config.server.host_names)
            .map_err(|error| error.to_string())
    };
    let list = |names: &str| format!("[server]\nhost_names = {names}\n");
    assert_eq!(
        names(&list(
            r#"["GridHook", "*.Events.example.com", "10.1.2.3", "[::1]"]"#
        ))
        .expect("good"),
        ["gridhook", "*.events.example.com", "10.1.2.3", "[::1]"]
    );
    assert!(names("").expect("good").is_empty());
    for bad in [
        r#"["h:80"]"#,
        r#"["http://h"]"#,
        r#"["*"]"#,
        r#"["a.*.b"]"#,
        r#"["*.10.1.2.3"]"#,
        r#"["h/x"]"#,
        r#"[""]"#,
        "true",
    ] {
        let error = names(&list(bad)).expect_err(bad);
        assert!(
            error.contains("server.host_names") && error.contains("a list of hosts without ports"),
            "{error}"
        );
    }
}

#[test]
fn a_wrong_unit_or_kind_is_reported_with_what_is_allowed() {
    refuses(
        "[delivery]\nresponse_timeout = \"10 parsecs\"\n",
        &[],
        expect![[
            r#"gridhook.toml: delivery.response_timeout is "10 parsecs"; expected a duration from 1ms to 1h with its unit, such as "10s" or "5m""#
        ]],
    );
    refuses(
        "[delivery]\nresponse_timeout = 30\n",
        &[],
        expect![[
            r#"gridhook.toml: delivery.response_timeout is 30; expected a duration from 1ms to 1h with its unit, such as "10s" or "5m""#
        ]],
    );
    refuses(
        "[publish]\nbytes_in_flight = \"64 mib per day\"\n",
        &[],
        expect![[
            r#"gridhook.toml: publish.bytes_in_flight is "64 mib per day"; expected a size from 1.0 KiB to 64.0 GiB: a number of bytes, or one with its unit, such as "64 KiB""#
        ]],
    );
    refuses(
        "[delivery]\nallow_networks = [\"10.0.0.0/40\"]\n",
        &[],
        expect![[
            r#"gridhook.toml: delivery.allow_networks is ["10.0.0.0/40"]; expected "auto" or a list of networks such as ["10.0.0.0/8", "fd00::/8"]"#
        ]],
    );
    refuses(
        "[delivery]\nallow_http = 1\n",
        &[],
        expect![[r#"gridhook.toml: delivery.allow_http is 1; expected true, false or "auto""#]],
    );
    refuses(
        "[log]\nformat = \"xml\"\n",
        &[],
        expect![[r#"gridhook.toml: log.format is "xml"; expected "text" or "json""#]],
    );
    refuses(
        "[log]\nfilter = \"verbose\"\n",
        &[],
        expect![[
            r#"gridhook.toml: log.filter is "verbose"; expected a level (error, warn, info, debug, trace), or a comma-separated list of MODULE=LEVEL"#
        ]],
    );
    refuses(
        "[server]\npublic_url = \"events.example.com\"\n",
        &[],
        expect![[
            r#"gridhook.toml: server.public_url is "events.example.com"; expected a URL such as "https://events.example.com", without query and fragment"#
        ]],
    );
    refuses(
        "",
        &[("GRIDHOOK_DELIVERY__CONCURRENCY", "many")],
        expect![[
            r#"environment variable GRIDHOOK_DELIVERY__CONCURRENCY: delivery.concurrency is "many"; expected a whole number from 1 to 10000"#
        ]],
    );
    refuses(
        "",
        &[("GRIDHOOK_DELIVERY__CONCURRENCY", "0")],
        expect![
            "environment variable GRIDHOOK_DELIVERY__CONCURRENCY: delivery.concurrency is 0; \
             expected a whole number from 1 to 10000"
        ],
    );
    let flag = load("", &[], &[("--listen", "server.listen", "8080")]).expect_err("a port alone");
    expect![[r#"flag --listen: server.listen is "8080"; expected an IP address and a port, such as "127.0.0.1:8080" or "[::]:8080""#]].assert_eq(&flag);
}

#[test]
fn a_syntax_error_is_reported_with_its_place() {
    refuses(
        "[server]\nlisten = 127.0.0.1:8080\n",
        &[],
        expect![[r#"
        gridhook.toml: TOML parse error at line 2, column 15
          |
        2 | listen = 127.0.0.1:8080
          |               ^^^^^^^^^
        invalid float, expected nothing"#]],
    );
}

#[test]
fn settings_that_contradict_each_other_are_reported_with_both_sources() {
    refuses(
        "[publish]\nevent_bytes = \"2 MiB\"\n",
        &[],
        expect![[
            r#"gridhook.toml: publish.event_bytes is "2 MiB"; expected at most publish.request_bytes, which is 1536000 (default)"#
        ]],
    );
    refuses(
        "[publish]\nbytes_in_flight = \"1 MiB\"\nevent_bytes = \"64 KiB\"\n",
        &[],
        expect![[
            r#"gridhook.toml: publish.bytes_in_flight is "1 MiB"; expected at least publish.request_bytes, which is 1536000 (default)"#
        ]],
    );
    refuses(
        "[journal]\nwrite_buffer_bytes = \"128 MiB\"\n",
        &[("GRIDHOOK_JOURNAL__MAX_TOTAL_WAL_BYTES", "100 MiB")],
        expect![[
            r#"gridhook.toml: journal.write_buffer_bytes is "128 MiB"; expected at most journal.max_total_wal_bytes, which is "100 MiB" (environment variable GRIDHOOK_JOURNAL__MAX_TOTAL_WAL_BYTES)"#
        ]],
    );
    refuses(
        "[policy]\nedition = \"2019\"\n",
        &[],
        expect![[
            r#"gridhook.toml: policy.edition is "2019"; expected one of 2020, 2021, 2023, current, namespace"#
        ]],
    );
}

/// A wrong value, an unknown key, and contradictions in every section that can have one.
const EVERYTHING_WRONG: &str = r#"
[server]
listen = "8080"
tls_certificate = "server.crt"
[publish]
event_bytes = "2 MiB"
bytes_in_flight = "1 MiB"
request_bytes = "nothing"
[journal]
write_buffer_bytes = "128 MiB"
retantion = "1 h"
[auth]
jwks = "http://example.com/keys"
[policy]
edition = "2019"
[dead_letter.stores.one]
url = "s3://bucket"
accounts = ["a"]
endpoint = "http://127.0.0.1:9000"
sas_token = "hush"
access_key_id_file = "nowhere"
[dead_letter.stores.two]
url = "s3://bucket"
accounts = ["a"]
[dead_letter.stores.three]
url = 3
[dead_letter.stores.four]
url = "file:///"
"#;

#[test]
fn all_errors_of_the_settings_are_reported_at_once() {
    refuses(
        EVERYTHING_WRONG,
        &[],
        expect![[r#"
        15 settings cannot be used:
          gridhook.toml: unknown key journal.retantion; did you mean journal.retention?
          gridhook.toml: dead_letter.stores.three.url is 3; expected a string
          gridhook.toml: publish.request_bytes is "nothing"; expected a size from 1.0 KiB to 64.0 MiB: a number of bytes, or one with its unit, such as "64 KiB"
          gridhook.toml: server.listen is "8080"; expected an IP address and a port, such as "127.0.0.1:8080" or "[::]:8080"
          gridhook.toml: journal.write_buffer_bytes is "128 MiB"; expected at most journal.max_total_wal_bytes, which is "64 MiB" (default)
          default: auth.issuer is ""; expected the issuer of the keys in auth.jwks
          gridhook.toml: auth.jwks is "http://example.com/keys"; expected a file, an https URL, or an http URL of loopback
          default: server.tls_key is ""; expected a file: server.tls_certificate and server.tls_key are set together
          gridhook.toml: policy.edition is "2019"; expected one of 2020, 2021, 2023, current, namespace
          gridhook.toml: dead_letter.stores.four.url is "file:///"; expected a folder other than the root folder
          gridhook.toml: dead_letter.stores.one.endpoint is "http://127.0.0.1:9000"; expected https, or http where dead_letter.stores.one.allow_http is true
          gridhook.toml: dead_letter.stores.one.access_key_id_file is "nowhere"; expected a readable file: No such file or directory (os error 2)
          gridhook.toml: dead_letter.stores.one.sas_token is (not shown); expected nothing: the credentials for s3://bucket are access_key_id, secret_access_key, session_token
          gridhook.toml: dead_letter.stores.two.accounts is ["a"]; expected accounts that no other store has; another store has "a"
          gridhook.toml: dead_letter.stores.two.url is "s3://bucket"; expected an address that no other store has; the store one has it"#]],
    );
    // A wrong value is not compared with others.
    refuses(
        "[publish]\nrequest_bytes = \"1 GiB\"\nbytes_in_flight = \"1 MiB\"\n",
        &[],
        expect![[
            r#"gridhook.toml: publish.request_bytes is "1 GiB"; expected a size from 1.0 KiB to 64.0 MiB: a number of bytes, or one with its unit, such as "64 KiB""#
        ]],
    );
}

#[test]
fn every_edition_that_cannot_be_read_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        fs::write(folder.path().join(format!("{name}.toml")), "steps = 3\n")
            .expect("a file that can be written");
    }
    let file = format!(
        "[policy]\nedition = \"c\"\neditions_dir = {:?}\n",
        folder.path()
    );
    let errors = load(&file, &[], &[]).expect_err("two editions that cannot be read");
    assert!(errors.starts_with("2 settings cannot be used:"), "{errors}");
    assert!(
        errors.contains("a.toml: ") && errors.contains("b.toml: "),
        "{errors}"
    );
    // Whether there is an edition c is not known.
    assert!(!errors.contains("policy.edition is"), "{errors}");
}

#[test]
fn a_certificate_and_its_key_are_given_together() {
    refuses(
        "[server]\ntls_certificate = \"server.crt\"\n",
        &[],
        expect![[
            r#"default: server.tls_key is ""; expected a file: server.tls_certificate and server.tls_key are set together"#
        ]],
    );
    refuses(
        "",
        &[("GRIDHOOK_SERVER__TLS_MINIMUM_VERSION", "1.1")],
        expect![[
            r#"environment variable GRIDHOOK_SERVER__TLS_MINIMUM_VERSION: server.tls_minimum_version is "1.1"; expected "1.2" or "1.3""#
        ]],
    );
    refuses(
        "[delivery]\ntls_roots = []\n",
        &[],
        expect![[
            r#"gridhook.toml: delivery.tls_roots is []; expected a list of "system" and paths of PEM files, not empty"#
        ]],
    );
    let config = load(
        "",
        &[("GRIDHOOK_DELIVERY__TLS_ROOTS", "system, ca.pem")],
        &[],
    )
    .expect("good settings");
    assert_eq!(
        config.delivery.tls_roots,
        [TrustRoots::System, TrustRoots::File("ca.pem".into())]
    );
}

#[test]
fn a_missing_file_is_reported() {
    let sources = SettingSources {
        file: Some("nowhere/gridhook.toml".into()),
        ..SettingSources::default()
    };
    let error = Config::load(&sources).expect_err("no file").to_string();
    expect!["nowhere/gridhook.toml cannot be read: No such file or directory (os error 2)"]
        .assert_eq(&error);
}

#[test]
fn only_a_server_on_loopback_delivers_to_loopback_and_by_http() {
    let listening = |at: &str, more: &str| {
        let file = format!("[server]\nlisten = \"{at}\"\n[delivery]\n{more}");
        load(&file, &[], &[])
            .expect("good settings")
            .delivery
            .to_string()
    };
    expect!["http and https endpoints, at public addresses and in 127.0.0.0/8 and in ::1/128"]
        .assert_eq(&listening("127.0.0.1:8080", ""));
    expect!["https endpoints only, at public addresses and in 127.0.0.0/8 and in ::1/128"]
        .assert_eq(&listening("[::1]:8080", "allow_http = false"));
    expect!["https endpoints only, at public addresses"].assert_eq(&listening("0.0.0.0:8080", ""));
    expect!["http and https endpoints, at public addresses and in 10.0.0.0/8 and in fd00::/8"]
        .assert_eq(&listening(
            "0.0.0.0:8080",
            "allow_http = true\nallow_networks = [\"10.0.0.0/8\", \"fd00::/8\"]",
        ));
    let variables = [
        ("GRIDHOOK_DELIVERY__ALLOW_HTTP", "true"),
        (
            "GRIDHOOK_DELIVERY__ALLOW_NETWORKS",
            "10.0.0.0/8, 127.0.0.0/8",
        ),
    ];
    let config = load("", &variables, &[]).expect("good settings");
    assert_eq!(
        (
            config.delivery.allow_http,
            config.delivery.allow_networks.len()
        ),
        (true, 2)
    );
}

#[test]
fn editions_of_ones_own_are_read_from_a_folder_and_checked() {
    let _rows = crate::spec::shows(&[
        "S000-170: The probation durations serve better delivery management and may change in the \
         future.",
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let current = include_str!("../config/editions/current.toml");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a file that can be written")
    };
    let quicker = current
        .replace("schedule = [\"10s\"", "schedule = [\"20ms\"")
        .replace("Busy = \"10s\"", "Busy = \"7s\"");
    write("quick.toml", &quicker);
    write("notes.txt", "not an edition");
    let file = format!(
        "[policy]\nedition = \"quick\"\neditions_dir = {:?}\n",
        folder.path()
    );
    let config = load(&file, &[], &[]).expect("good settings");
    let quick = config
        .policy
        .editions
        .get(&config.policy.edition)
        .expect("the edition");
    assert_eq!(
        (quick.retry.schedule[0], quick.retry.steps),
        (Duration::from_millis(20), StepOrigin::Delays)
    );
    let busy = |name: &str| {
        config
            .policy
            .editions
            .get(name)
            .expect("the edition")
            .probation
            .durations[&Failure::Busy]
    };
    assert_eq!(
        (busy("quick"), busy("current")),
        (Duration::from_secs(7), Duration::from_secs(10))
    );
    assert_eq!(
        config.policy.editions.names().collect::<Vec<_>>(),
        ["2020", "2021", "2023", "current", "namespace", "quick"]
    );

    let shown = |text: &str| {
        write("quick.toml", text);
        load(&file, &[], &[])
            .expect_err("a bad edition")
            .replace(&format!("{}/", folder.path().display()), "")
    };
    expect![[r#"
        quick.toml: TOML parse error at line 19, column 10
           |
        19 | repeat = "12 moons"
           |          ^^^^^^^^^^
        invalid value: string "12 moons", expected a duration"#]]
    .assert_eq(&shown(
        &current.replace("repeat = \"12h\"", "repeat = \"12 moons\""),
    ));
    expect!["quick.toml: retry.jitter_share is 10; expected a number from 0 to 1"].assert_eq(
        &shown(&current.replace("jitter_share = 0.1", "jitter_share = 10")),
    );
    expect![[r#"
        quick.toml: TOML parse error at line 104, column 1
            |
        104 | Sleepy = "10s"
            | ^^^^^^
        unknown variant `Sleepy`, expected one of `NotFound`, `Disabled`, `Full`, `Unauthorized`, `BadRequest`, `TimedOut`, `Busy`, `PayloadTooLarge`, `SocketError`, `ResolutionError`, `SessionQueueNotSupported`, `Forbidden`, `InvalidAzureFunctionDestination`, `GenericError`, `TransformationFailed`, `CredentialRefused`"#]].assert_eq(&shown(&current.replace("Busy = ", "Sleepy = ")));
}

#[test]
fn an_edition_of_ones_own_may_have_only_what_differs_from_its_base() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!(
        "[policy]\nedition = \"own\"\neditions_dir = {:?}\n",
        folder.path()
    );
    let own = |text: &str| {
        fs::write(folder.path().join("own.toml"), text).expect("a file that can be written");
        load(&file, &[], &[]).map(|config| config.policy.editions)
    };
    let text = "base = \"2021\"\n[retry]\nrepeat = \"2h\"\n[webhook.waits]\n503 = \"1m\"\n";
    let editions = own(text).expect("an edition");
    let [edition, base] =
        ["own", "2021"].map(|name| Edition::clone(&editions.get(name).expect("an edition")));
    let mut expected = base.clone();
    expected.retry.repeat = Duration::from_secs(7200);
    expected.webhook.waits = [(503, Duration::from_secs(60))].into();
    assert_eq!(edition, expected);
    // The base of an edition of the program is never an edition of the operator's.
    fs::write(
        folder.path().join("current.toml"),
        "base = \"current\"\n[retry]\nrepeat = \"7h\"\n",
    )
    .expect("a file");
    let editions = own(text).expect("an edition");
    assert_eq!(editions.get("own").as_deref(), Some(&expected));
    assert_eq!(
        editions.get("current").expect("an edition").retry.repeat,
        Duration::from_secs(7 * 3600)
    );

    let refused = |text: &str| {
        own(text)
            .map(drop)
            .expect_err("a bad edition")
            .replace(&format!("{}/", folder.path().display()), "")
    };
    expect![[r#"own.toml: base is "other"; expected an edition of the program: "2020", "2021", "2023", "current", "namespace""#]]
        .assert_eq(&refused("base = \"other\""));
    expect![[r#"own.toml: retry.repeat: invalid value: string "12 moons", expected a duration"#]]
        .assert_eq(&refused("base = \"2021\"\n[retry]\nrepeat = \"12 moons\""));
    expect![
        "own.toml: retry.repaet: unknown field `repaet`, expected one of `schedule`, `steps`, \
         `repeat`, `jitter_share`, `jitter_max`, `retry_after_max`"
    ]
    .assert_eq(&refused("base = \"2021\"\n[retry]\nrepaet = \"12h\""));
    expect![
        "own.toml: webhook has a wait for status 410 and never retries it; expected one of \
         the two"
    ]
    .assert_eq(&refused(
        "base = \"2021\"\n[webhook]\nnever_retried = [410]",
    ));
}

const STORES: &str = r#"
[dead_letter]
folder = ""
[dead_letter.stores.archive]
url = "s3://letters/prefix"
accounts = ["mystorageaccount"]
endpoint = "http://127.0.0.1:9000"
allow_http = true
region = "eu-central-1"
access_key_id = "key"
secret_access_key = "very secret"
[dead_letter.stores.blob]
url = "https://account1.blob.core.windows.net"
"#;

#[test]
fn stores_of_dead_letters_are_tables_with_names() {
    let config = load(
        STORES,
        &[("GRIDHOOK_DEAD_LETTER__STORES__BLOB__ACCESS_KEY", "c2VjcmV0")],
        &[],
    )
    .expect("stores");
    let stores = &config.dead_letter.stores;
    assert_eq!(stores.keys().collect::<Vec<_>>(), ["archive", "blob"]);
    let archive = &stores["archive"];
    assert_eq!(
        (archive.address.to_string().as_str(), archive.allow_http),
        ("s3://letters/prefix", true)
    );
    assert_eq!(
        archive.endpoint.as_ref().map(url::Url::as_str),
        Some("http://127.0.0.1:9000/")
    );
    let secrets: Vec<_> = archive
        .credentials
        .iter()
        .map(|(name, secret)| (*name, secret.expose()))
        .collect();
    assert_eq!(
        secrets,
        [
            ("access_key_id", "key"),
            ("secret_access_key", "very secret")
        ]
    );
    assert_eq!(stores["blob"].credentials[0].1.expose(), "c2VjcmV0");
    assert!(!format!("{config:?}").contains("very secret"));
    let place = config
        .dead_letter
        .named_stores
        .find_destination("MyStorageAccount", "a")
        .expect("a place");
    assert_eq!(
        (place.store.as_str(), place.folder.as_str()),
        ("archive", "a")
    );
}

#[test]
fn a_credential_may_stand_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    fs::write(&path, "from a file\n").expect("written");
    let store = format!(
        "[dead_letter.stores.a]\nurl = \"s3://b\"\naccess_key_id = \"k\"\nsecret_access_key_file = \
         {:?}\n",
        path.display().to_string()
    );
    let config = load(&store, &[], &[]).expect("a store");
    assert_eq!(
        config.dead_letter.stores["a"].credentials[1].1.expose(),
        "from a file"
    );
}

fn impossible_stores() -> Vec<(String, Expect)> {
    let store = |lines: &str| format!("[dead_letter.stores.a]\n{lines}\n");
    vec![
        (
            store("url = \"ftp://host\""),
            expect![[
                r#"gridhook.toml: dead_letter.stores.a.url is "ftp://host"; expected file:///folder, s3://bucket/prefix, gs://bucket/prefix, https://account.blob.core.windows.net/container or az://account/container"#
            ]],
        ),
        (
            store("accounts = [\"b\"]"),
            expect![
                "default: dead_letter.stores.a.url is missing; expected file:///folder, \
                 s3://bucket/prefix, gs://bucket/prefix, \
                 https://account.blob.core.windows.net/container or az://account/container"
            ],
        ),
        (
            store("url = \"s3://b\"\nbucket = \"c\""),
            expect![
                "gridhook.toml: unknown key dead_letter.stores.a.bucket; expected one of \
                 dead_letter.stores.a.access_key, dead_letter.stores.a.access_key_file, \
                 dead_letter.stores.a.access_key_id, dead_letter.stores.a.access_key_id_file, \
                 dead_letter.stores.a.accounts, dead_letter.stores.a.allow_http, \
                 dead_letter.stores.a.client_id, dead_letter.stores.a.client_id_file, \
                 dead_letter.stores.a.client_secret, dead_letter.stores.a.client_secret_file, \
                 dead_letter.stores.a.endpoint, dead_letter.stores.a.region, \
                 dead_letter.stores.a.sas_token, dead_letter.stores.a.sas_token_file, \
                 dead_letter.stores.a.secret_access_key, dead_letter.stores.a.secret_access_key_file, \
                 dead_letter.stores.a.service_account_key, \
                 dead_letter.stores.a.service_account_key_file, dead_letter.stores.a.session_token, \
                 dead_letter.stores.a.session_token_file, dead_letter.stores.a.tenant_id, \
                 dead_letter.stores.a.tenant_id_file, dead_letter.stores.a.url, \
                 dead_letter.stores.a.used_by"
            ],
        ),
        (
            store("url = \"s3://b\"\naccess_key = \"secret\""),
            expect![
                "gridhook.toml: dead_letter.stores.a.access_key is (not shown); expected nothing: \
                 the credentials for s3://b are access_key_id, secret_access_key, session_token"
            ],
        ),
        (
            store("url = \"file:///b\"\naccess_key = \"secret\""),
            expect![
                "gridhook.toml: dead_letter.stores.a.access_key is (not shown); expected nothing: a \
                 folder needs no credentials (file:///b)"
            ],
        ),
        (
            store("url = \"s3://b\"\nendpoint = \"http://c\""),
            expect![[
                r#"gridhook.toml: dead_letter.stores.a.endpoint is "http://c"; expected https, or http where dead_letter.stores.a.allow_http is true"#
            ]],
        ),
        (
            store("url = \"file:///\""),
            expect![[
                r#"gridhook.toml: dead_letter.stores.a.url is "file:///"; expected a folder other than the root folder"#
            ]],
        ),
        (
            store("url = \"s3://b\"\nsecret_access_key = \"s\"\nsecret_access_key_file = \"f\""),
            expect![[
                r#"gridhook.toml: dead_letter.stores.a.secret_access_key_file is "f"; expected nothing, because dead_letter.stores.a.secret_access_key is set, too"#
            ]],
        ),
        (
            "[dead_letter.stores.A]\nurl = \"s3://b\"".to_owned(),
            expect![[
                r#"gridhook.toml: dead_letter.stores.A.url is "s3://b"; expected a name of 1 to 40 lower-case letters, digits, hyphens and underscores"#
            ]],
        ),
        (
            "[dead_letter.stores.folder]\nurl = \"s3://b\"".to_owned(),
            expect![[
                r#"gridhook.toml: dead_letter.stores.folder.url is "s3://b"; expected another name: "folder" is the store of dead_letter.folder"#
            ]],
        ),
    ]
}

#[test]
fn an_impossible_store_is_reported_without_its_secrets() {
    for (lines, expected) in impossible_stores() {
        refuses(&lines, &[], expected);
    }
    let two =
        |a: &str, b: &str| format!("[dead_letter.stores.a]\n{a}\n[dead_letter.stores.b]\n{b}\n");
    refuses(
        &two("url = \"s3://b\"", "url = \"s3://b/\""),
        &[],
        expect![[
            r#"gridhook.toml: dead_letter.stores.b.url is "s3://b/"; expected an address that no other store has; the store a has it"#
        ]],
    );
    let [one, other] = [
        "url = \"s3://b\"\naccounts = [\"x\"]",
        "url = \"s3://c\"\naccounts = [\"x\"]",
    ];
    refuses(
        &two(one, other),
        &[],
        expect![[
            r#"gridhook.toml: dead_letter.stores.b.accounts is ["x"]; expected accounts that no other store has; another store has "x""#
        ]],
    );
}

/// The variables that Kubernetes sets in every pod of a namespace with a service "gridhook".
const OF_KUBERNETES: [(&str, &str); 7] = [
    ("GRIDHOOK_PORT", "tcp://10.0.0.1:8080"),
    ("GRIDHOOK_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
    ("GRIDHOOK_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ("GRIDHOOK_PORT_8080_TCP_PORT", "8080"),
    ("GRIDHOOK_PORT_8080_TCP_PROTO", "tcp"),
    ("GRIDHOOK_SERVICE_HOST", "10.0.0.1"),
    ("GRIDHOOK_SERVICE_PORT_HTTP", "8080"),
];

#[test]
fn variables_that_are_no_settings_do_no_harm_and_near_misses_are_reported() {
    let config = load("", &OF_KUBERNETES, &[]).expect("nothing of it is a setting");
    assert_eq!(config.server.listen, defaults().server.listen);
    let near = |names: &[(&str, &str)]| {
        let environment = names
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect();
        gridhook::config::near_misses(&SettingSources {
            environment,
            ..SettingSources::default()
        })
    };
    assert_eq!(near(&OF_KUBERNETES), []);
    let response = near(&[
        ("GRIDHOOK_SERVER_LISTEN", "x"),
        ("GRIDHOOK_LISTEN", "x"),
        ("GRIDHOOK_JOURNAL_BACKLOG_MAX", "x"),
        ("GRIDHOOK_SERVER__LISTEN", "127.0.0.1:80"),
        ("GRIDHOOK_SERVER", "http://127.0.0.1:8080"),
        ("GRIDHOOK_TOKEN", "x"),
        ("GRIDHOOK_ADMIN_TOKEN", "x"),
    ]);
    let pair = |name: &str, meant: &str| (name.to_owned(), meant.to_owned());
    assert_eq!(
        response,
        [
            pair("GRIDHOOK_SERVER_LISTEN", "GRIDHOOK_SERVER__LISTEN"),
            pair("GRIDHOOK_LISTEN", "GRIDHOOK_SERVER__LISTEN"),
            pair(
                "GRIDHOOK_JOURNAL_BACKLOG_MAX",
                "GRIDHOOK_JOURNAL__BACKLOG_MAX"
            ),
        ]
    );
}

/// Each shard of a cluster has a folder of the destination of backups.
#[test]
fn a_part_of_the_destination_of_backups_has_its_credentials() {
    let file = "[backup.store]\nurl = \"s3://bucket/gridhook\"\nregion = \
        \"eu-north-1\"\naccess_key_id = \"id\"\n\
        secret_access_key = \"secret\"\n";
    let backup = load(file, &[], &[]).expect("good settings").backup;
    let store = |url| {
        backup_store(&backup, url)
            .expect("an address")
            .expect("a store")
    };
    let of_settings = store(None);
    assert_eq!(of_settings.credentials.len(), 2);
    let of_shard = store(Some("s3://bucket/gridhook/shard-3"));
    assert_eq!(
        (of_shard.address.path.len(), of_shard.region.as_deref()),
        (3, Some("eu-north-1"))
    );
    assert_eq!(of_shard.credentials.len(), 2);
    for other in [
        "s3://bucket/other",
        "s3://bucket",
        "gs://bucket/gridhook/shard-3",
    ] {
        assert!(
            store(Some(other)).credentials.is_empty(),
            "{other} is another store"
        );
    }
}

#[test]
fn the_example_of_a_cluster_in_the_manual_can_be_used() {
    let chapter = manual::find("cluster").expect("the chapter").markdown;
    let (_, after) = chapter.split_once("```toml\n").expect("an example");
    let (example, _) = after.split_once("```").expect("its end");
    let config = load(example, &[], &[]).expect("good settings");
    assert_eq!(config.cluster.expect("a cluster").node, "node-a");
}
