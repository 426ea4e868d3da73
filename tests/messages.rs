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
fn folder() -> tempfile::TempDir {
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

/// The binary's standard error.
fn output_text(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
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

#[test]
fn local_errors_say_what_to_do() {
    let folder = folder();
    let check = |line: &str, expected: Expect| {
        let (variables, arguments): (Vec<&str>, Vec<&str>) = line
            .split(' ')
            .partition(|word| word.contains('=') && word.starts_with("GRIDHOOK_"));
        let variables: Vec<(&str, &str)> = variables
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .collect();
        expected.assert_eq(&output_text(folder.path(), &arguments, &variables));
    };
    // Server and token.
    check(
        "topics list --server localhost:8080",
        expect![
            "error: invalid value 'localhost:8080' for '--server <URL>': expected a URL that \
             begins with http:// or https://, such as http://localhost:8080"
        ],
    );
    check(
        "topics list --server ftp://localhost",
        expect![
            "error: invalid value 'ftp://localhost' for '--server <URL>': expected a URL that \
             begins with http:// or https://, such as http://localhost"
        ],
    );
    check(
        "topics list --server http://me:secret@localhost",
        expect![
            "error: invalid value 'http://me:secret@localhost' for '--server <URL>': expected a \
             URL that begins with http:// or https://, such as http://127.0.0.1:8080, without \
             user, query or fragment"
        ],
    );
    check(
        "GRIDHOOK_SERVER=localhost:8080 topics list",
        expect![[
            r#"gridhook: environment variable GRIDHOOK_SERVER is "localhost:8080"; expected a URL that begins with http:// or https://, such as http://localhost:8080"#
        ]],
    );
    check(
        "topics list --token-file two.token",
        expect!["gridhook: two.token has 2 lines; expected one line of visible ASCII characters"],
    );
    check(
        "topics list --token-file empty.token",
        expect!["gridhook: empty.token is empty; expected one line of visible ASCII characters"],
    );
    check(
        "topics list --token-file spaces.token",
        expect![
            "gridhook: spaces.token has a space or a character that is not visible ASCII; expected \
             one line of visible ASCII characters"
        ],
    );
    check(
        "topics list --token-file nowhere",
        expect!["gridhook: nowhere cannot be read: No such file or directory (os error 2)"],
    );
    check(
        "GRIDHOOK_TOKEN=ümlaut topics list",
        expect![
            "gridhook: environment variable GRIDHOOK_TOKEN has a space or a character that is not \
             visible ASCII; expected one line of visible ASCII characters"
        ],
    );
    check(
        "topics list",
        expect![
            "gridhook: no operator's token found; use --token-file, set GRIDHOOK_TOKEN, or add a \
             context with gridhook context add. A server stores its token in the file admin-token \
             in its data folder"
        ],
    );
    check(
        "topics list --context prod",
        expect!["gridhook: there is no context prod; add one with gridhook context add"],
    );
    check(
        "context use prod",
        expect!["gridhook: there is no context prod; add one with gridhook context add"],
    );
    check(
        "topics list --token-file token --ca-file list.json",
        expect![
            "gridhook: list.json has no usable certificate: it contains none; expected a PEM file"
        ],
    );
    check(
        "topics list --token-file token --server http://127.0.0.1:9",
        expect![
            "gridhook: http://127.0.0.1:9/: Failed to connect to host: Connection refused (os \
             error 111); check that the server runs and that this is its address (--server)"
        ],
    );
    for line in [
        "fsck --online",
        "backup /srv/backups/monday",
        "tail",
        "apply -f topics.toml",
    ] {
        let line = format!("{line} --token-file token --server http://127.0.0.1:9");
        check(
            &line,
            expect![
                "gridhook: http://127.0.0.1:9/: Failed to connect to host: Connection refused (os \
                 error 111); check that the server runs and that this is its address (--server)"
            ],
        );
    }
    // Values of flags.
    check(
        "subscriptions create orders billing --endpoint https://a --time-to-live 30",
        expect![
            "error: invalid value '30' for '--time-to-live <DURATION>': expected whole minutes, \
             such as 90m or 24h"
        ],
    );
    check(
        "subscriptions create orders billing --endpoint https://a --response-timeout 5",
        expect![
            "error: invalid value '5' for '--response-timeout <DURATION>': expected whole \
             seconds, such as 60s or 5m"
        ],
    );
    check(
        "subscriptions create orders billing --endpoint https://a --max-attempts many",
        expect![
            "error: invalid value 'many' for '--max-attempts <N>': expected a whole number of 1 \
             or more"
        ],
    );
    check(
        "topics create orders --duplicate-window 10",
        expect![
            "error: invalid value '10' for '--duplicate-window <DURATION>': expected off or a \
             duration in whole seconds, such as 10m or PT10M"
        ],
    );
    check(
        "top --limit 0",
        expect![
            "error: invalid value '0' for '--limit <N>': expected a whole number from 1 to 500"
        ],
    );
    check(
        "health --wait 5",
        expect![
            "error: invalid value '5' for '--wait <DURATION>': expected a duration such as \
             500ms, 30s, 90m or PT90M"
        ],
    );
    check(
        "listen --listen here",
        expect![
            "error: invalid value 'here' for '--listen <ADDR>': expected an IP address and a \
             port, such as 127.0.0.1:9090 or [::1]:9090"
        ],
    );
    check(
        "publish orders --batch-bytes much",
        expect![
            "error: invalid value 'much' for '--batch-bytes <SIZE>': expected a size of 1 B or \
             more, such as 512 KiB or 1 MiB"
        ],
    );
    check(
        "publish orders --batch-bytes 0B",
        expect![
            "error: invalid value '0B' for '--batch-bytes <SIZE>': expected a size of 1 B or \
             more, such as 512 KiB or 1 MiB"
        ],
    );
    check(
        "tokens create shop --role publish,owner",
        expect![
            "error: invalid value 'owner' for '--role <ROLE>': expected one of publish, consume, \
             portal, read, operate, admin"
        ],
    );
    check(
        "dead-letters redrive orders billing --all --reason MaxDeliveryAttemptsExceeded",
        expect![[r#"
            error: the argument '--all' cannot be used with '--reason <REASON>'

            Usage: gridhook dead-letters redrive --all <TOPIC> <SUBSCRIPTION>"#]],
    );
    check(
        "dead-letters purge orders billing --key 1-2 --all",
        expect![[r#"
            error: the argument '--key <KEY>' cannot be used with '--all'

            Usage: gridhook dead-letters purge --key <KEY> <TOPIC> <SUBSCRIPTION>"#]],
    );
    check(
        "chaos --drop-responses 2",
        expect![
            "error: invalid value '2' for '--drop-responses <RATE>': expected a number from 0 to \
             1"
        ],
    );
    check(
        "chaos --publish-to localhost:8080",
        expect![
            "error: invalid value 'localhost:8080' for '--publish-to <URL>': expected a URL that \
             begins with http:// or https://, such as http://localhost:8080"
        ],
    );
    check(
        "replay start orders billing --all --rate 0",
        expect![
            "error: invalid value '0' for '--rate <EVENTS>': expected a number above 0, such as \
             50 or 0.5"
        ],
    );
    // Arguments of the commands.
    check(
        "subscriptions create orders billing",
        expect!["gridhook: no endpoint; name it with --endpoint URL"],
    );
    check(
        "subscriptions create orders billing --pull",
        expect![
            "gridhook: --pull and --lock are allowed only for topics of namespaces \
             (namespaces/NAME/topics/NAME)"
        ],
    );
    check(
        "subscriptions create namespaces/plant/topics/heat work",
        expect![
            "gridhook: no delivery mode; use --endpoint URL for push delivery or --pull for pull \
             delivery"
        ],
    );
    check(
        "subscriptions create namespaces/plant/topics/heat work --endpoint https://a --lock 60s",
        expect!["gridhook: --lock is allowed only with pull delivery (--pull)"],
    );
    check(
        "subscriptions create orders billing --endpoint https://a --expires never",
        expect![
            "error: invalid value 'never' for '--expires <TIME>': expected a time such as \
             2026-01-31T12:00:00Z, a day such as 2026-01-31, or a duration from now such as 90m or \
             7d"
        ],
    );
    check(
        "ledger orders billing --from yesterday",
        expect![
            "error: invalid value 'yesterday' for '--from <TIME>': expected a time such as \
             2026-01-31T12:00:00Z, a day such as 2026-01-31, or an age such as 90m or 7d"
        ],
    );
    check(
        "dead-letters redrive orders billing",
        expect![
            "gridhook: no dead letters selected; use --key, --id, --reason, --stage, --from or \
             --to, or --all"
        ],
    );
    check(
        "dead-letters purge orders billing",
        expect![
            "gridhook: no dead letters selected; use --key, --id, --reason, --stage, --from or \
             --to, or --all"
        ],
    );
    check(
        "publish https://example.com/api/events",
        expect![
            "gridhook: publishing to a URL needs an access key; use --key-file or GRIDHOOK_KEY. \
             The operator's token is sent only to the server's own address"
        ],
    );
    check(
        "publish domains/shop/topics/europe --key-file token",
        expect![
            "gridhook: cannot publish to a topic of a domain; publish to the domain, domains/shop, \
             and name the topic in each event"
        ],
    );
    check(
        "publish namespaces/plant --key-file token",
        expect![
            "gridhook: cannot publish to namespaces/plant; expected a topic, a domain or a topic \
             of a namespace"
        ],
    );
    check(
        "publish orders --key-file two.token",
        expect!["gridhook: two.token has 2 lines; expected one line of visible ASCII characters"],
    );
    check(
        "help topcis",
        expect!["gridhook: there is no help on topcis; did you mean topics?"],
    );
    check(
        "help topics craete",
        expect!["gridhook: there is no help on craete; did you mean create?"],
    );
    // All wrong settings are reported.
    check(
        "config check --listen here --log-format xml",
        expect![[r#"
        gridhook: 2 settings cannot be used:
          flag --log-format: log.format is "xml"; expected "text" or "json"
          flag --listen: server.listen is "here"; expected an IP address and a port, such as "127.0.0.1:8080" or "[::]:8080""#]],
    );
    check(
        "GRIDHOOK_SERVER__TLS_CERTIFICATE=server.crt config check",
        expect![[
            r#"gridhook: default: server.tls_key is ""; expected a file: server.tls_certificate and server.tls_key are set together"#
        ]],
    );
    let three = [
        ("GRIDHOOK_PUBLISH__EVENTBYTES", "1"),
        ("GRIDHOOK_LOG__FORMAT", "xml"),
    ];
    let reported = output_text(
        folder.path(),
        &["config", "check", "--listen", "here"],
        &three,
    );
    assert!(
        reported.starts_with("gridhook: 3 settings cannot be used:\n")
            && reported.lines().count() == 4,
        "{reported}"
    );
    assert!(
        reported.contains("unknown key publish.eventbytes"),
        "{reported}"
    );
    // Each file is named once.
    check(
        "apply -f topics.yaml",
        expect![
            "gridhook: topics.yaml: a .yaml file is not supported; expected TOML (.toml) or \
             JSON (.json)"
        ],
    );
    check(
        "apply -f unknown.toml",
        expect![
            "gridhook: unknown.toml: topics.orders.eventSubscriptions.billing: unknown key \
             endpoint; did you mean endpointUrl?"
        ],
    );
    check(
        "apply -f list.json",
        expect!["gridhook: list.json: the file is not a table; expected a table"],
    );
    check(
        "apply -f nowhere.toml",
        expect![
            "gridhook: nowhere.toml: it cannot be read: No such file or directory (os error 2)"
        ],
    );
    check(
        "GRIDHOOK_SERVER__APPLY=nowhere.toml config check",
        expect![
            "gridhook: server.apply: nowhere.toml: it cannot be read: No such file or directory \
             (os error 2)"
        ],
    );
    check(
        "topics create orders --body list.json",
        expect!["gridhook: list.json is not a JSON object; expected one JSON object"],
    );
    check(
        "topics create orders --body topics.yaml",
        expect!["gridhook: topics.yaml is not JSON: expected ident at line 1 column 2"],
    );
}

/// The values of flags that a parser of their own reads.
#[test]
fn flags_say_what_they_allow() {
    let folder = folder();
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
        let text = output_text(folder.path(), &arguments, &[]);
        let expected = format!(": expected {allowed}");
        assert!(text.ends_with(&expected), "{line}: {text}");
    }
}

#[test]
fn server_errors_say_what_to_do() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let check = |line: &str, expected: Expect| {
        let arguments: Vec<&str> = line.split(' ').collect();
        let text = operator(&server, &arguments).expect_err("a refusal");
        expected.assert_eq(&masked(&text.replace(&server.at().to_string(), "SERVER")));
    };
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
    check(
        "dead-letters list orders billing --reason TimeToLiveExeeded",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: reason is "TimeToLiveExeeded"; did you mean TimeToLiveExceeded? gridhook help delivery lists the allowed names."#
        ]],
    );
    check(
        "dead-letters list orders billing --stage nowhere",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: stage is "nowhere"; expected waiting or written."#
        ]],
    );
    check(
        "subscriptions create orders inner --endpoint https://10.0.0.1/",
        expect![
            "gridhook: the server responded 400 Bad Request: SocketError: Webhook validation \
             handshake failed for https://10.0.0.1/. Http POST request failed with response code \
             Unknown. Activity …, timestamp: … (UTC). What happened: the address 10.0.0.1 is \
             private or reserved; the setting delivery.allow_networks allows a network."
        ],
    );
    check(
        "subscriptions create orders gone --endpoint http://127.0.0.1:9/",
        expect![
            "gridhook: the server responded 400 Bad Request: SocketError: Webhook validation \
             handshake failed for http://127.0.0.1:9/. Http POST request failed with response code \
             Unknown. Activity …, timestamp: … (UTC). What happened: no connection to 127.0.0.1:9: \
             Connection refused (os error 111)."
        ],
    );
    check(
        "subscriptions create orders plain --endpoint localhost:24190",
        expect![
            "gridhook: the server responded 400 Bad Request: InvalidRequest: \
             properties.destination.properties.endpointUrl has no http:// or https:// at its \
             beginning; expected an absolute http or https URL."
        ],
    );
    check(
        "subscriptions create orders plain --endpoint https://a --proxy office",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: destination.properties.proxy is "office", which does not exist; delivery.resources has no proxy; expected none, for a direct connection"#
        ]],
    );
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
        let text = operator(&server, &create).expect_err("a refusal");
        let expected = format!(
            "gridhook: the server responded 400 Bad Request: InvalidRequest: \
             properties.transform.body line 1, {problem}."
        );
        assert_eq!(text, expected);
    }
    check(
        "ledger orders billing --outcome Foo",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: outcome is "Foo"; gridhook help delivery lists the allowed names."#
        ]],
    );
    check(
        "tail orders --outcome deliverd",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: outcome is "deliverd"; did you mean delivered? gridhook help delivery lists the allowed names."#
        ]],
    );
    check(
        "backup",
        expect![
            "gridhook: the server responded 400 Bad Request: InvalidRequest: folder is missing; \
             expected a folder, or none if backup.store.url is set."
        ],
    );
    check(
        "supervision --topic domains/shop",
        expect![
            "gridhook: the server responded 404 Not Found: ResourceNotFound: The Resource \
             'Microsoft.EventGrid/domains/shop' under resource group 'dev' was not found."
        ],
    );
    check(
        "topics create orders --tag team=shop",
        expect!["gridhook: orders already exists; change it with gridhook topics update orders"],
    );
    check(
        "topics create or.ders",
        expect![[
            r#"gridhook: the server responded 400 Bad Request: InvalidRequest: the topic's name is "or.ders"; expected 3 to 50 letters (a to z), digits and hyphens."#
        ]],
    );
    let top = operator(
        &server,
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
        0 in flight, 0 in the backlog, 0 pending; sorted by dead letters

        SUBSCRIPTION    HEALTH  DELIV/S  REQ/S  FAIL/S  OK  BACKLOG  AGE  PENDING  IN FLIGHT  DEAD LETTERS"#]]
    .assert_eq(&lines.join("\n"));
    // One of a thing.
    let done =
        |line: &str| operator(&server, &line.split(' ').collect::<Vec<_>>()).expect("it is done");
    done("topics create domains/shop");
    let supervised = done("supervision --topic domains/shop");
    assert!(
        supervised.starts_with("1 actor, 0 restarted"),
        "{supervised}"
    );
    done("topics create namespaces/plant");
    let topic = done("topics create namespaces/plant/topics/heat");
    assert!(
        topic
            .lines()
            .any(|line| line == "retention            1 day"),
        "{topic}"
    );
    let listeners = done("server");
    assert!(
        listeners.contains(" open, ") && !listeners.contains(" 1 connections"),
        "{listeners}"
    );
    sink.set("/b", Behavior::Answer(500));
    let endpoint = sink.url("/b");
    done(&format!(
        "subscriptions create orders sick --endpoint {endpoint} --max-attempts 1"
    ));
    let folder = folder();
    let file = folder.path().join("event.json");
    let event = r#"{"id": "1", "eventType": "A", "subject": "/a", "eventTime": "2026-01-01T00:00:00Z", "dataVersion": "1"}"#;
    fs::write(&file, event).expect("a file");
    done(&format!("publish orders {}", file.display()));
    wait_for("a failure", Duration::from_secs(60), || {
        done("subscriptions show orders sick")
            .contains("health            healthy, the last request failed\n")
    });
    let listening = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listening.local_addr().expect("its address").to_string();
    let error = output_text(folder.path(), &["listen", "--listen", &at], &[]);
    assert_eq!(
        error,
        format!("gridhook: cannot listen on {at}: Address already in use (os error 98)")
    );

    // A new event subscription below a new topic is shown with what the file says of it.
    let file = folder.path().join("new.toml");
    let declared = "[topics.new.eventSubscriptions.billing]\nendpointUrl = \
        \"https://a/hook?code=secret\"\n\
        filter = { includedEventTypes = [\"A\"] }\n[topics.new]\ntags = { team = \"shop\" }\n";
    fs::write(&file, declared).expect("a file");
    let plan = operator(
        &server,
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

    let token = server.data_dir().join("admin-token");
    let at = format!("https://{}", server.at());
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
        &output_text(folder.path(), &arguments, &[]).replace(&server.at().to_string(), "SERVER"),
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
