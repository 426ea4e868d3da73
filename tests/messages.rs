//! Error messages for wrong input, word for word.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use expect_test::{Expect, expect};

use crate::support::{
    server::{Server, operator, wait_for},
    sink::{Behavior, Sink},
};

/// The folder that the commands run in.
fn create_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("empty.token", "\n");
    write("two.token", "first\nsecond\n");
    write("spaces.token", "not a token");
    write("token", "a-token-of-some-length\n");
    write("topics.yaml", "topics:\n  orders: {}\n");
    write("list.json", "[]");
    write("topics.toml", "[topics.orders]\n");
    write(
        "unknown.toml",
        "[topics.orders.eventSubscriptions.billing]\nendpoint = \"https://a\"\n",
    );
    folder
}

/// Runs a command that must fail, and returns its standard error.
fn run_and_fail(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
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
        .envs(variables.iter().copied());
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts");
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{arguments:?} is a mistake"
    );
    let text = String::from_utf8_lossy(&output.stderr)
        .trim_end()
        .to_owned();
    text.replace("\n\nFor more information, try '--help'.", "")
}

/// Command lines whose server or token is wrong, and their messages.
const SERVER_AND_TOKEN: &[(&str, Expect)] = &[
    (
        "topics list --server localhost:8080",
        expect![
            "error: invalid value 'localhost:8080' for '--server <URL>': expected a URL that \
             begins with http:// or https://, such as http://localhost:8080"
        ],
    ),
    (
        "topics list --server ftp://localhost",
        expect![
            "error: invalid value 'ftp://localhost' for '--server <URL>': expected a URL that \
             begins with http:// or https://, such as http://localhost"
        ],
    ),
    (
        "topics list --server http://me:secret@localhost",
        expect![
            "error: invalid value 'http://me:secret@localhost' for '--server <URL>': expected a \
             URL that begins with http:// or https://, such as http://127.0.0.1:8080, without \
             user, query or fragment"
        ],
    ),
    (
        "GRIDHOOK_SERVER=localhost:8080 topics list",
        expect![[
            r#"gridhook: environment variable GRIDHOOK_SERVER is "localhost:8080"; expected a URL that begins with http:// or https://, such as http://localhost:8080"#
        ]],
    ),
    (
        "topics list --token-file two.token",
        expect!["gridhook: two.token has 2 lines; expected one line of visible ASCII characters"],
    ),
    (
        "topics list --token-file empty.token",
        expect!["gridhook: empty.token is empty; expected one line of visible ASCII characters"],
    ),
    (
        "topics list --token-file spaces.token",
        expect![
            "gridhook: spaces.token has a space or a character that is not visible ASCII; expected \
             one line of visible ASCII characters"
        ],
    ),
    (
        "topics list --token-file nowhere",
        expect!["gridhook: nowhere cannot be read: No such file or directory (os error 2)"],
    ),
    (
        "GRIDHOOK_TOKEN=ümlaut topics list",
        expect![
            "gridhook: environment variable GRIDHOOK_TOKEN has a space or a character that is not \
             visible ASCII; expected one line of visible ASCII characters"
        ],
    ),
    (
        "topics list",
        expect![
            "gridhook: no operator's token found; use --token-file, set GRIDHOOK_TOKEN, or add a \
             context with gridhook context add. A server stores its token in the file admin-token \
             in its data folder"
        ],
    ),
    (
        "topics list --context prod",
        expect!["gridhook: there is no context prod; add one with gridhook context add"],
    ),
    (
        "context use prod",
        expect!["gridhook: there is no context prod; add one with gridhook context add"],
    ),
    (
        "topics list --token-file token --ca-file list.json",
        expect![
            "gridhook: list.json has no usable certificate: it contains none; expected a PEM file"
        ],
    ),
    (
        "topics list --token-file token --server http://127.0.0.1:9",
        expect![
            "gridhook: http://127.0.0.1:9/: Failed to connect to host: Connection refused (os \
             error 111); check that the server runs and that this is its address (--server)"
        ],
    ),
];

