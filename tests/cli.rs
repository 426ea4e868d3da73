//! `listen`, `publish`, `serve` and `config check` as real processes, and commands whose server fails.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::{Arc, mpsc},
    time::Duration,
};

use expect_test::{Expect, expect};
use gridhook::cli::batches::{self, InputForm, RequestLimits};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{port::ReservedPort, server::wait_for};

fn gridhook(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A running `gridhook listen`. Dropping it stops the process.
struct Listening {
    child: Child,
    at: SocketAddr,
    /// Its standard output; [`None`] once it is closed.
    out: Option<BufReader<ChildStdout>>,
    /// Its standard error.
    notes: Arc<Mutex<String>>,
}

impl Listening {
    fn start(more: &[&str]) -> Self {
        let mut child = gridhook(&[&["listen", "--port", "0"], more].concat())
            .spawn()
            .expect("a process");
        let mut stderr = BufReader::new(child.stderr.take().expect("its standard error"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a first line");
        let at = line
            .trim()
            .trim_start_matches("listening on http://")
            .trim_end_matches('/');
        let at = at.parse().unwrap_or_else(|_| panic!("no address: {line}"));
        // The rest is read so that the process never blocks on a full pipe.
        let notes = Arc::<Mutex<String>>::default();
        let received = Arc::clone(&notes);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                received.lock().push_str(&format!("{line}\n"));
            }
        });
        let out = child.stdout.take().map(BufReader::new);
        Self {
            child,
            at,
            out,
            notes,
        }
    }

    /// The next line that it prints.
    fn whole_line(&mut self) -> String {
        let mut line = String::new();
        self.out
            .as_mut()
            .expect("somebody who reads")
            .read_line(&mut line)
            .expect("a line");
        line
    }

    /// The next line that it prints, without the time.
    fn line(&mut self) -> String {
        let line = self.whole_line();
        line.trim_end()
            .split_once(' ')
            .map(|(_, rest)| rest.to_owned())
            .unwrap_or(line)
    }

    /// The response to a request with these headers and this body.
    fn request(&self, method: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut response = String::new();
        self.send(method, headers, body)
            .read_to_string(&mut response)
            .expect("a response");
        response
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).expect("a connection");
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        write!(
            stream,
            "{method} /hook?code=1 HTTP/1.1\r\nhost: x\r\nconnection: \
             close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
        .expect("a request that is sent");
        stream
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().expect("a process that ends");
    }
}

/// A server that sends these responses, one for each request, and passes the requests on.
fn scripted(answers: &'static [&'static str]) -> (SocketAddr, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("its address");
    let (send, requests) = mpsc::channel();
    std::thread::spawn(move || {
        let mut answers = answers.iter();
        let mut next = answers.next();
        'answers: while let Some(response) = next {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            let mut head = String::new();
            let mut length = 0;
            loop {
                let start = head.len();
                reader.read_line(&mut head).expect("a line of the head");
                let line = head[start..].to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            // The request for the topic's schema comes first and does not use up a response.
            if head.starts_with("OPTIONS ") {
                stream
                    .write_all(OK.as_bytes())
                    .expect("an answer that is sent");
                continue 'answers;
            }
            stream
                .write_all(response.as_bytes())
                .expect("an answer that is sent");
            send.send((head, String::from_utf8(body).expect("UTF-8")))
                .ok();
            next = answers.next();
        }
    });
    (at, requests)
}

/// Runs `gridhook publish` with `input` as its standard input.
fn publish(at: SocketAddr, more: &[&str], input: &str) -> Output {
    let url = format!("http://{at}/topics/orders/api/events");
    let file = more
        .iter()
        .position(|argument| !argument.starts_with('-') && argument.ends_with(".json"));
    let (file, more): (&[&str], &[&str]) = if file == Some(0) {
        more.split_at(1)
    } else {
        (&["-"], more)
    };
    let arguments = [&["publish", &url], file, more].concat();
    let mut child = gridhook(&arguments)
        .env("GRIDHOOK_KEY", "secret")
        .stdin(Stdio::piped())
        .spawn()
        .expect("a process");
    // The process may end before it has read everything.
    child
        .stdin
        .take()
        .expect("its standard input")
        .write_all(input.as_bytes())
        .ok();
    child.wait_with_output().expect("an end")
}

fn summary(output: &Output, at: SocketAddr) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{}: {out}{error}", output.status.code().unwrap_or(-1))
        .replace(&at.to_string(), "SERVER")
        .trim_end()
        .to_owned()
}

