//! Behaviour that all commands share: help, closed pipes, contexts, names of flags.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use expect_test::expect;
use gridhook::{cli, manual::CHAPTERS};
use serde_json::Value;

use crate::support::{
    certificates::Authority,
    server::{Server, operator},
    sink::Sink,
};

/// The binary in a folder, without variables and contexts of the environment.
fn gridhook(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
    {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .current_dir(folder)
        .env("XDG_CONFIG_HOME", folder)
        .stdin(Stdio::null());
    command
}

fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
        .trim_end()
        .to_owned()
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = gridhook(folder, arguments)
        .output()
        .expect("the binary starts");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        output_text(&output)
    );
    output_text(&output)
}

/// All commands; subcommands with their full names.
fn walk(command: &clap::Command, above: &str, found: &mut Vec<(String, clap::Command)>) {
    for child in command.get_subcommands() {
        let name = format!("{above} {}", child.get_name())
            .trim_start()
            .to_owned();
        walk(child, &name, found);
        found.push((name, child.clone()));
    }
}

fn commands() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    let mut root = cli::build_command();
    root.build();
    walk(&root, "", &mut found);
    found
}

#[test]
fn every_command_is_in_one_group_of_the_help() {
    let folder = tempfile::tempdir().expect("a folder");
    let help = run(folder.path(), &["--help"]);
    for name in cli::build_command()
        .get_subcommands()
        .map(clap::Command::get_name)
    {
        let lines = help
            .lines()
            .filter(|line| line.starts_with(&format!("  {name} ")));
        assert_eq!(lines.count(), 1, "{name} stands once in\n{help}");
    }
    let headings: Vec<&str> = help
        .lines()
        .filter(|line| line.ends_with(':') && !line.starts_with(' '))
        .collect();
    expect![[r#"
        Run a server:
        Set up topics:
        Publish and observe:
        Trace an event:
        Deliver again:
        Control access:
        Maintain the store:
        Test:
        Configure the commands:
        Options:"#]]
    .assert_eq(&headings.join("\n"));
}

#[test]
fn flags_are_grouped_under_their_headings() {
    const SERVER: [&str; 4] = ["ca_file", "context", "server", "token_file"];
    let mut headed = BTreeSet::new();
    for (name, command) in commands() {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let heading = argument.get_help_heading();
            match heading {
                Some("Server") => assert!(
                    SERVER.contains(&id),
                    "--{id} of {name} is not about the server"
                ),
                Some("Settings") => assert!(
                    name.ends_with("create") || name.ends_with("update"),
                    "{name} --{id}"
                ),
                Some("Faults") => assert_eq!(name, "chaos", "--{id}"),
                Some("Which dead letters") => {
                    assert!(name.starts_with("dead-letters"), "{name} --{id}")
                }
                Some(other) => panic!("{name} --{id} stands under {other}"),
                // In `context add` these flags are properties of the context.
                None => assert!(
                    !SERVER.contains(&id) || name == "context add",
                    "{name} --{id} has no heading"
                ),
            }
            headed.extend(heading.map(|heading| heading.to_string()));
        }
    }
    assert_eq!(headed.len(), 4, "{headed:?}");
}

#[test]
fn flags_have_the_same_names_in_all_commands() {
    // These commands have no JSON output.
    const WITHOUT: [&str; 4] = ["serve", "help", "completions", "man"];
    let all = commands();
    for (name, command) in &all {
        let is_leaf = command.get_subcommands().next().is_none();
        let output = command
            .get_arguments()
            .find(|argument| argument.get_id() == "output");
        match output {
            Some(output) => {
                let forms: Vec<String> = output
                    .get_possible_values()
                    .iter()
                    .map(|form| form.get_name().to_owned())
                    .collect();
                assert_eq!(forms, ["table", "json"], "{name} --output");
            }
            None => assert!(
                !is_leaf || WITHOUT.contains(&name.as_str()),
                "{name} has no --output"
            ),
        }
        for argument in command.get_arguments() {
            let long = argument.get_long().unwrap_or_default();
            let other =
                ["top", "count", "events-per-second", "pause", "url", "lines"].contains(&long);
            assert!(
                !other,
                "{name} --{long}: its name is --limit, --rate, hold or TOPIC elsewhere"
            );
        }
    }
    assert!(
        all.iter().all(|(name, _)| name != "subscriptions pause"),
        "it is held: status says heldBy"
    );
}

#[test]
fn help_explains_commands_and_subjects() {
    let folder = tempfile::tempdir().expect("a folder");
    let help = |words: &[&str]| run(folder.path(), &[&["help"], words].concat());
    assert_eq!(help(&[]), run(folder.path(), &["--help"]));
    assert!(
        help(&["topics", "create"]).starts_with("Create a topic"),
        "{}",
        help(&["topics", "create"])
    );
    expect![[r#"
        TIMES

        2026-01-31T12:00:00Z
            A point in time (RFC 3339).
        2026-01-31
            The beginning of this day, in UTC.
        90m, 2h, 7d, PT90M
            This long ago (--from, --to, --starts-from), or from now (--expires).

        The machine's clock

        The time of a running server never goes back. When the machine's clock is set,
        the server's time approaches it by at most one twentieth of the time that
        passes. `gridhook clock show` prints both. Signatures, tokens and dates in
        requests follow the machine's clock at once.

        - After a start with a clock that is ahead of the last run by more than
          `clock.jump_max`, events are delivered and nothing expires until `gridhook
          clock confirm`, or for `clock.expiry_pause_max`. Expiry resumes at once if the
          clock returns.
        - `gridhook clock confirm` resumes expiry. If the machine's clock is ahead of
          the server's time, the server adopts it within a minute. If it is behind by
          more than a minute, the server restarts within a second, in the same process
          and with the same sockets, and then uses the machine's clock. It stops as for
          SIGTERM: requests in flight finish within `server.shutdown_timeout`,
          publishers receive 503 with `Retry-After`, and clients reconnect. A node of a
          cluster gives up its shards, and the next owners continue from the confirmed
          clock.
        - A wrong clock may have set times that are too late. The server reduces each to
          the longest possible wait of its kind: retries, suspensions, locks of received
          events, dead letters that wait for their file, and scheduled backups. A manual
          validation that began with the wrong clock stays open until its time.
        - Events that were published with a wrong clock keep their time. For an event
          with a time in the future, the time to live begins then; it is attempted as
          often as any other event. Events that were never attempted, and the log,
          expire with the first event that was published after the correction.
        - Windows of duplicate detection end at the corrected time, also for ids that
          were recorded with a wrong clock."#]]
    .assert_eq(&help(&["times"]));
    let list = help(&["help"]);
    for chapter in CHAPTERS {
        let text = help(&[chapter.name]);
        assert_eq!(text, chapter.text(), "{}", chapter.name);
        assert!(text.lines().count() > 3, "{}", chapter.name);
        assert!(
            list.split([' ', ',', '\n'])
                .any(|name| name == chapter.name),
            "{} is listed",
            chapter.name
        );
    }
}

/// Runs a command with a closed standard output. It must succeed without an error.
fn assert_quiet(mut command: Command) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("the binary starts");
    assert!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        output_text(&output)
    );
    assert_eq!(output_text(&output), "", "{command:?}");
}

#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for arguments in [
        &["--help"][..],
        &["help", "topics"],
        &["help", "names"],
        &["config", "check"],
        &["completions", "bash"],
        &["man", "pages"],
        &["context", "list"],
        &["simulate", "--subscriptions", "20", "--days", "0.01"],
    ] {
        assert_quiet(gridhook(folder, arguments));
    }
    let server = Server::start(&[("JOURNAL__RETENTION", "1h")]);
    let sink = Sink::start();
    let at = format!("http://{}", server.address());
    let token = server.data_dir().join("admin-token");
    operator(&server, &["topics", "create", "orders"]).expect("a topic");
    operator(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/a"),
        ],
    )
    .expect("one");
    fs::write(folder.join("events.json"), EVENT).expect("a file");
    fs::write(folder.join("topics.toml"), "[topics.orders]\n").expect("a file");
    for arguments in [
        &["publish", "orders", "events.json"][..],
        &["health", "--live"],
        &["topics", "list"],
        &["topics", "show", "orders"],
        &["topics", "keys", "orders"],
        &["subscriptions", "list"],
        &["subscriptions", "show", "orders", "billing"],
        &["subscriptions", "test-filter", "orders", "billing"],
        &["trace", "1", "--topic", "orders"],
        &["explain", "orders", "billing", "1"],
        &["ledger", "orders", "billing"],
        &["dead-letters", "list", "orders", "billing"],
        &["replay", "list", "orders", "billing"],
        &["supervision"],
        &["clock", "show"],
        &["top", "--once", "--every", "500ms"],
        &["apply", "-f", "topics.toml", "--dry-run"],
        &["fsck", "--online"],
        &["backup", "backup"],
    ] {
        let mut command = gridhook(folder, arguments);
        command.args(["--server", &at]);
        if arguments[0] != "health" {
            command.arg("--token-file").arg(&token);
        }
        assert_quiet(command);
    }
}

