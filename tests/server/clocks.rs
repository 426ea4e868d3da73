//! A wrong system clock, before the start or during the run.

use std::{fs, process::Command, time::Duration};

use gridhook::{
    clock::Clock,
    control::registry::ChangeBasis,
    event::{Name, SubscriptionId, Timestamp},
    publish::schema::{self, EventTarget, RequestContent},
    record::subscription::SubscriptionRecord,
};
use serde_json::{Value, json};

use super::{LONG, in_store, many};
use crate::{
    publish::sas::signed,
    support::{
        endpoint::{Endpoint, respond},
        load, needs,
        server::{Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::{Behavior, Sink},
    },
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The time that the last process stored.
fn noted(server: &Server) -> Value {
    serde_json::from_slice(&fs::read(server.data_dir().join("clock")).expect("it was noted"))
        .expect("JSON")
}

/// Makes a copy of the topic `orders` called `wrong`, and publishes there, by a clock that is
/// wrong, while the server is down; and leaves what a process with that clock would leave.
fn publish_at(server: &Server, at: Timestamp, id: &str) {
    let body = bytes::Bytes::from(crate::support::load::body(&[id.to_owned()], "/a"));
    in_store(
        server,
        Clock::new_manual(at).0,
        async |registry, journal| {
            let orders = registry.find_topic("orders").expect("a topic");
            let mut record = (*orders.record()).clone();
            record.name = Name::new("wrong");
            let topic = registry
                .put_topic(record)
                .await
                .expect("a topic")
                .record()
                .key();
            for subscription in orders.list_subscriptions() {
                let copy = SubscriptionRecord {
                    number: SubscriptionId(0),
                    version: 0,
                    ..(*subscription).clone()
                };
                registry
                    .put_subscription(&topic, copy, ChangeBasis::Any)
                    .await
                    .expect("an event subscription");
            }
            let topic = registry.find_topic(&topic).expect("a topic");
            let content = RequestContent {
                content_type: Some("application/json"),
                attributes: Vec::new(),
            };
            let limits = gridhook::publish::PublishLimits::default();
            let draft = schema::read_events(
                &EventTarget::for_topic(&topic.record()),
                &content,
                &body,
                &limits,
            )
            .expect("events");
            journal
                .append_events(topic.partition(), draft.into_chunks(), None)
                .await
                .expect("it is stored");
        },
    );
    let mut past = noted(server);
    past["reported"] = json!(at.after(Duration::from_secs(1)).0);
    past["machine"]["boot"] = json!("another start of the machine");
    fs::write(server.data_dir().join("clock"), past.to_string()).expect("it is noted");
}

#[test]
fn the_stored_clock_is_replaced_as_a_whole() {
    let mut server = Server::start(&[]);
    server.terminate();
    // A process that is killed while it stores the next one must leave this one.
    let file = fs::File::open(server.data_dir().join("clock")).expect("it was noted");
    let before = noted(&server);
    server.restart();
    server.terminate();
    assert_ne!(noted(&server), before);
    let left: Value = serde_json::from_reader(file).expect("JSON");
    assert_eq!(left, before);
}

#[test]
fn after_a_start_with_a_clock_long_ago_nothing_expires_before_an_operator_confirms() {
    let mut server = Server::start(&[("DELIVERY__RESPONSE_TIMEOUT", "3s")]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    for hook in ["hook", "held"] {
        server.subscribe(
            "orders",
            hook,
            &SubscriptionSpec::new(&sink.url(&format!("/{hook}"))),
        );
    }
    sink.set("/held", Behavior::Hang);
    server.terminate();
    publish_at(&server, Clock::system().now().before(DAY * 400), "old");
    server.restart();
    wait_for("the event to be delivered", LONG, || {
        sink.taken("/hook") == 1
    });
    assert_eq!(server.counter("wrong", "hook", "dropped"), 0);
    assert_eq!(
        server.command("GET", "/clock", &Value::Null).json()["expiryPaused"],
        true
    );
    assert!(
        server
            .logs()
            .contains("the wall clock is ahead of the last run"),
        "it is logged"
    );

    // Another start does not forget it.
    server.kill_9();
    server.restart();
    let clock = server.command("GET", "/clock", &Value::Null).json();
    assert_eq!(clock["expiryPaused"], true, "{clock}");
    assert_eq!(server.counter("wrong", "held", "dropped"), 0);
    assert!(
        server
            .command("GET", "/metrics", &Value::Null)
            .text()
            .contains("gridhook_clock_expiry_paused 1")
    );

    let output = operator(&server, &["clock", "show"]).expect("it is shown");
    assert!(
        output.contains("paused until gridhook clock confirm"),
        "{output}"
    );
    let confirmed =
        operator(&server, &["clock", "confirm", "--output", "json"]).expect("it is confirmed");
    let clock: Value = serde_json::from_str(&confirmed).expect("JSON");
    assert_eq!(clock["expiryPaused"], false, "{clock}");
    wait_for("what nobody took to expire", LONG, || {
        server.counter("wrong", "held", "dropped") == 1
    });
}

#[test]
fn a_clock_that_was_ahead_and_is_right_again_lets_nothing_wait() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    server.terminate();
    publish_at(&server, Clock::system().now().after(DAY * 3), "early");
    server.restart();
    wait_for("the event to be delivered", LONG, || {
        sink.taken("/hook") == 1
    });
    let clock = server.command("GET", "/clock", &Value::Null).json();
    let ahead = clock["wallClockAheadSeconds"].as_f64().expect("a number");
    assert!(
        ahead < -2.0 * DAY.as_secs_f64(),
        "time goes on from where it was: {clock}"
    );
    assert!(
        server
            .logs()
            .contains("the wall clock is behind the last run"),
        "it is logged"
    );

    confirm_set_back(&server);
}

/// Confirms a clock that is behind, and waits until the same process has followed it.
fn confirm_set_back(server: &Server) {
    const BEHIND: f64 = -60.0;
    let process = server.id();
    let clock = server.command("POST", "/clock", &Value::Null).json();
    let ahead = |clock: &Value| clock["wallClockAheadSeconds"].as_f64();
    assert!(ahead(&clock) < Some(BEHIND), "{clock}");
    let token = fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let bearer = format!("Bearer {}", token.trim());
    let follows = || {
        let headers = [("authorization", bearer.as_str())];
        let clock = server.client().ask("GET", "/clock", &headers, b"");
        clock.is_ok_and(|clock| clock.status == 200 && ahead(&clock.json()) > Some(BEHIND))
    };
    wait_for("the server to follow its clock", LONG, follows);
    assert_eq!(server.id(), process, "it is the same process");
}

#[test]
fn a_confirmed_clock_that_is_behind_is_followed_at_once_by_stamps_ends_and_windows() {
    let mut server = Server::start(&[("CHAOS__ENABLED", "true")]);
    let sink = Sink::start();
    let key = server.topic_of(
        "orders",
        &json!({"inputSchema": "EventGridSchema", "duplicateDetectionHistoryTimeWindow": "PT20S"}),
    );
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Dead);
    let publish = |id: &str| server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
    let step = |step: &str| {
        let step = json!({"step": step, "duration": "10m"});
        server.command("POST", "/chaos/clock", &step);
        server.command("POST", "/clock", &Value::Null);
    };
    step("168h");
    publish("one");
    wait_for("a first attempt", LONG, || {
        sink.look("/hook", |ledger| ledger.contains_key("one"))
    });
    server.command("DELETE", "/chaos", &Value::Null);
    confirm_set_back(&server);

    let lived = json!({"retryPolicy": {"eventTimeToLiveInMinutes": 1}});
    server.subscribe(
        "orders",
        "short",
        &SubscriptionSpec::new(&sink.url("/short")).also(&json!({}), &lived),
    );
    sink.set("/short", Behavior::Dead);
    publish("one");
    let events = server
        .command("GET", &format!("{TOPIC}/trace?id=one"), &Value::Null)
        .json()["events"]
        .clone();
    let ahead = |index: usize| {
        let published = events[index]["published"].as_str().expect("a time");
        let published: jiff::Timestamp = published.parse().expect("a time");
        published.duration_since(jiff::Timestamp::now()).as_hours()
    };
    let mut ages = [ahead(0), ahead(1)];
    ages.sort_unstable();
    assert_eq!(ages[0], 0, "stored again, with the time of now: {events}");
    assert!(ages[1] > 160, "{events}");

    sink.set("/hook", Behavior::Respond(200));
    wait_for("what was due in a week to be delivered", LONG, || {
        server.counter("orders", "hook", "delivered") == 2
    });
    step("2m");
    wait_for("the time to live to end", LONG, || {
        server.counter("orders", "short", "dropped") == 1
    });
    server.terminate();
    server.assert_sound();
}

#[test]
fn tokens_follow_the_wall_clock_at_once() {
    let server = Server::start(&[("CHAOS__ENABLED", "true")]);
    let key = server.topic("orders", "EventGridSchema");
    let path = events_path("orders");
    let at = server.address();
    let resource: String =
        url::form_urlencoded::byte_serialize(format!("http://{at}{path}").as_bytes()).collect();
    let expiry = Clock::system()
        .now()
        .after(Duration::from_secs(600))
        .to_string();
    let expiry: String = url::form_urlencoded::byte_serialize(expiry.as_bytes()).collect();
    let token = signed(&key, &resource, &expiry);
    let publish = || {
        let body = crate::support::load::body(&["one".to_owned()], "/a");
        let response = server
            .client()
            .ask("POST", &path, &[("aeg-sas-token", &token)], &body)
            .expect("a response");
        (response.status, response.text())
    };
    let (status, reported) = publish();
    assert_eq!(status, 200, "{reported}");
    server.command(
        "POST",
        "/chaos/clock",
        &json!({"step": "1h", "duration": "10m"}),
    );
    let (status, reported) = publish();
    assert_eq!(status, 401, "the token has ended: {reported}");
    server.command("DELETE", "/chaos", &Value::Null);
    assert_eq!(
        publish().0,
        200,
        "and is good again by a clock that is right"
    );
}

#[test]
fn signatures_follow_the_wall_clock_at_once() {
    const STEP: u64 = 2 * 3_600;
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let service = format!("http://{}", endpoint.address());
    let server = Server::start(&[
        ("CHAOS__ENABLED", "true"),
        ("DELIVERY__VALIDATE", "false"),
        ("DELIVERY__RESOURCES__BUS__URL", &service),
        ("DELIVERY__RESOURCES__BUS__ACCESS_KEY_NAME", "root"),
        ("DELIVERY__RESOURCES__BUS__ACCESS_KEY", "key"),
        (
            "DELIVERY__RESOURCES__STORE__URL",
            &format!("{service}/account"),
        ),
        ("DELIVERY__RESOURCES__STORE__ACCESS_KEY", "a2V5"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let signing = json!({"secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]});
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url()).webhook("signing", signing),
    );
    for (name, kind, properties) in [
        (
            "bus",
            "ServiceBusQueue",
            json!({"resourceId": "bus/queues/orders"}),
        ),
        (
            "store",
            "StorageQueue",
            json!({"resourceId": "store", "queueName": "orders"}),
        ),
    ] {
        let destination = json!({"destination": {"endpointType": kind, "properties": properties}});
        server.subscribe(
            "orders",
            name,
            &SubscriptionSpec::new("").also(&json!({}), &destination),
        );
    }
    server.command(
        "POST",
        "/chaos/clock",
        &json!({"step": "2h", "duration": "10m"}),
    );
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("three requests", LONG, || endpoint.requests().len() == 3);

    let requests = endpoint.requests();
    let header = |name| {
        requests
            .iter()
            .find_map(|request| request.header(name).map(str::to_owned))
    };
    let signed = header("webhook-timestamp")
        .expect("a signature")
        .parse()
        .expect("seconds");
    let authorizations = requests
        .iter()
        .filter_map(|request| request.header("authorization"));
    let signature = authorizations
        .clone()
        .find_map(|text| text.split("&se=").nth(1)?.split('&').next());
    let expiry: u64 = signature.expect("a signature").parse().expect("seconds");
    let store = requests
        .iter()
        .find(|request| request.header("x-ms-version").is_some())
        .expect("a message");
    let date = httpdate::parse_http_date(store.header("date").expect("a date")).expect("a date");
    let date = date
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let wall = Clock::system().wall_time().since_epoch().as_secs() + STEP;
    for (what, seconds) in [
        ("webhook", signed),
        ("storage queue", date),
        ("service bus", expiry - 15 * 60),
    ] {
        assert!(
            seconds.abs_diff(wall) < STEP / 2,
            "{what}: {seconds}, and it is {wall}"
        );
    }
}

/// A clock that is wrong by this much, in every process other than the test.
const FAKETIME: [&str; 5] = [
    "env",
    "NO_FAKE_STAT=1",
    "faketime",
    "--exclude-monotonic",
    "-f",
];

/// Starts by a clock that is wrong by that (as faketime has it), by the right one, and so on; each
/// leaves an event that the endpoint does not take.
fn pending_across_wrong_clocks(wrong: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::with_data_dir(&folder.path().join("data"), &[]);
    let sink = Sink::start();
    sink.set("/hook", Behavior::Dead);
    let mut key = String::new();
    for start in 0..4 {
        let is_wrong = start % 2 == 0;
        let under = if is_wrong {
            [&FAKETIME[..], &[wrong]].concat()
        } else {
            Vec::new()
        };
        server.run_under(&under);
        server.restart();
        if start == 0 {
            key = server.topic("orders", "EventGridSchema");
            server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
        }
        let clock = server.command("GET", "/clock", &Value::Null).json();
        let wall: jiff::Timestamp = clock["wallClock"]
            .as_str()
            .expect("a time")
            .parse()
            .expect("a time");
        let off = Duration::from_micros(
            u64::try_from(wall.as_microsecond())
                .expect("after 1970")
                .abs_diff(Clock::system().now().0),
        );
        assert_eq!(
            off > Duration::from_secs(1800),
            is_wrong,
            "{wrong}, start {start}: {clock}"
        );
        server.publish("orders", &key, &load::body(&[start.to_string()], "/a"));
        let tried = || sink.look("/hook", |ledger| ledger.contains_key(&start.to_string()));
        wait_for("a first attempt", LONG, tried);
        if start < 2 {
            server.kill_9();
        } else if start < 3 {
            server.terminate();
        }
    }
    sink.set("/hook", Behavior::Respond(200));
    wait_for(
        &format!("everything to be delivered after {wrong}"),
        LONG,
        || sink.taken("/hook") == 4,
    );
    wait_for("it to be noted", LONG, || {
        server.counter("orders", "hook", "pending") == 0
    });
    assert_eq!(server.counter("orders", "hook", "dropped"), 0, "{wrong}");
    server.terminate();
    server.assert_sound();
}

#[test]
fn pending_events_survive_starts_with_wrong_clocks() {
    if !needs::can_run(
        "faketime",
        Command::new("faketime").args(["-f", "-1d", "true"]),
    ) {
        return;
    }
    let clocks = ["-400d", "+3d", "-1h", "+400d", "+1h", "-20y", "+20y"];
    for wrong in &clocks[..many(3, clocks.len())] {
        pending_across_wrong_clocks(wrong);
    }
}
