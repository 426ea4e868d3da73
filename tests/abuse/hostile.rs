//! Endpoints with every kind of bad response at once on one topic: each response is classified,
//! every event is delivered in the end, and a good neighbour receives all of its events.

use std::{fmt::Write as _, fs, process::Command, time::Duration};

use serde_json::Value;

use super::{LONG, print};
use crate::support::{
    certificates::Authority,
    endpoint::{Endpoint, Script, Step, respond},
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

/// The number of requests with events to which an endpoint sends bad responses. Then it is a plain
/// one.
const MISBEHAVED: usize = 2;

/// Events for all endpoints, and events for the good neighbour alone.
const SHARED: usize = MISBEHAVED;
const OWN: usize = 100;

/// The number of bad responses of one kind in the test of the log.
const FLOOD: usize = 30;

/// All endpoints together; a buffer without a bound would be many times that.
const MEMORY_MAX: u64 = 96 << 20;

/// The inflated size of a bomb.
const BOMB: u64 = 4 * MEMORY_MAX;

/// Longer than the response timeout of the test.
const PAUSE: Duration = Duration::from_millis(300);

struct Kind {
    name: &'static str,
    script: Script,
    /// How an attempt is classified.
    outcome: &'static str,
    behavior: Behavior,
}

/// How the endpoint misbehaves besides.
#[derive(Clone, Copy, PartialEq)]
enum Behavior {
    /// In its responses alone.
    Answers,
    /// It responds before it has read the body.
    HeadsOnly,
    /// It speaks HTTP where its address says https.
    Plain,
    /// It speaks TLS where its address says http.
    Tls,
}

fn kind(name: &'static str, outcome: &'static str, script: Script) -> Kind {
    Kind {
        name,
        script,
        outcome,
        behavior: Behavior::Answers,
    }
}

fn say(text: impl AsRef<[u8]>) -> Step {
    Step::Say(text.as_ref().to_vec())
}

/// A head of a success with these lines.
fn ok(lines: &str) -> Step {
    say(format!("HTTP/1.1 200 OK\r\n{lines}\r\n"))
}

/// A response of these bytes on a connection that is closed then.
fn once(text: impl AsRef<[u8]>) -> Script {
    vec![say(text), Step::Pause(PAUSE), Step::Close]
}

/// Ends in the head.
fn heads() -> Vec<Kind> {
    let many = (0..200).fold(String::new(), |mut lines, number| {
        // Writing to a string does not fail.
        write!(lines, "x-{number}: y\r\n").ok();
        lines
    });
    let with = |lines: &str| {
        once(format!(
            "HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n"
        ))
    };
    let large = "a".repeat(200_000);
    vec![
        kind("no answer", "TimedOut", vec![Step::Hang]),
        kind(
            "a head that stops",
            "Delivered",
            vec![say("HTTP/1.1 200 OK\r\nx: "), Step::Hang],
        ),
        kind(
            "a head, byte by byte",
            "TimedOut",
            vec![Step::Trickle(
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
                PAUSE,
            )],
        ),
        kind(
            "a header that does not end",
            "Delivered",
            vec![
                say("HTTP/1.1 200 OK\r\nx: "),
                Step::Forever(vec![b'a'; 4096]),
            ],
        ),
        kind(
            "headers that do not end",
            "Delivered",
            vec![
                say("HTTP/1.1 200 OK\r\n"),
                Step::Forever(b"x: a\r\n".repeat(500)),
            ],
        ),
        kind(
            "a header of 200 kB",
            "Delivered",
            with(&format!("x: {large}\r\n")),
        ),
        kind("a header of 135 kB in two parts", "Delivered", {
            // The second part arrives at once, and then there is nothing to wait for.
            let (first, second) = large[..135_000].split_at(130_000);
            let end = say(format!("{second}\r\ncontent-length: 0\r\n\r\n"));
            vec![
                say(format!("HTTP/1.1 200 OK\r\nx: {first}")),
                Step::Pause(PAUSE),
                end,
            ]
        }),
        kind("200 headers", "Delivered", with(&many)),
        kind(
            "a reason of 200 kB",
            "GenericError",
            once(format!("HTTP/1.1 200 {large}\r\ncontent-length: 0\r\n\r\n")),
        ),
        kind("a zero byte in a header", "Delivered", with("x: a\0b\r\n")),
        kind("a folded header", "Delivered", with("x: a\r\n b\r\n")),
        kind("a header without a colon", "Delivered", with("x\r\n")),
        kind("a header without a name", "Delivered", with(": x\r\n")),
        kind("two lengths", "Delivered", with("content-length: 1\r\n")),
        kind(
            "a negative length",
            "Delivered",
            once("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
        ),
        kind(
            "a length that is no number",
            "Delivered",
            once("HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\n"),
        ),
        kind(
            "a length beyond 64 bits",
            "Delivered",
            once(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                u128::MAX
            )),
        ),
        kind(
            "no status line",
            "GenericError",
            once("content-length: 0\r\n\r\n"),
        ),
        kind(
            "HTTP/0.9",
            "GenericError",
            once("<html>hello</html>\r\n\r\n"),
        ),
        kind(
            "HTTP/2",
            "GenericError",
            once(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\0\xff\xff"),
        ),
        kind(
            "another protocol",
            "GenericError",
            once("SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        ),
        kind(
            "an alert of TLS",
            "GenericError",
            once(b"\x15\x03\x03\0\x02\x02\x28"),
        ),
        kind(
            "a status of five digits",
            "GenericError",
            once("HTTP/1.1 20000 OK\r\ncontent-length: 0\r\n\r\n"),
        ),
        kind(
            "a status below 100",
            "GenericError",
            once("HTTP/1.1 020 OK\r\ncontent-length: 0\r\n\r\n"),
        ),
        kind(
            "interim answers that do not end",
            "GenericError",
            vec![Step::Forever(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(500))],
        ),
        kind(
            "another protocol, switched to",
            "GenericError",
            respond(101, "upgrade: x\r\nconnection: upgrade\r\n", ""),
        ),
        kind(
            "half a status line, then the end",
            "SocketError",
            once("HTTP/1.1 20"),
        ),
        kind("the end before an answer", "SocketError", vec![Step::Close]),
        Kind {
            behavior: Behavior::Plain,
            ..kind("HTTP on a port of https", "SocketError", Vec::new())
        },
        Kind {
            behavior: Behavior::Tls,
            ..kind("TLS on a port of http", "GenericError", Vec::new())
        },
        kind("a reset before an answer", "SocketError", vec![Step::Reset]),
    ]
}

/// Ends behind the head.
fn bodies() -> Vec<Kind> {
    let chunked = "transfer-encoding: chunked\r\n";
    // A name that leads nowhere but to itself.
    let to_itself = respond(307, "location: /hook?code=1\r\n", "");
    vec![
        kind(
            "a body, byte by byte",
            "Delivered",
            vec![
                ok("content-length: 100\r\n"),
                Step::Trickle(vec![b'x'; 99], PAUSE),
            ],
        ),
        kind(
            "chunks that stop",
            "Delivered",
            vec![ok(chunked), say("5\r\nhel"), Step::Hang],
        ),
        kind("a redirect to itself", "GenericError", to_itself),
        kind(
            "a 304 with a length",
            "GenericError",
            vec![
                say("HTTP/1.1 304 X\r\ncontent-length: 5\r\n\r\n"),
                Step::Close,
            ],
        ),
        kind(
            "a part of something",
            "GenericError",
            respond(206, "content-range: bytes 0-0/9\r\n", "x"),
        ),
        kind(
            "a wait that is no number",
            "Busy",
            vec![say(
                "HTTP/1.1 503 X\r\nretry-after: soon\r\ncontent-length: 0\r\n\r\n",
            )],
        ),
        kind(
            "less than was announced",
            "Delivered",
            vec![ok("content-length: 100\r\n"), say("abc"), Step::Close],
        ),
        kind(
            "more than was announced",
            "Delivered",
            vec![ok("content-length: 1\r\n"), say("abc"), Step::Close],
        ),
        kind(
            "a reset behind the head",
            "Delivered",
            vec![ok("content-length: 9\r\n"), Step::Pause(PAUSE), Step::Reset],
        ),
        kind(
            "no chunks where they should be",
            "Delivered",
            vec![ok(chunked), say("zz\r\nhello"), Step::Close],
        ),
        kind(
            "a body that does not end",
            "Delivered",
            vec![
                ok("content-length: 1099511627776\r\n"),
                Step::Forever(vec![b'x'; 4096]),
            ],
        ),
        kind(
            "chunks that do not end",
            "Delivered",
            vec![ok(chunked), Step::Forever(b"5\r\nhello\r\n".to_vec())],
        ),
        kind("a bomb of gzip", "Delivered", bomb(200)),
        kind(
            "a bomb of gzip that says why not",
            "GenericError",
            bomb(500),
        ),
        kind(
            "a 204 with a body",
            "Delivered",
            vec![
                say("HTTP/1.1 204 X\r\ncontent-length: 3\r\n\r\nabc"),
                Step::Close,
            ],
        ),
        kind(
            "a connection that is kept, and closed",
            "Delivered",
            vec![
                ok("connection: keep-alive\r\ncontent-length: 0\r\n"),
                Step::Close,
            ],
        ),
        kind(
            "two answers",
            "Delivered",
            vec![
                ok("content-length: 0\r\n"),
                say("HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"),
            ],
        ),
        Kind {
            behavior: Behavior::HeadsOnly,
            ..kind(
                "an answer before the body is read",
                "Delivered",
                vec![ok("content-length: 0\r\n"), Step::Pause(PAUSE), Step::Close],
            )
        },
    ]
}

/// A response whose body is small, and many times the memory bound when inflated.
fn bomb(status: u16) -> Script {
    let zip = Command::new("sh")
        .args(["-c", &format!("head -c {BOMB} /dev/zero | gzip -9")])
        .output()
        .expect("gzip");
    assert!(
        zip.status.success() && (1_000..1_000_000).contains(&zip.stdout.len()),
        "{:?}",
        zip.status
    );
    let lines = "content-type: text/plain\r\ncontent-encoding: gzip\r\n";
    let head = format!(
        "HTTP/1.1 {status} X\r\n{lines}content-length: {}\r\n\r\n",
        zip.stdout.len()
    );
    vec![say([head.as_bytes(), &zip.stdout].concat())]
}

/// The permission that CloudEvents ask for, on a connection of its own.
fn permission() -> Script {
    [
        respond(
            200,
            "webhook-allowed-origin: *\r\nconnection: close\r\n",
            "",
        ),
        vec![Step::Close],
    ]
    .concat()
}

fn spec(endpoint: &Endpoint) -> SubscriptionSpec {
    SubscriptionSpec::new(&endpoint.url()).schema("CloudEventSchemaV1_0")
}

fn start(kind: &Kind, authority: &Authority) -> (Endpoint, SubscriptionSpec) {
    let misbehaved = vec![kind.script.clone(); MISBEHAVED];
    let plain = [
        respond(200, "connection: close\r\n", ""),
        vec![Step::Pause(PAUSE), Step::Close],
    ]
    .concat();
    let after = |misbehaved| [vec![permission()], misbehaved, vec![plain.clone()]].concat();
    // The first connection asks for permission.
    let wrong = |has_tls| {
        Endpoint::start_wrong(
            after(Vec::new()),
            authority.endpoint("localhost", rustls::ALL_VERSIONS),
            has_tls,
            1..1 + MISBEHAVED,
        )
    };
    let endpoint = match kind.behavior {
        Behavior::Answers => Endpoint::start(after(misbehaved)),
        Behavior::HeadsOnly => Endpoint::start_impatient(after(misbehaved)),
        Behavior::Plain => {
            let endpoint = wrong(true);
            let url = format!("https://localhost:{}/hook", endpoint.address().port());
            return (
                endpoint,
                SubscriptionSpec::new(&url).schema("CloudEventSchemaV1_0"),
            );
        }
        Behavior::Tls => wrong(false),
    };
    let spec = spec(&endpoint);
    (endpoint, spec)
}

/// How the attempts of the event at this subscription ended, first to last.
fn outcomes(server: &Server, id: &str, name: &str) -> Vec<String> {
    let response = server
        .command("GET", &format!("{TOPIC}/trace?id={id}"), &Value::Null)
        .json();
    let histories = response["events"][0]["subscriptions"]
        .as_array()
        .unwrap_or_else(|| panic!("{response}"));
    let history = histories
        .iter()
        .find(|history| history["subscription"] == name)
        .unwrap_or_else(|| panic!("{response}"));
    let lines = history["lines"].as_array().expect("a list");
    let attempts = lines.iter().filter(|line| line.get("attempt").is_some());
    attempts
        .map(|line| line["outcome"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn every_answer_is_classified_every_event_is_delivered_and_a_neighbour_is_not_affected() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let roots = folder.path().join("ca.pem");
    fs::write(&roots, authority.pem()).expect("written");
    let settings = [
        ("DELIVERY__TLS_ROOTS", &*roots.display().to_string()),
        ("DELIVERY__RESPONSE_TIMEOUT", "2s"),
        ("DELIVERY__LATE_TIMEOUT", "2s"),
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "100"),
        ("JOURNAL__RETENTION", "1h"),
    ];
    let server = Server::start(&settings);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let memory = server.resident();
    server.subscribe(
        "orders",
        "neighbour",
        &SubscriptionSpec::new(&sink.url("/neighbour")),
    );
    let kinds: Vec<(String, Kind, Endpoint)> = heads()
        .into_iter()
        .chain(bodies())
        .enumerate()
        .map(|(number, kind)| {
            let name = format!("hook{number}");
            let (endpoint, spec) = start(&kind, &authority);
            server.subscribe("orders", &name, &spec.prefix("/shared"));
            (name, kind, endpoint)
        })
        .collect();
    assert!(kinds.len() >= 35, "{}", kinds.len());
    let shared = publish_to_all(&server, &key, &sink);

    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    for (name, kind, endpoint) in &kinds {
        let counter = |which: &str| server.counter("orders", name, which);
        wait_for(
            &format!("all events of \"{}\" to be delivered", kind.name),
            LONG,
            || counter("delivered") == SHARED as u64 && counter("pending") == 0,
        );
        let mut expected = vec![kind.outcome.to_owned()];
        if kind.outcome != "Delivered" {
            expected.push("Delivered".to_owned());
        }
        let found = || -> Vec<Vec<String>> {
            shared
                .iter()
                .map(|id| outcomes(&server, id, name))
                .collect()
        };
        // `trace` reads the disk, which follows the counters.
        wait_for(
            &format!("the last outcomes of \"{}\" to be on disk", kind.name),
            LONG,
            || {
                found()
                    .iter()
                    .all(|found| found.last().is_some_and(|last| last == "Delivered"))
            },
        );
        let found = found();
        // A request that is read in part may look like several requests to the endpoint.
        let requests = match kind.behavior {
            Behavior::Answers => endpoint.requests().len() - 1,
            Behavior::HeadsOnly => expected.len() * SHARED,
            Behavior::Plain | Behavior::Tls => endpoint.connections() - 1,
        };
        if found.iter().any(|found| *found != expected) || requests != expected.len() * SHARED {
            wrong.push(format!(
                "{}: {found:?} in {requests} requests, and not {expected:?}",
                kind.name
            ));
        }
        if counter("dropped") > 0 || counter("matched") != SHARED as u64 {
            wrong.push(format!(
                "{}: {}",
                kind.name,
                server.status("orders", name)["counters"]
            ));
        }
        rows.push([kind.name.to_owned(), found[0].join(", ")]);
    }
    print("answer → how the attempts were classified", &rows);
    let grown = server.most_resident().saturating_sub(memory);
    println!("{} MiB of memory more than at first, at most", grown >> 20);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(grown < MEMORY_MAX, "{grown} bytes more than before");
    assert!(!server.logs().contains("panicked"), "nobody panicked");
}

/// Publishes events to all event subscriptions, and events to the neighbour only. Returns the ids
/// of the former.
fn publish_to_all(server: &Server, key: &str, sink: &Sink) -> Vec<String> {
    let shared: Vec<String> = (0..SHARED)
        .map(|number| format!("shared-{number}"))
        .collect();
    for id in &shared {
        server.publish(
            "orders",
            key,
            &load::body(std::slice::from_ref(id), "/shared"),
        );
    }
    for number in 0..OWN {
        server.publish(
            "orders",
            key,
            &load::body(&[format!("own-{number}")], "/own"),
        );
    }
    wait_for("the neighbour's events", LONG, || {
        sink.taken("/neighbour") == SHARED + OWN
    });
    sink.look("/neighbour", |ledger| {
        assert!(
            ledger.values().all(|arrivals| arrivals.len() == 1),
            "each once"
        )
    });
    shared
}

#[test]
fn bad_answers_do_not_fill_the_log() {
    let bad: [(&str, Script); 3] = [
        (
            "a reason that does not end",
            vec![say("HTTP/1.1 200 "), Step::Forever(vec![b'a'; 4096])],
        ),
        ("no status line", once("content-length: 0\r\n\r\n")),
        ("the end before an answer", vec![Step::Close]),
    ];
    let server = Server::start(&[("DELIVERY__SUSPEND_AFTER_FAILURES", "100000")]);
    let key = server.topic("orders", "EventGridSchema");
    let endpoints: Vec<Endpoint> = bad
        .iter()
        .map(|(_, script)| Endpoint::start(vec![permission(), script.clone()]))
        .collect();
    for (number, endpoint) in endpoints.iter().enumerate() {
        server.subscribe(
            "orders",
            &format!("hook{number}"),
            &spec(endpoint).attempts(1),
        );
    }
    let before = server.logs().lines().count();
    let ids: Vec<String> = (0..FLOOD).map(|number| number.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/a"));
    for (number, (name, _)) in bad.iter().enumerate() {
        wait_for(
            &format!("all events to be given up for {name}"),
            2 * LONG,
            || server.counter("orders", &format!("hook{number}"), "dropped") == FLOOD as u64,
        );
    }
    let log = server.logs();
    let lines = log.lines().count() - before;
    println!("{} bad answers, {lines} lines", bad.len() * FLOOD);
    assert!(lines < FLOOD, "{lines} lines: {log}");
}

#[test]
fn an_unsolicited_response_answers_no_later_request() {
    let two = [ok("content-length: 0\r\n"), ok("content-length: 0\r\n")];
    for apart in [false, true] {
        let pause = Step::Pause(if apart {
            Duration::from_millis(50)
        } else {
            Duration::ZERO
        });
        let unasked = vec![two[0].clone(), pause, two[1].clone()];
        let busy = respond(503, "", "");
        let endpoint = Endpoint::start(vec![permission(), unasked, busy, respond(200, "", "")]);
        let server = Server::start(&[("JOURNAL__RETENTION", "1h")]);
        let key = server.topic("orders", "EventGridSchema");
        server.subscribe("orders", "hook", &spec(&endpoint));
        for (number, expected) in [(0, vec!["Delivered"]), (1, vec!["Busy", "Delivered"])] {
            let id = format!("event-{number}");
            server.publish("orders", &key, &load::body(std::slice::from_ref(&id), "/a"));
            wait_for("the event to be delivered", LONG, || {
                server.counter("orders", "hook", "delivered") == number + 1
            });
            // `trace` reads the disk, which follows the counters.
            wait_for("the last outcome to be on disk", LONG, || {
                outcomes(&server, &id, "hook")
                    .last()
                    .is_some_and(|last| last == "Delivered")
            });
            assert_eq!(outcomes(&server, &id, "hook"), expected, "apart: {apart}");
            // The unsolicited response has arrived by now.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