#[test]
fn a_failed_write_is_reported_and_a_closed_standard_error_is_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("a full device");
    let output = gridhook(folder.path(), &["help", "times"])
        .stdout(full)
        .output()
        .expect("the binary starts");
    expect!["gridhook: standard output cannot be written: No space left on device (os error 28)"]
        .assert_eq(&output_text(&output));
    assert_eq!(output.status.code(), Some(1));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = gridhook(folder.path(), &["help", "nothing"])
        .stderr(writer)
        .status()
        .expect("the binary starts");
    assert_eq!(
        status.code(),
        Some(2),
        "nobody hears why, and it is no panic"
    );
}

const EVENT: &str = r#"{"id": "1", "eventType": "Order.Placed", "subject": "/a", "eventTime": "2026-01-01T00:00:00Z",
    "dataVersion": "1", "data": {}}"#;

#[test]
fn contexts_are_kept_and_used() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let at = format!("http://{}", server.address());
    let folder = folder.path();
    fs::copy(server.data_dir().join("admin-token"), folder.join("token")).expect("a token");
    run(
        folder,
        &[
            "context",
            "add",
            "here",
            "--server",
            &at,
            "--token-file",
            "token",
        ],
    );
    run(
        folder,
        &[
            "context",
            "add",
            "nowhere",
            "--server",
            "http://127.0.0.1:9",
        ],
    );
    let listed = run(folder, &["context", "list"])
        .replace(&at, "SERVER")
        .replace(folder.to_str().expect("text"), "DIR");
    expect![[r#"
        NAME     IN USE  SERVER                   TOKEN FILE             CA FILE
        here     yes     SERVER/  DIR/token  -
        nowhere  -       http://127.0.0.1:9/      -                      -"#]]
    .assert_eq(&listed);
    let file = fs::metadata(folder.join("gridhook/contexts.toml")).expect("the file of contexts");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777,
        0o600
    );

    run(folder, &["topics", "create", "orders"]);
    assert!(run(folder, &["topics", "list"]).contains("orders"));
    run(folder, &["context", "use", "nowhere"]);
    let refused = gridhook(folder, &["topics", "list"])
        .output()
        .expect("an end");
    assert!(
        output_text(&refused).contains("no operator's token found"),
        "{}",
        output_text(&refused)
    );
    assert!(run(folder, &["topics", "list", "--context", "here"]).contains("orders"));
    assert_eq!(run(folder, &["health", "--context", "here"]), "serving");
    // The environment takes precedence over the context in use, and a named context over the
    // environment.
    let mut by_variable = gridhook(folder, &["topics", "list"]);
    by_variable.env("GRIDHOOK_SERVER", &at).env(
        "GRIDHOOK_TOKEN",
        fs::read_to_string(folder.join("token")).expect("it"),
    );
    assert!(output_text(&by_variable.output().expect("an end")).contains("orders"));
    let mut named = gridhook(folder, &["topics", "list", "--context", "here"]);
    named
        .env("GRIDHOOK_SERVER", "http://127.0.0.1:9")
        .env("GRIDHOOK_TOKEN", "that-of-another-server");
    assert!(output_text(&named.output().expect("an end")).contains("orders"));

    run(folder, &["context", "remove", "nowhere"]);
    let left: Value =
        serde_json::from_str(&run(folder, &["context", "list", "--output", "json"])).expect("JSON");
    assert_eq!(
        (
            &left["value"][0]["inUse"],
            left["value"].as_array().map(Vec::len)
        ),
        (&Value::Bool(false), Some(1))
    );
}