fn event(id: usize) -> Value {
    json!({"id": id.to_string(), "eventType": "Orders.Placed", "subject": format!("/orders/{id}"), "data": {"n": id}})
}

fn lines(count: usize) -> String {
    (0..count).map(|id| format!("{}\n", event(id))).collect()
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[test]
fn the_listener_prints_published_events() {
    let mut listening = Listening::start(&[]);
    let output = publish(listening.at, &["--batch-events", "2"], &lines(3));
    expect!["0: published 3 events in 2 requests"].assert_eq(&summary(&output, listening.at));
    let printed: Vec<_> = (0..3).map(|_| listening.line()).collect();
    expect![[r#"
        200 Orders.Placed subject=/orders/0 id=0 delivery-count=-
        200 Orders.Placed subject=/orders/1 id=1 delivery-count=-
        200 Orders.Placed subject=/orders/2 id=2 delivery-count=-"#]]
    .assert_eq(&printed.join("\n"));
}

#[test]
fn the_listener_prints_json_for_machines() {
    let mut listening = Listening::start(&["--output", "json"]);
    let headers = [
        ("aeg-delivery-count", "2"),
        ("aeg-subscription-name", "ALL"),
    ];
    let event = r#"{"id":"7","data":{"z":12.50,"a":9007199254740993}}"#;
    let response = listening.request("POST", &headers, &format!("[{event}]"));
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let line = listening.whole_line();
    let (_, rest) = line
        .split_once(r#","status""#)
        .expect("a time, then the status");
    let expected = format!(r#":200,"subscription":"ALL","deliveryCount":2,"event":{event}}}"#);
    assert_eq!(
        (
            serde_json::from_str::<Value>(&line).is_ok(),
            rest.trim_end()
        ),
        (true, &*expected)
    );
}

#[test]
fn the_listener_answers_both_handshakes_with_a_failing_status() {
    let listening = Listening::start(&["--status", "503"]);
    let validation = json!([{"id": "1", "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "data": {"validationCode": "512D38B6", "validationUrl": "http://x/"}}]);
    let response = listening.request(
        "POST",
        &[("aeg-event-type", "SubscriptionValidation")],
        &validation.to_string(),
    );
    assert!(
        response.starts_with("HTTP/1.1 200 ")
            && response.ends_with("{\"validationResponse\":\"512D38B6\"}"),
        "{response}"
    );

    let asking = [
        ("WebHook-Request-Origin", "eventgrid.azure.net"),
        ("WebHook-Request-Rate", "120"),
    ];
    let response = listening
        .request("OPTIONS", &asking, "")
        .to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 200 "), "{response}");
    assert!(
        response.contains("webhook-allowed-origin: eventgrid.azure.net\r\n"),
        "{response}"
    );
    assert!(
        response.contains("webhook-allowed-rate: *\r\n"),
        "{response}"
    );
    assert!(
        listening
            .request("GET", &[], "")
            .starts_with("HTTP/1.1 405 ")
    );
}

#[test]
fn the_listener_simulates_an_endpoint_that_recovers() {
    let listening = Listening::start(&["--fail-first", "2", "--retry-after", "7s", "--quiet"]);
    let answers: Vec<_> = (0..3)
        .map(|id| listening.request("POST", &[], &event(id).to_string()))
        .collect();
    for failure in &answers[..2] {
        assert!(
            failure.starts_with("HTTP/1.1 503 ") && failure.contains("retry-after: 7\r\n"),
            "{failure}"
        );
    }
    assert!(
        answers[2].starts_with("HTTP/1.1 200 ") && !answers[2].contains("retry-after"),
        "{}",
        answers[2]
    );
}

#[test]
fn control_characters_of_an_event_are_escaped() {
    let hostile = "a\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\n99 forged";
    let event =
        serde_json::to_string_pretty(&json!({"type": hostile, "source": "s"})).expect("JSON");
    let mut listening = Listening::start(&["--status", "404"]);
    listening.request("POST", &[("aeg-delivery-count", "1")], &event);
    expect![[r#"404 a\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\n99 forged subject=- id=- delivery-count=1"#]]
        .assert_eq(&listening.line());
    let mut listening = Listening::start(&["--output", "json"]);
    listening.request("POST", &[], &event);
    let line = listening.whole_line();
    assert!(
        line.trim_end()
            .chars()
            .all(|c| !gridhook::escape::is_unsafe(c)),
        "{line:?}"
    );
    assert_eq!(
        serde_json::from_str::<Value>(&line).expect("JSON")["event"]["type"],
        hostile
    );
}

#[test]
fn control_characters_of_a_handshake_are_escaped() {
    let listening = Listening::start(&[]);
    // A header may contain these bytes: a C1 control sequence in UTF-8, and a bidirectional
    // override.
    listening.request(
        "OPTIONS",
        &[("WebHook-Request-Origin", "evil\u{9b}2J\u{202e}moc.live")],
        "",
    );
    let farewell = [
        ("aeg-event-type", "SubscriptionDeletion"),
        ("aeg-subscription-name", "a\u{9b}2Jb"),
    ];
    listening.request("POST", &farewell, "[]");
    let notes = || listening.notes.lock().clone();
    crate::support::server::wait_for("both notes", Duration::from_secs(60), || {
        notes().lines().count() == 2
    });
    expect![[r#"
        validation handshake: allowed origin evil\u{9b}2J\u{202e}moc.live
        subscription a\u{9b}2Jb was deleted
    "#]]
    .assert_eq(&notes());
}

#[test]
fn the_listener_ends_when_standard_output_is_closed() {
    let mut listening = Listening::start(&[]);
    drop(listening.out.take());
    // The first event finds the pipe closed. Its response does not matter.
    let _stream = listening.send("POST", &[], &event(1).to_string());
    assert_eq!(listening.child.wait().expect("an end").code(), Some(0));
}

#[test]
fn a_busy_server_receives_the_same_events_again() {
    const BUSY: &str =
        "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (at, requests) = scripted(&[BUSY, OK]);
    let output = publish(at, &[], &event(1).to_string());
    expect!["0: published 1 event in 1 request"].assert_eq(&summary(&output, at));
    let [(head, first), (_, second)] = [(); 2].map(|()| {
        requests
            .recv_timeout(Duration::from_secs(60))
            .expect("a request")
    });
    assert_eq!((&first, &first), (&second, &format!("[{}]", event(1))));
    let head = head.to_ascii_lowercase();
    assert!(
        head.starts_with("post /topics/orders/api/events http/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\naeg-sas-key: secret\r\n"), "{head}");
    assert!(
        head.contains("\r\ncontent-type: application/json; charset=utf-8\r\n"),
        "{head}"
    );
}

#[test]
fn cloud_events_go_as_a_batch() {
    let (at, requests) = scripted(&[OK]);
    let output = publish(at, &["--cloud-events"], &event(1).to_string());
    assert!(output.status.success());
    let (head, _) = requests
        .recv_timeout(Duration::from_secs(60))
        .expect("a request");
    let content_type = "content-type: application/cloudevents-batch+json; charset=utf-8\r\n";
    assert!(head.to_ascii_lowercase().contains(content_type), "{head}");
}

#[test]
fn an_error_response_is_printed_with_the_number_of_published_events() {
    const REFUSED: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 112\r\nconnection: \
        close\r\n\r\n{\"error\":{\"code\":\"Unauthorized\",\"message\":\"The key is wrong.\",\"details\":[{\"code\":\"InvalidSas\",\"message\":\"x\"}]}}\n";
    let (at, _requests) = scripted(&[OK, REFUSED]);
    let output = publish(at, &["--batch-events", "2"], &lines(5));
    expect![
        "1: gridhook: the server responded 401 Unauthorized: InvalidSas: The key is wrong. (2 \
         events published before)"
    ]
    .assert_eq(&summary(&output, at));
}

/// What a command prints whose server sends these responses.
fn ask_scripted(arguments: &[&str], answers: &'static [&'static str]) -> String {
    let (at, _requests) = scripted(answers);
    let output = gridhook(arguments)
        .env("GRIDHOOK_SERVER", format!("http://{at}"))
        .env("GRIDHOOK_TOKEN", "a-token-of-a-test")
        .output()
        .expect("a process");
    summary(&output, at)
}

const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: \
    close\r\n\r\n";

const EMPTY_OBJECT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

#[test]
fn an_unusable_response_is_described() {
    expect![
        "1: gridhook: the response has an unknown form (missing field `now`); the server and this \
         command may have different versions"
    ]
    .assert_eq(&ask_scripted(&["server"], &[EMPTY_OBJECT]));
    const ENDLESS: &str =
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\nconnection: close\r\n\r\n{}";
    expect![
        "1: gridhook: http://SERVER/: the response cannot be received: payload reached size limit"
    ]
    .assert_eq(&ask_scripted(&["server"], &[ENDLESS]));
}

#[test]
fn a_server_that_is_unavailable_is_not_taken_for_a_missing_resource() {
    let expected = "1: gridhook: the server responded 503 Service Unavailable: the response has \
        no body";
    let show = "subscriptions show orders billing --output json";
    let list = "subscriptions list orders --output json";
    let arguments: Vec<&str> = show.split(' ').collect();
    let shown = ask_scripted(&arguments, &[EMPTY_OBJECT, UNAVAILABLE]);
    assert_eq!(shown, expected);
    // The list is not requested a second time.
    let arguments: Vec<&str> = list.split(' ').collect();
    let listed = ask_scripted(&arguments, &[UNAVAILABLE, EMPTY_OBJECT]);
    assert_eq!(listed, expected);
}

#[test]
fn a_key_ends_top_while_a_request_hangs() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("its address");
    let (send, hanging) = mpsc::channel();
    std::thread::spawn(move || {
        // The first request comes before the screen is cleared.
        let (mut first, _) = listener.accept().expect("a connection");
        let mut line = String::new();
        BufReader::new(&first)
            .read_line(&mut line)
            .expect("a request");
        first
            .write_all(EMPTY_OBJECT.as_bytes())
            .expect("a response that is sent");
        drop(first);
        send.send(listener.accept().expect("a second connection"))
            .ok();
    });
    let top = format!(
        "{} top --server http://{at}",
        env!("CARGO_BIN_EXE_gridhook")
    );
    // `script` runs it in a terminal.
    let mut child = Command::new("script")
        .args(["--quiet", "--command", &top, "/dev/null"])
        .env("GRIDHOOK_TOKEN", "a-token-of-a-test")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let _connection = hanging
        .recv_timeout(Duration::from_secs(60))
        .expect("a request that hangs");
    let stdin = child.stdin.as_mut().expect("its standard input");
    stdin.write_all(b"q").expect("a key");
    // The request itself would end after a minute.
    wait_for("the end of top", Duration::from_secs(30), || {
        child.try_wait().expect("a status").is_some()
    });
}

#[test]
fn a_pause_below_a_second_is_refused() {
    let output = gridhook(&["listen", "--retry-after", "500ms"])
        .output()
        .expect("a process");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("expected whole seconds"), "{error}");
}

#[test]
fn input_that_is_not_json_is_reported_with_its_position() {
    let (at, _requests) = scripted(&[OK]);
    let output = publish(
        at,
        &["--batch-events", "1"],
        &format!("{}\n{{\"id\": \n", event(0)),
    );
    expect![
        "1: gridhook: standard input: event 2: EOF while parsing a value at line 3 column 0; \
         expected a JSON array, a JSON object, or one object after another (1 event published \
         before)"
    ]
    .assert_eq(&summary(&output, at));
}

#[test]
fn a_missing_server_and_a_missing_file_are_reported() {
    let port = ReservedPort::new();
    let free = port.address;
    expect![
        "1: gridhook: http://SERVER/topics/orders/api/events: Failed to connect to host: \
         Connection refused (os error 111) (0 events published before)"
    ]
    .assert_eq(&summary(&publish(free, &[], &lines(1)), free));
    expect![
        "2: gridhook: nowhere.json: cannot be read: No such file or directory (os error 2) (0 \
         events published before)"
    ]
    .assert_eq(&summary(&publish(free, &["nowhere.json"], ""), free));
}

#[test]
fn serve_refuses_settings_that_cannot_be_used() {
    let check = |arguments: &[&str], expected: Expect| {
        let output = gridhook(arguments)
            .env_remove("GRIDHOOK_ADMIN_TOKEN")
            .output()
            .expect("an end");
        assert_eq!(output.status.code(), Some(2));
        expected.assert_eq(String::from_utf8_lossy(&output.stderr).trim_end());
    };
    check(
        &["serve", "--listen", "here"],
        expect![[
            r#"gridhook: flag --listen: server.listen is "here"; expected an IP address and a port, such as "127.0.0.1:8080" or "[::]:8080""#
        ]],
    );
    check(
        &["serve", "--config", "nowhere.toml"],
        expect!["gridhook: nowhere.toml cannot be read: No such file or directory (os error 2)"],
    );
    check(
        &["serve", "--log-format", "xml"],
        expect![[r#"gridhook: flag --log-format: log.format is "xml"; expected "text" or "json""#]],
    );
}

#[test]
fn settings_are_checked_without_a_start() {
    let check = |arguments: &[&str]| {
        let mut command = gridhook(&[&["config", "check"], arguments].concat());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
        {
            command.env_remove(name);
        }
        command
            .env("GRIDHOOK_ADMIN_TOKEN", "very-secret-and-long")
            .env("GRIDHOOK_LOG__FORMAT", "json");
        let output = command.output().expect("an end");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, text, _) = check(&["--changed", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(0));
    expect![[r#"
        KEY                 VALUE          FROM
        log.format          "json"         environment variable GRIDHOOK_LOG__FORMAT
        server.admin_token  (not shown)    environment variable GRIDHOOK_ADMIN_TOKEN
        server.listen       "127.0.0.1:0"  flag --listen"#]]
    .assert_eq(&text);
    let (code, text, _) = check(&["--output", "json"]);
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let waits = all["value"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["key"] == "delivery.response_timeout");
    assert_eq!(
        waits,
        Some(&json!({"key": "delivery.response_timeout", "value": "\"30s\"", "origin": "default"}))
    );
    assert!(
        code == Some(0) && !text.contains("very-secret-and-long"),
        "{text}"
    );
    let (code, text, reported) = check(&["--listen", "here"]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    expect![[r#"gridhook: flag --listen: server.listen is "here"; expected an IP address and a port, such as "127.0.0.1:8080" or "[::]:8080""#]].assert_eq(&reported);
}

fn cut(input: &str, events: usize, bytes: usize) -> String {
    let mut out = Vec::new();
    let read = batches::read(
        input.as_bytes(),
        InputForm::Events,
        RequestLimits { events, bytes },
        |batch| {
            out.push(format!(
                "{}×{}",
                batch.events,
                String::from_utf8_lossy(&batch.body)
            ));
            true
        },
    );
    out.extend(read.err().map(|error| error.to_string()));
    out.join("\n")
}

#[test]
fn input_is_cut_into_batches_byte_for_byte() {
    expect![[r#"
        2×[{"a": 1.0},{"b":2}]
        1×[{"c":3}]"#]]
    .assert_eq(&cut("{\"a\": 1.0}\n{\"b\":2}\n\n{\"c\":3}", 2, 100));
    expect![[r#"2×[{"a": 1.0},{"b":2}]"#]].assert_eq(&cut(
        " [ {\"a\": 1.0} , {\"b\":2} ] ",
        100,
        100,
    ));
    expect![[r#"
        1×[{"a":1}]
        1×[{"b":"longer than the others"}]
        2×[{"c":3},{"d":4}]"#]]
    .assert_eq(&cut(
        "{\"a\":1}{\"b\":\"longer than the others\"}{\"c\":3}{\"d\":4}",
        100,
        17,
    ));
    expect![[r#"1×[{"a": 1.0}]"#]].assert_eq(&cut("\u{feff}{\"a\": 1.0}", 2, 100));
    expect![[r#"1×[{"a": 1.0}]"#]].assert_eq(&cut("\u{feff}\r\n[{\"a\": 1.0}]", 2, 100));
    expect![""].assert_eq(&cut("\u{feff}", 1, 1));
    expect![""].assert_eq(&cut("", 1, 1));
    expect![""].assert_eq(&cut("[]", 1, 1));
    expect![[r#"
        1×[{"a":1}]
        event 2: an event must be a JSON object at line 1 column 12; expected a JSON array, a JSON object, or one object after another"#]].assert_eq(&cut("[{\"a\":1}, 5]", 9, 99));
    expect![[r#"
        1×[{"a":1}]
        event 2: trailing characters at line 1 column 11; expected a JSON array, a JSON object, or one object after another"#]].assert_eq(&cut("[{\"a\":1}] {\"b\":2}", 9, 99));
    expect![[r#"
        1×[{"a":1}]
        event 2: expected ident at line 2 column 2; expected a JSON array, a JSON object, or one object after another"#]].assert_eq(&cut("{\"a\":1}\nnonsense", 9, 99));
}

#[test]
fn reading_stops_when_the_receiver_stops() {
    let mut seen = 0;
    let endless = std::iter::repeat_n("{\"a\":1}", 1_000).collect::<String>();
    let read = batches::read(
        endless.as_bytes(),
        InputForm::Events,
        RequestLimits {
            events: 1,
            bytes: 100,
        },
        |_| {
            seen += 1;
            seen < 3
        },
    );
    assert!(read.is_ok());
    assert_eq!(seen, 3);
}