/// Flags with a value of the wrong form.
const VALUES_OF_FLAGS: &[(&str, Expect)] = &[
    (
        "subscriptions create orders billing --endpoint https://a --time-to-live 30",
        expect![
            "error: invalid value '30' for '--time-to-live <DURATION>': expected whole minutes, \
             such as 90m or 24h"
        ],
    ),
    (
        "subscriptions create orders billing --endpoint https://a --response-timeout 5",
        expect![
            "error: invalid value '5' for '--response-timeout <DURATION>': expected whole \
             seconds, such as 60s or 5m"
        ],
    ),
    (
        "subscriptions create orders billing --endpoint https://a --max-attempts many",
        expect![
            "error: invalid value 'many' for '--max-attempts <N>': expected a whole number of 1 \
             or more"
        ],
    ),
    (
        "topics create orders --duplicate-window 10",
        expect![
            "error: invalid value '10' for '--duplicate-window <DURATION>': expected off or a \
             duration in whole seconds, such as 10m or PT10M"
        ],
    ),
    (
        "top --limit 0",
        expect![
            "error: invalid value '0' for '--limit <N>': expected a whole number from 1 to 500"
        ],
    ),
    (
        "health --wait 5",
        expect![
            "error: invalid value '5' for '--wait <DURATION>': expected a duration such as \
             500ms, 30s, 90m or PT90M"
        ],
    ),
    (
        "listen --listen here",
        expect![
            "error: invalid value 'here' for '--listen <ADDR>': expected an IP address and a \
             port, such as 127.0.0.1:9090 or [::1]:9090"
        ],
    ),
    (
        "publish orders --batch-bytes much",
        expect![
            "error: invalid value 'much' for '--batch-bytes <SIZE>': expected a size of 1 B or \
             more, such as 512 KiB or 1 MiB"
        ],
    ),
    (
        "publish orders --batch-bytes 0B",
        expect![
            "error: invalid value '0B' for '--batch-bytes <SIZE>': expected a size of 1 B or \
             more, such as 512 KiB or 1 MiB"
        ],
    ),
    (
        "tokens create shop --role publish,owner",
        expect![
            "error: invalid value 'owner' for '--role <ROLE>': expected one of publish, consume, \
             portal, read, operate, admin"
        ],
    ),
    (
        "dead-letters redrive orders billing --all --reason MaxDeliveryAttemptsExceeded",
        expect![[r#"
            error: the argument '--all' cannot be used with '--reason <REASON>'

            Usage: gridhook dead-letters redrive --all <TOPIC> <SUBSCRIPTION>"#]],
    ),
    (
        "dead-letters purge orders billing --key 1-2 --all",
        expect![[r#"
            error: the argument '--key <KEY>' cannot be used with '--all'

            Usage: gridhook dead-letters purge --key <KEY> <TOPIC> <SUBSCRIPTION>"#]],
    ),
    (
        "chaos --drop-responses 2",
        expect![
            "error: invalid value '2' for '--drop-responses <RATE>': expected a number from 0 to \
             1"
        ],
    ),
    (
        "chaos --publish-to localhost:8080",
        expect![
            "error: invalid value 'localhost:8080' for '--publish-to <URL>': expected a URL that \
             begins with http:// or https://, such as http://localhost:8080"
        ],
    ),
    (
        "replay start orders billing --all --rate 0",
        expect![
            "error: invalid value '0' for '--rate <EVENTS>': expected a number above 0, such as \
             50 or 0.5"
        ],
    ),
];

/// Commands whose arguments are missing or contradict each other.
const MISSING_OR_CONFLICTING_ARGUMENTS: &[(&str, Expect)] = &[
    (
        "subscriptions create orders billing",
        expect!["gridhook: no endpoint; name it with --endpoint URL"],
    ),
    (
        "subscriptions create orders billing --pull",
        expect![
            "gridhook: --pull and --lock are allowed only for topics of namespaces \
             (namespaces/NAME/topics/NAME)"
        ],
    ),
    (
        "subscriptions create namespaces/plant/topics/heat work",
        expect![
            "gridhook: no delivery mode; use --endpoint URL for push delivery or --pull for pull \
             delivery"
        ],
    ),
    (
        "subscriptions create namespaces/plant/topics/heat work --endpoint https://a --lock 60s",
        expect!["gridhook: --lock is allowed only with pull delivery (--pull)"],
    ),
    (
        "subscriptions create orders billing --endpoint https://a --expires never",
        expect![
            "error: invalid value 'never' for '--expires <TIME>': expected a time such as \
             2026-01-31T12:00:00Z, a day such as 2026-01-31, or a duration from now such as 90m or \
             7d"
        ],
    ),
    (
        "ledger orders billing --from yesterday",
        expect![
            "error: invalid value 'yesterday' for '--from <TIME>': expected a time such as \
             2026-01-31T12:00:00Z, a day such as 2026-01-31, or an age such as 90m or 7d"
        ],
    ),
    (
        "dead-letters redrive orders billing",
        expect![
            "gridhook: no dead letters selected; use --key, --id, --reason, --stage, --from or \
             --to, or --all"
        ],
    ),
    (
        "dead-letters purge orders billing",
        expect![
            "gridhook: no dead letters selected; use --key, --id, --reason, --stage, --from or \
             --to, or --all"
        ],
    ),
    (
        "publish https://example.com/api/events",
        expect![
            "gridhook: publishing to a URL needs an access key; use --key-file or GRIDHOOK_KEY. \
             The operator's token is sent only to the server's own address"
        ],
    ),
    (
        "publish domains/shop/topics/europe --key-file token",
        expect![
            "gridhook: cannot publish to a topic of a domain; publish to the domain, domains/shop, \
             and name the topic in each event"
        ],
    ),
    (
        "publish namespaces/plant --key-file token",
        expect![
            "gridhook: cannot publish to namespaces/plant; expected a topic, a domain or a topic \
             of a namespace"
        ],
    ),
    (
        "publish orders --key-file two.token",
        expect!["gridhook: two.token has 2 lines; expected one line of visible ASCII characters"],
    ),
    (
        "help topcis",
        expect!["gridhook: there is no help on topcis; did you mean topics?"],
    ),
    (
        "help topics craete",
        expect!["gridhook: there is no help on craete; did you mean create?"],
    ),
];

/// Wrong settings. A message lists all of them.
const SETTINGS: &[(&str, Expect)] = &[
    (
        "config check --listen here --log-format xml",
        expect![[r#"
        gridhook: 2 settings cannot be used:
          flag --log-format: log.format is "xml"; expected "text" or "json"
          flag --listen: server.listen is "here"; expected an IP address and a port, such as "127.0.0.1:8080" or "[::]:8080""#]],
    ),
    (
        "GRIDHOOK_SERVER__TLS_CERTIFICATE=server.crt config check",
        expect![[
            r#"gridhook: default: server.tls_key is ""; expected a file: server.tls_certificate and server.tls_key are set together"#
        ]],
    ),
];

/// Files that cannot be used. A message names the file once.
const FILES: &[(&str, Expect)] = &[
    (
        "apply -f topics.yaml",
        expect![
            "gridhook: topics.yaml: a .yaml file is not supported; expected TOML (.toml) or \
             JSON (.json)"
        ],
    ),
    (
        "apply -f unknown.toml",
        expect![
            "gridhook: unknown.toml: topics.orders.eventSubscriptions.billing: unknown key \
             endpoint; did you mean endpointUrl?"
        ],
    ),
    (
        "apply -f list.json",
        expect!["gridhook: list.json: the file is not a table; expected a table"],
    ),
    (
        "apply -f nowhere.toml",
        expect![
            "gridhook: nowhere.toml: it cannot be read: No such file or directory (os error 2)"
        ],
    ),
    (
        "GRIDHOOK_SERVER__APPLY=nowhere.toml config check",
        expect![
            "gridhook: server.apply: nowhere.toml: it cannot be read: No such file or directory \
             (os error 2)"
        ],
    ),
    (
        "topics create orders --body list.json",
        expect!["gridhook: list.json is not a JSON object; expected one JSON object"],
    ),
    (
        "topics create orders --body topics.yaml",
        expect!["gridhook: topics.yaml is not JSON: expected ident at line 1 column 2"],
    ),
];

#[test]
fn local_errors_say_what_to_do() {
    let folder = create_folder();
    let tables = [
        SERVER_AND_TOKEN,
        VALUES_OF_FLAGS,
        MISSING_OR_CONFLICTING_ARGUMENTS,
        SETTINGS,
        FILES,
    ];
    for (line, expected) in tables.into_iter().flatten() {
        expected.assert_eq(&run_line(folder.path(), line));
    }
    assert_commands_without_a_server_say_so(folder.path());
    assert_all_wrong_settings_are_listed(folder.path());
}

/// The message of a command line, which begins with its environment variables.
fn run_line(folder: &Path, line: &str) -> String {
    let (variables, arguments): (Vec<&str>, Vec<&str>) = line
        .split(' ')
        .partition(|word| word.contains('=') && word.starts_with("GRIDHOOK_"));
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .collect();
    run_and_fail(folder, &arguments, &variables)
}

fn assert_commands_without_a_server_say_so(folder: &Path) {
    for line in [
        "fsck --online",
        "backup /srv/backups/monday",
        "tail",
        "apply -f topics.toml",
    ] {
        let line = format!("{line} --token-file token --server http://127.0.0.1:9");
        expect![
            "gridhook: http://127.0.0.1:9/: Failed to connect to host: Connection refused (os \
                 error 111); check that the server runs and that this is its address (--server)"
        ]
        .assert_eq(&run_line(folder, &line));
    }
}

fn assert_all_wrong_settings_are_listed(folder: &Path) {
    let variables = [
        ("GRIDHOOK_PUBLISH__EVENTBYTES", "1"),
        ("GRIDHOOK_LOG__FORMAT", "xml"),
    ];
    let message = run_and_fail(folder, &["config", "check", "--listen", "here"], &variables);
    assert!(
        message.starts_with("gridhook: 3 settings cannot be used:\n")
            && message.lines().count() == 4,
        "{message}"
    );
    assert!(
        message.contains("unknown key publish.eventbytes"),
        "{message}"
    );
}

/// The values of flags that a parser of their own reads.
#[test]
fn flags_say_what_they_allow() {
    let folder = create_folder();
    for (line, allowed) in [
        ("topics create orders --tag team", "NAME=VALUE"),
        (
            "topics create orders --duplicate-window soon",
            "off or a duration in whole seconds, such as 10m or PT10M",
        ),
        ("top --every 1ms", "a duration from 500ms to 30s"),
        ("simulate --rate 0", "a number above 0, such as 50 or 0.5"),
        (
            "publish orders --batch-bytes 0B",
            "a size of 1 B or more, such as 512 KiB or 1 MiB",
        ),
        (
            "publish https://",
            "a full URL, such as https://example.com/topics/orders/api/events",
        ),
        ("listen --status 999", "a status from 200 to 599"),
        (
            "subscriptions create orders billing --time-to-live 90s",
            "whole minutes, such as 90m or 24h",
        ),
        (
            "chaos --duration 0s",
            "a duration above 0s, such as 500ms or 30s",
        ),
        ("chaos --skew-clock soon", "a step such as 1h or -1h"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let text = run_and_fail(folder.path(), &arguments, &[]);
        let expected = format!(": expected {allowed}");
        assert!(text.ends_with(&expected), "{line}: {text}");
    }
}

/// Commands that the server refuses, and its messages.
const REFUSALS: &[(&str, Expect)] = &[
    (
        "dead-letters list orders billing --reason TimeToLiveExeeded",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: reason is "TimeToLiveExeeded"; did you mean TimeToLiveExceeded? gridhook help delivery lists the allowed names."#
        ]],
    ),
    (
        "dead-letters list orders billing --stage nowhere",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: stage is "nowhere"; expected waiting or written."#
        ]],
    ),
    (
        "subscriptions create orders inner --endpoint https://10.0.0.1/",
        expect![
            "gridhook: the server responded 400 Bad Request: SocketError: Webhook validation \
             handshake failed for https://10.0.0.1/. Http POST request failed with response code \
             Unknown. Activity …, timestamp: … (UTC). What happened: the address 10.0.0.1 is \
             private or reserved; the setting delivery.allow_networks allows a network."
        ],
    ),
    (
        "subscriptions create orders gone --endpoint http://127.0.0.1:9/",
        expect![
            "gridhook: the server responded 400 Bad Request: SocketError: Webhook validation \
             handshake failed for http://127.0.0.1:9/. Http POST request failed with response code \
             Unknown. Activity …, timestamp: … (UTC). What happened: no connection to 127.0.0.1:9: \
             Connection refused (os error 111)."
        ],
    ),
    (
        "subscriptions create orders plain --endpoint localhost:24190",
        expect![
            "gridhook: the server responded 400 Bad Request: InvalidRequest: \
             properties.destination.properties.endpointUrl has no http:// or https:// at its \
             beginning; expected an absolute http or https URL."
        ],
    ),
    (
        "subscriptions create orders plain --endpoint https://a --proxy office",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: properties.destination.properties.proxy is "office", which does not exist; delivery.resources has no proxy; expected none, for a direct connection."#
        ]],
    ),
    (
        "ledger orders billing --outcome Foo",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: outcome is "Foo"; gridhook help delivery lists the allowed names."#
        ]],
    ),
    (
        "tail orders --outcome deliverd",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: outcome is "deliverd"; did you mean delivered? gridhook help delivery lists the allowed names."#
        ]],
    ),
    (
        "backup",
        expect![
            "gridhook: the server responded 400 Bad Request: InvalidRequest: folder is missing; \
             expected a folder, or none if backup.store.url is set."
        ],
    ),
    (
        "supervision --topic domains/shop",
        expect![
            "gridhook: the server responded 404 Not Found: ResourceNotFound: The Resource \
             'Microsoft.EventGrid/domains/shop' under resource group 'dev' was not found."
        ],
    ),
    (
        "topics create orders --tag team=shop",
        expect!["gridhook: orders already exists; change it with gridhook topics update orders"],
    ),
    (
        "topics create or.ders",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: the topic's name is "or.ders"; expected 3 to 50 letters (a to z), digits and hyphens."#
        ]],
    ),
];