/// The health check of the image has no server argument: it must use the port set in the
/// environment.
#[test]
fn commands_use_the_server_of_their_environment() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let health = |variables: &[(&str, &str)]| {
        let mut command = gridhook(folder.path(), &["health", "--live", "--output", "json"]);
        let output = command
            .envs(variables.iter().copied())
            .output()
            .expect("an end");
        (output.status.success(), output_text(&output))
    };
    let at = server.address().to_string();
    let (is_well, text) = health(&[("GRIDHOOK_SERVER__LISTEN", &at)]);
    assert!(is_well, "{text}");
    // No server listens at these addresses; the error names the address.
    for (listen, asked) in [
        ("0.0.0.0:9", "http://127.0.0.1:9/"),
        ("[::]:9", "http://[::1]:9/"),
    ] {
        let (is_well, text) = health(&[("GRIDHOOK_SERVER__LISTEN", listen)]);
        assert!(
            !is_well && text.contains(&format!("\"server\": \"{asked}\"")),
            "{listen}: {text}"
        );
    }
    let other = [
        ("GRIDHOOK_SERVER__LISTEN", at.as_str()),
        ("GRIDHOOK_SERVER", "http://127.0.0.1:9"),
    ];
    let (is_well, text) = health(&other);
    assert!(!is_well && text.contains("http://127.0.0.1:9/"), "{text}");
    let (is_well, text) = health(&[("GRIDHOOK_SERVER__LISTEN", "8080")]);
    assert!(
        !is_well && text.contains("GRIDHOOK_SERVER__LISTEN is \"8080\"; expected an IP address"),
        "{text}"
    );
}

#[test]
fn events_are_published_with_the_operators_token_and_with_a_key_that_no_command_line_has() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let console = PublisherConsole {
        server: &server,
        folder: folder.path(),
    };
    console.write_files();
    console.create_topics();
    console.publish_with_the_token();
    fs::write(
        folder.path().join("orders.key"),
        console.read_key("orders") + "\n",
    )
    .expect("a file");
    let plant_key = console.read_key("namespaces/plant");
    fs::remove_file(folder.path().join("data/admin-token")).expect("it is there");
    console.publish_with_keys(&plant_key);
    console.copy_token();
    let topic = console.run("topics show orders --output json", &[]);
    let topic: Value = serde_json::from_str(&topic).expect("JSON");
    assert_eq!(topic["topic"]["name"], "orders");
}

const ONE_EVENT: &str = "published 1 event in 1 request";

/// A folder in which a publisher runs commands.
struct PublisherConsole<'a> {
    server: &'a Server,
    folder: &'a Path,
}

impl PublisherConsole<'_> {
    fn run(&self, line: &str, variables: &[(&str, &str)]) -> String {
        let arguments: Vec<&str> = line.split(' ').collect();
        let mut command = gridhook(self.folder, &arguments);
        command
            .env(
                "GRIDHOOK_SERVER",
                format!("http://{}", self.server.address()),
            )
            .envs(variables.iter().copied());
        output_text(&command.output().expect("an end"))
    }

    fn write_files(&self) {
        fs::create_dir(self.folder.join("data")).expect("a folder");
        self.copy_token();
        fs::write(self.folder.join("events.json"), EVENT).expect("a file");
        let cloud = r#"{"specversion": "1.0", "id": "2", "source": "/a", "type": "T", "data": {}}"#;
        fs::write(self.folder.join("cloud.json"), cloud).expect("a file");
    }

    fn copy_token(&self) {
        let token = self.server.data_dir().join("admin-token");
        fs::copy(token, self.folder.join("data/admin-token")).expect("a token");
    }

    fn create_topics(&self) {
        for line in [
            "topics create orders --input-schema EventGridSchema",
            "topics create clouds --input-schema CloudEventSchemaV1_0",
            "topics create domains/shop",
            "topics create namespaces/plant",
            "topics create namespaces/plant/topics/heat",
        ] {
            self.run(line, &[]);
        }
    }

    fn read_key(&self, topic: &str) -> String {
        let keys = self.run(&format!("topics keys {topic} --output json"), &[]);
        let keys: Value = serde_json::from_str(&keys).expect("JSON");
        keys["key1"].as_str().expect("a key").to_owned()
    }

    /// The events have the schema of their topic.
    fn publish_with_the_token(&self) {
        for line in [
            "publish orders events.json",
            "publish clouds cloud.json",
            "publish namespaces/plant/topics/heat cloud.json",
        ] {
            assert_eq!(self.run(line, &[]), ONE_EVENT, "{line}");
        }
        let line = "publish namespaces/plant/topics/heat cloud.json --output json";
        assert_eq!(
            self.run(line, &[]).replace(['\n', ' '], ""),
            r#"{"events":1,"requests":1}"#
        );
        let typo = self.run("publish ordres events.json", &[]);
        assert!(
            typo.contains("404") && typo.contains("Did you mean orders?"),
            "{typo}"
        );
    }

    /// A key is in a file or in the environment, and opens its own topic only.
    fn publish_with_keys(&self, plant_key: &str) {
        let line = "publish orders events.json --key-file orders.key";
        assert_eq!(self.run(line, &[]), ONE_EVENT);
        let key = fs::read_to_string(self.folder.join("orders.key")).expect("a key");
        let variables = [("GRIDHOOK_KEY", key.trim())];
        let url = format!("http://{}/topics/orders/api/events", self.server.address());
        assert_eq!(
            self.run(&format!("publish {url} events.json"), &variables),
            ONE_EVENT
        );
        let error = self.run("publish clouds cloud.json", &variables);
        assert!(error.contains("401"), "a key opens its own topic: {error}");
        let line = "publish namespaces/plant/topics/heat cloud.json";
        assert_eq!(self.run(line, &[("GRIDHOOK_KEY", plant_key)]), ONE_EVENT);
    }
}