#[test]
fn server_errors_say_what_to_do() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = create_folder();
    operate(&server, "topics create orders");
    let endpoint = sink.url("/a");
    operate(
        &server,
        &format!("subscriptions create orders billing --endpoint {endpoint}"),
    );
    for (line, expected) in REFUSALS {
        let arguments: Vec<&str> = line.split(' ').collect();
        let message = operator(&server, &arguments).expect_err("a refusal");
        expected.assert_eq(&masked(
            &message.replace(&server.address().to_string(), "SERVER"),
        ));
    }
    assert_transform_errors_name_the_column(&server);
    assert_top_shows_one_subscription(&server);
    assert_single_things_are_singular(&server);
    assert_a_failed_request_is_shown(&server, &sink, folder.path());
    assert_a_port_in_use_is_named(folder.path());
    assert_a_plan_shows_new_properties(&server, folder.path());
    assert_a_server_without_tls_is_named(&server, folder.path());
}

/// Runs a command that succeeds, and returns its output.
fn operate(server: &Server, line: &str) -> String {
    let arguments: Vec<&str> = line.split(' ').collect();
    operator(server, &arguments).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn assert_transform_errors_name_the_column(server: &Server) {
    for (expression, problem) in [
        (
            "data.",
            "column 6: the expression ends too early; expected identifier, '*', \
             '{', '[', '&', or '[?'",
        ),
        ("", "column 1: the expression ends too early"),
        ("a)", "column 2: unexpected )"),
        ("[a", "column 3: the expression ends too early"),
        (
            "{a",
            "column 3: the expression ends too early; expected ':' to follow key",
        ),
    ] {
        let create = [
            "subscriptions",
            "create",
            "orders",
            "plain",
            "--endpoint",
            "https://a",
            "--transform",
            expression,
        ];
        let text = operator(server, &create).expect_err("a refusal");
        let expected = format!(
            "gridhook: the server responded 400 Bad Request: InvalidRequest: \
             properties.transform.body line 1, {problem}."
        );
        assert_eq!(text, expected);
    }
}

fn assert_top_shows_one_subscription(server: &Server) {
    let top = operator(
        server,
        &["top", "--once", "--every", "500ms", "--by", "dead-letters"],
    )
    .expect("figures");
    assert!(
        !top.contains("keys:"),
        "keys are shown only on a live screen: {top}"
    );
    // No rate is known in the first second.
    let top = top.replace("- delivered/s, - failed/s", "0 delivered/s, 0 failed/s");
    let lines: Vec<&str> = top.lines().take(4).map(str::trim_end).collect();
    expect![[r#"
        1 event subscription, 0 suspended, 0 held; 0 delivered/s, 0 failed/s
        0 in flight, 0 in the backlog, 0 pending; sorted by events given up

        SUBSCRIPTION    HEALTH  DELIV/S  REQ/S  FAIL/S  OK  BACKLOG  AGE  PENDING  IN FLIGHT  GIVEN UP"#]]
    .assert_eq(&lines.join("\n"));
}

fn assert_single_things_are_singular(server: &Server) {
    operate(server, "topics create domains/shop");
    let supervised = operate(server, "supervision --topic domains/shop");
    assert!(
        supervised.starts_with("1 actor, 0 restarted"),
        "{supervised}"
    );
    operate(server, "topics create namespaces/plant");
    let topic = operate(server, "topics create namespaces/plant/topics/heat");
    assert!(
        topic
            .lines()
            .any(|line| line == "retention            1 day"),
        "{topic}"
    );
    let listeners = operate(server, "server");
    assert!(
        listeners.contains(" open, ") && !listeners.contains(" 1 connections"),
        "{listeners}"
    );
}

fn assert_a_failed_request_is_shown(server: &Server, sink: &Sink, folder: &Path) {
    sink.set("/b", Behavior::Respond(500));
    let endpoint = sink.url("/b");
    operate(
        server,
        &format!("subscriptions create orders sick --endpoint {endpoint} --max-attempts 1"),
    );
    let file = folder.join("event.json");
    let event = r#"{"id": "1", "eventType": "A", "subject": "/a", "eventTime": "2026-01-01T00:00:00Z", "dataVersion": "1"}"#;
    fs::write(&file, event).expect("a file");
    operate(server, &format!("publish orders {}", file.display()));
    wait_for("a failure", Duration::from_secs(60), || {
        operate(server, "subscriptions show orders sick")
            .contains("health            healthy, the last request failed\n")
    });
}

fn assert_a_port_in_use_is_named(folder: &Path) {
    let listening = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listening.local_addr().expect("its address").to_string();
    let error = run_and_fail(folder, &["listen", "--listen", &at], &[]);
    assert_eq!(
        error,
        format!("gridhook: cannot listen on {at}: Address already in use (os error 98)")
    );
}

/// A new event subscription below a new topic is shown with the properties of its file.
fn assert_a_plan_shows_new_properties(server: &Server, folder: &Path) {
    let file = folder.join("new.toml");
    let declared = "[topics.new.eventSubscriptions.billing]\nendpointUrl = \
        \"https://a/hook?code=secret\"\n\
        filter = { includedEventTypes = [\"A\"] }\n[topics.new]\ntags = { team = \"shop\" }\n";
    fs::write(&file, declared).expect("a file");
    let plan = operator(
        server,
        &["apply", "-f", file.to_str().expect("text"), "--dry-run"],
    )
    .expect("a plan");
    let expected = [
        "+ event subscription billing of new",
        "    properties.destination.endpointType: WebHook",
        "    properties.destination.properties.endpointUrl: https://a/hook?[hidden]",
        "    properties.filter.includedEventTypes: [\"A\"]",
        "",
        "planned: create 2, change 0, delete 0; nothing was changed",
    ];
    assert!(plan.ends_with(&expected.join("\n")), "{plan}");
}

fn assert_a_server_without_tls_is_named(server: &Server, folder: &Path) {
    let token = server.data_dir().join("admin-token");
    let at = format!("https://{}", server.address());
    let arguments = [
        "topics",
        "list",
        "--server",
        &at,
        "--token-file",
        token.to_str().expect("text"),
    ];
    expect![
        "gridhook: https://SERVER/: Failed to connect to host: received corrupt message of \
         type InvalidContentType; the server does not use TLS: use http://SERVER"
    ]
    .assert_eq(
        &run_and_fail(folder, &arguments, &[]).replace(&server.address().to_string(), "SERVER"),
    );
}

/// Masks ids and times.
fn masked(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let bare = word.trim_matches(['\'', ',', '.', '"', '(']);
        let is_id = uuid::Uuid::parse_str(bare.trim_start_matches("id:")).is_ok();
        if is_id || bare.parse::<jiff::Timestamp>().is_ok() {
            word.replace(bare, "…")
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