#[test]
fn a_private_certificate_authority_is_trusted_by_ca_file() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    authority.issue("127.0.0.1").write(folder, "server");
    fs::write(folder.join("ca.pem"), authority.pem()).expect("a file");
    let path = |name: &str| folder.join(name).display().to_string();
    let settings = [
        ("SERVER__TLS_CERTIFICATE", path("server.crt")),
        ("SERVER__TLS_KEY", path("server.key")),
    ];
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let server = Server::start_tls(&settings, authority.client());
    let at = format!("https://{}", server.address());
    assert_eq!(
        run(folder, &["health", "--server", &at, "--ca-file", "ca.pem"]),
        "serving"
    );
    let printed = |arguments: &[&str]| {
        output_text(&gridhook(folder, arguments).output().expect("an end"))
            .replace(&server.address().to_string(), "SERVER")
    };
    expect![
        "https://SERVER/: Failed to connect to host: invalid peer certificate: UnknownIssuer; \
         name the file of the certificate authority with --ca-file"
    ]
    .assert_eq(&printed(&["health", "--server", &at]));
    expect![
        "http://SERVER/: invalid HTTP version specified; the response is not HTTP: does the \
         server use TLS (https://SERVER)?"
    ]
    .assert_eq(&printed(&[
        "health",
        "--server",
        &at.replace("https", "http"),
    ]));
    expect![
        "gridhook: server.key has no usable certificate: it contains none; expected a PEM file"
    ]
    .assert_eq(&printed(&[
        "health",
        "--server",
        &at,
        "--ca-file",
        "server.key",
    ]));
}

#[test]
fn config_check_reads_the_certificates_that_a_start_would_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let check = |settings: &str| {
        fs::write(folder.join("gridhook.toml"), settings).expect("a file");
        let output = gridhook(
            folder,
            &["config", "check", "--changed", "--config", "gridhook.toml"],
        )
        .output();
        let output = output.expect("an end");
        (output.status.code(), output_text(&output))
    };
    let both = "[server]\ntls_certificate = \"server.crt\"\ntls_key = \"server.key\"";
    let cases = [
        both,
        "[delivery]\ntls_roots = [\"authority.pem\"]",
        "[delivery]\nclient_certificates_dir = \"certificates\"",
        "[auth]\nissuer = \"https://issuer.example\"\naudience = \"a\"\njwks = \"keys.json\"",
        "[server]\napply = \"topics.toml\"",
    ];
    let refused: Vec<String> = cases
        .iter()
        .map(|settings| check(settings))
        .map(|(code, text)| format!("{code:?} {text}"))
        .collect();
    expect![[r#"
        Some(1) gridhook: cannot read the certificates in server.crt: I/O error: No such file or directory (os error 2)
        Some(1) gridhook: cannot read the certificates in authority.pem: I/O error: No such file or directory (os error 2)
        Some(1) gridhook: cannot read the certificates in certificates: No such file or directory (os error 2)
        Some(1) gridhook: auth.jwks: keys.json cannot be read: No such file or directory (os error 2)
        Some(1) gridhook: server.apply: topics.toml: it cannot be read: No such file or directory (os error 2)"#]].assert_eq(&refused.join("\n"));
    let authority = Authority::new();
    authority.issue("localhost").write(folder, "server");
    assert_eq!(check(both).0, Some(0));
    let other = authority.issue("localhost");
    fs::write(folder.join("server.crt"), &other.pem).expect("a file");
    let (code, text) = check(both);
    assert_eq!(code, Some(1), "a key of another certificate: {text}");
}

#[test]
fn irreversible_actions_need_a_confirmation() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    operator(&server, &["topics", "create", "orders"]).expect("a topic");
    operator(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/a"),
        ],
    )
    .expect("one");
    let refused = |arguments: &[&str]| operator(&server, arguments).expect_err("not confirmed");
    let keys = || operator(&server, &["topics", "keys", "orders"]).expect("keys");
    let before = keys();
    expect![
        "gridhook: Regenerate key1 of orders? Publishers that use it will be refused. Nothing \
         was done: confirmation needs a terminal or --yes"
    ]
    .assert_eq(&refused(&[
        "topics",
        "keys",
        "orders",
        "--regenerate",
        "key1",
    ]));
    expect![
        "gridhook: Purge 0 dead letters of billing of orders? Nothing was done: confirmation needs \
         a terminal or --yes"
    ]
    .assert_eq(&refused(&[
        "dead-letters",
        "purge",
        "orders",
        "billing",
        "--all",
    ]));
    assert_eq!(keys(), before);
    operator(
        &server,
        &["topics", "keys", "orders", "--regenerate", "key1", "--yes"],
    )
    .expect("a new key");
    assert_ne!(keys(), before);
    let purged = operator(
        &server,
        &[
            "dead-letters",
            "purge",
            "orders",
            "billing",
            "--all",
            "--yes",
        ],
    );
    assert_eq!(purged.expect("it is done"), "0 dead letters purged");
    let dry = operator(
        &server,
        &[
            "dead-letters",
            "purge",
            "orders",
            "billing",
            "--all",
            "--dry-run",
        ],
    );
    assert_eq!(
        dry.expect("nothing is done"),
        "0 dead letters would be purged"
    );
}

const HEAT: &str = "namespaces/plant/topics/heat";

/// A namespace with a topic that is pushed and pulled.
struct Plant<'a> {
    server: &'a Server,
    sink: &'a Sink,
}

impl Plant<'_> {
    /// Runs a command that succeeds.
    fn run(&self, arguments: &[&str]) -> String {
        operator(self.server, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    fn masked(&self, text: String) -> String {
        text.replace(&self.server.address().to_string(), "SERVER")
            .replace(&self.sink.url(""), "SINK")
    }

    fn create_topics_and_subscriptions(&self) {
        self.run(&[
            "topics",
            "create",
            "namespaces/plant",
            "--tag",
            "team=plant",
        ]);
        self.run(&["topics", "create", HEAT, "--retention-days", "3"]);
        let push = [
            "subscriptions",
            "create",
            HEAT,
            "push",
            "--endpoint",
            &self.sink.url("/push"),
            "--event-type",
            "T",
        ];
        let flags = [
            "--max-attempts",
            "5",
            "--time-to-live",
            "2h",
            "--subject-begins-with",
            "/a",
            "--batch-events",
            "3",
            "--dead-letters",
            "/r",
            "--container",
            "letters",
        ];
        self.run(&[&push[..], &flags].concat());
        self.run(&[
            "subscriptions",
            "create",
            HEAT,
            "work",
            "--pull",
            "--lock",
            "2m",
        ]);
        self.run(&[
            "subscriptions",
            "update",
            HEAT,
            "push",
            "--max-attempts",
            "4",
        ]);
        self.run(&[
            "subscriptions",
            "update",
            HEAT,
            "work",
            "--time-to-live",
            "1h",
        ]);
    }

    fn assert_topics_are_shown(&self) {
        expect![[r#"
            namespaces/plant
            id                   /subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/namespaces/plant
            endpoint             http://SERVER/namespaces/plant
            location             local
            tags                 team=plant
            access keys          accepted
            public network       Enabled
            topics               heat"#]]
        .assert_eq(&self.masked(self.run(&["topics", "show", "namespaces/plant"])));
        expect![[r#"
            namespaces/plant/topics/heat
            id                   /subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/namespaces/plant/topics/heat
            input schema         CloudEventSchemaV1_0
            edition              namespace
            retention            3 days
            event subscriptions  push, work"#]].assert_eq(&self.masked(self.run(&["topics", "show", HEAT])));
    }

    fn assert_subscriptions_are_shown(&self) {
        expect![[r#"
            push of namespaces/plant/topics/heat
            state             Succeeded
            endpoint          SINK/push
            schema            CloudEventSchemaV1_0
            types             T
            advanced filters  1
            retry             4 attempts within 2h
            batch             3 events, 64 KB
            dead letters      /r/letters
            health            healthy
            in flight         0 of 16
            backlog           0
            pending           0
            matched           0 of 0
            delivered         0
            dead-lettered     0
            dropped           0
            requests          0, 0 failed"#]]
        .assert_eq(&self.masked(self.run(&["subscriptions", "show", HEAT, "push"])));
        expect![[r#"
            work of namespaces/plant/topics/heat
            state             Succeeded
            endpoint          none (pull delivery)
            lock              2m
            schema            CloudEventSchemaV1_0
            retry             10 deliveries within 1h
            dead letters      no destination
            health            healthy
            in flight         0 of 16
            backlog           0
            pending           0
            matched           0 of 0
            delivered         0
            dead-lettered     0
            dropped           0
            requests          0, 0 failed"#]]
        .assert_eq(&self.masked(self.run(&["subscriptions", "show", HEAT, "work"])));
    }

    fn assert_lists_are_shown(&self) {
        for list in [
            &["subscriptions", "list"][..],
            &["subscriptions", "list", HEAT],
            &["subscriptions", "list", "namespaces/plant"],
        ] {
            // The sink's address has a varying length, so column widths differ between runs.
            let listed = self
                .masked(self.run(list))
                .split(' ')
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(" ");
            expect![[r#"
                TOPIC NAME ENDPOINT TYPES SCHEMA STATE
                namespaces/plant/topics/heat push SINK/push T CloudEventSchemaV1_0 Succeeded
                namespaces/plant/topics/heat work none (pull delivery) all CloudEventSchemaV1_0 Succeeded"#]]
            .assert_eq(&listed);
        }
        assert!(self.run(&["topics", "list"]).contains("namespaces/plant"));
        assert!(
            self.run(&["topics", "list", "namespaces/plant"])
                .contains(HEAT)
        );
        assert!(
            self.run(&["subscriptions", "show", HEAT, "push", "--full-url"])
                .contains(&self.sink.url("/push"))
        );
    }

    fn publish_and_trace(&self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gridhook"))
            .args([
                "publish",
                HEAT,
                "--server",
                &format!("http://{}", self.server.address()),
                "--token-file",
            ])
            .arg(self.server.data_dir().join("admin-token"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let event = r#"{"specversion": "1.0", "id": "first", "source": "/a", "subject": "/a", "type": "T", "data": {}}"#;
        child
            .stdin
            .take()
            .expect("its input")
            .write_all(event.as_bytes())
            .expect("it reads");
        let mut reported = String::new();
        child
            .stdout
            .take()
            .expect("its output")
            .read_to_string(&mut reported)
            .expect("UTF-8");
        assert!(child.wait().expect("an end").success(), "{reported}");
        let traced = self.run(&["trace", "first"]);
        assert!(
            traced.contains("event first in") && traced.contains("work: "),
            "{traced}"
        );
        assert!(
            self.run(&["explain", HEAT, "work", "first"])
                .contains("event first, sequence 1, for work")
        );
    }

    fn run_other_commands(&self) {
        for arguments in [
            &["ledger", HEAT, "push"][..],
            &["dead-letters", "list", HEAT, "push"],
            &["replay", "list", HEAT, "push"],
            &["subscriptions", "hold", HEAT, "push"],
            &["subscriptions", "resume", HEAT, "push"],
            &["subscriptions", "test-filter", HEAT, "push"],
            &["topics", "keys", HEAT],
            &[
                "topics",
                "keys",
                "namespaces/plant",
                "--regenerate",
                "key1",
                "--yes",
            ],
            &["top", "--once", "--every", "500ms"],
        ] {
            self.run(arguments);
        }
        let typo = operator(
            self.server,
            &["topics", "show", "namespaces/plant/topics/haet"],
        )
        .expect_err("it is not there");
        assert!(typo.ends_with("Did you mean heat?"), "{typo}");
    }

    fn delete(&self) {
        assert_eq!(
            self.run(&["subscriptions", "delete", HEAT, "work", "--yes"]),
            format!("deleted work of {HEAT}")
        );
        assert_eq!(
            self.run(&["topics", "delete", "namespaces/plant", "--yes"]),
            "deleted namespaces/plant"
        );
    }
}

#[test]
fn commands_manage_namespaces() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let plant = Plant {
        server: &server,
        sink: &sink,
    };
    plant.create_topics_and_subscriptions();
    plant.assert_topics_are_shown();
    plant.assert_subscriptions_are_shown();
    plant.assert_lists_are_shown();
    plant.publish_and_trace();
    plant.run_other_commands();
    plant.delete();
}
