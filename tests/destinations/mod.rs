//! Destinations other than webhooks, each against the real service: one test for all of them
//! ([`conform`]), and what is particular to a kind in its own file.

mod amqp;
mod azure_function;
mod checklist;
mod credentials;
mod kafka;
pub(crate) mod kafka_protocol;
mod namespace_topic;
mod nats;
mod outcomes;
mod refused;
mod service_bus;
mod sqs;
mod storage_queue;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    server::{end_waits, wait_until_settled},
    support::{
        load::{self, Load, Rate},
        server::{SCOPE, Server, SubscriptionSpec, operator, wait_for},
    },
};

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(120);

/// A service that events are delivered to.
trait Service {
    /// `endpointType`.
    const KIND: &'static str;
    /// A secret in its settings.
    const SECRET: &'static str;
    /// A `resourceId` that no service stands for.
    const ELSEWHERE: &'static str = "elsewhere";
    /// Whether everything that it accepted survives its end.
    const IS_DURABLE: bool;
    /// The size of an event that it refuses.
    const TOO_LARGE: usize;
    /// The most events of a request.
    const EVENTS_MAX: u64;

    /// Starts it, or starts it again with what it had.
    fn resume(&mut self);

    /// Ends it; with `kill -9`, if it is durable.
    fn stop(&mut self);

    /// Makes a queue or a topic.
    fn create(&mut self, name: &str);

    /// The settings of a server, with this service under the name `service`.
    fn settings(&self) -> Vec<(&'static str, String)>;

    /// `properties` of a destination.
    fn properties(&self, name: &str) -> Value;

    /// The events that arrived in the queue since the last call, as JSON.
    fn receive(&mut self, name: &str) -> Vec<Value>;
}

/// A subscription that delivers to `name`. What is given up goes to the container `letters`.
fn spec<S: Service>(service: &S, name: &str) -> SubscriptionSpec {
    let destination = json!({"endpointType": S::KIND, "properties": service.properties(name)});
    SubscriptionSpec::new("")
        .also(&json!({}), &json!({"destination": destination}))
        .dead_letters("letters")
}

fn start_server<S: Service>(service: &S) -> Server {
    let settings = service.settings().into_iter();
    let settings: Vec<(String, String)> = settings
        .map(|(name, value)| (format!("DELIVERY__RESOURCES__SERVICE__{name}"), value))
        .collect();
    let mut settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    settings.push(("DELIVERY__SUSPEND_AFTER_FAILURES", "1"));
    Server::start(&settings)
}

/// The ids of the events that arrived, each as often as it did.
struct Arrivals(Vec<String>);

impl Arrivals {
    fn take<S: Service>(&mut self, service: &mut S, name: &str) {
        let id = |event: Value| {
            assert_eq!(event["data"]["id"], event["id"], "{event} has its data");
            event["id"].as_str().expect("an id").to_owned()
        };
        self.0.extend(service.receive(name).into_iter().map(id));
    }

    fn have(&self, id: &str) -> bool {
        self.0.iter().any(|there| there == id)
    }
}

/// The ledger of a subscription of `orders`.
fn outcomes(server: &Server, subscription: &str) -> String {
    operator(
        server,
        &["ledger", &format!("{SCOPE}/orders"), subscription],
    )
    .expect("a ledger")
}

/// The text of all files below a folder.
fn files(folder: &Path) -> String {
    let Ok(entries) = fs::read_dir(folder) else {
        return String::new();
    };
    let text = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path)
        } else {
            fs::read_to_string(path).unwrap_or_default()
        }
    });
    text.collect()
}

/// Checks the guarantees of every destination.
fn conform<S: Service>(mut service: S) {
    service.resume();
    service.create("orders");
    let mut server = start_server(&service);
    let key = server.topic("orders", "EventGridSchema");

    names_are_checked(&server, &service);
    server.subscribe("orders", "queue", &spec(&service, "orders"));
    let view = server.get_subscription("orders", "queue").json();
    let destination = &view["properties"]["destination"];
    assert_eq!(destination["endpointType"], S::KIND);
    for (key, value) in service.properties("orders").as_object().expect("an object") {
        assert_eq!(&destination["properties"][key], value, "{key} in {view}");
    }

    let mut arrivals = Arrivals(Vec::new());
    every_acknowledged_event_arrives(&mut server, &mut service, &mut arrivals, &key);
    if !S::IS_DURABLE {
        a_service_that_is_killed_during_a_delivery_gets_the_rest(
            &server,
            &mut service,
            &mut arrivals,
            &key,
        );
    }
    a_poison_event_becomes_a_dead_letter(&server, &mut service, &mut arrivals, &key);
    requests_are_within_the_limit_of_the_service(&server, &mut service, &mut arrivals, &key);
    an_unreachable_service_is_reported(&server, &mut service, &mut arrivals, &key);

    let shown = [
        view.to_string(),
        server.logs(),
        server.say(&["config", "show"]).1,
        files(&server.data_dir()),
    ];
    assert!(
        !S::SECRET.is_empty() && shown.iter().all(|text| !text.contains(S::SECRET)),
        "a secret is shown"
    );
    server.kill_9();
    server.assert_sound();
}

/// Starts the service again. One that forgot its queues makes them before anything is sent: a queue
/// that does not exist is a failure without a retry.
fn bring_back<S: Service>(server: &Server, service: &mut S) {
    if S::IS_DURABLE {
        return service.resume();
    }
    server.post_verb("orders", "queue", "hold");
    wait_for("the requests in flight", LONG, || {
        server.status("orders", "queue")["inFlight"] == 0
    });
    service.resume();
    server.post_verb("orders", "queue", "resume");
}

fn names_are_checked<S: Service>(server: &Server, service: &S) {
    let mut elsewhere = spec(service, "orders").properties();
    elsewhere["destination"]["properties"]["resourceId"] = S::ELSEWHERE.into();
    let response = server.put_subscription(
        "orders",
        "wrong",
        &SubscriptionSpec::new("").also(&json!({}), &elsewhere),
    );
    let text = response.text();
    assert_eq!(response.status, 400, "{text}");
    assert!(
        text.contains("elsewhere") && text.contains("expected one of service"),
        "{text}"
    );
    let mut unknown = spec(service, "orders").properties();
    unknown["destination"]["properties"]["color"] = "red".into();
    let response = server.put_subscription(
        "orders",
        "wrong",
        &SubscriptionSpec::new("").also(&json!({}), &unknown),
    );
    let text = response.text();
    assert_eq!(response.status, 400, "{text}");
    assert!(text.contains("color"), "{text}");
}

/// Under load the server is killed twice, and the service once.
fn every_acknowledged_event_arrives<S: Service>(
    server: &mut Server,
    service: &mut S,
    arrivals: &mut Arrivals,
    key: &str,
) {
    // Events that are published while a slow service is down are delivered soon after.
    let pause = Duration::from_millis(if S::IS_DURABLE { 25 } else { 100 });
    let rate = Rate {
        topic: "orders".to_owned(),
        key: key.to_owned(),
        publishers: 1,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    let more = |events: usize| {
        let from = load.acknowledged();
        wait_for("events to be acknowledged", LONG, || {
            load.acknowledged() >= from + events
        });
    };
    for _ in 0..2 {
        more(50);
        server.kill_9();
        server.restart();
        load.turn_to(server.address());
    }
    more(50);
    if !S::IS_DURABLE {
        server.post_verb("orders", "queue", "hold");
        wait_for("the requests in flight", LONG, || {
            server.status("orders", "queue")["inFlight"] == 0
        });
        arrivals.take(service, "orders");
    }
    let failed = server.counter("orders", "queue", "requestsFailed");
    service.stop();
    if !S::IS_DURABLE {
        server.post_verb("orders", "queue", "resume");
    }
    more(50);
    wait_for("a request that fails", LONG, || {
        server.counter("orders", "queue", "requestsFailed") > failed
    });
    bring_back(server, service);
    more(50);
    let acknowledged = load.stop();
    end_waits(server, "orders", "queue");
    wait_until_settled(server, "orders", "queue");
    let status = server.status("orders", "queue");
    let given_up = [
        &status["counters"]["deadLettered"],
        &status["counters"]["dropped"],
    ];
    assert_eq!(given_up, [0, 0], "{status}");
    arrivals.take(service, "orders");
    let missing: Vec<&String> = acknowledged
        .iter()
        .filter(|id| !arrivals.have(id))
        .collect();
    assert!(
        missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        acknowledged.len()
    );
}

/// Events that a service accepted and lost are lost. Events that it did not accept before it was
/// killed arrive.
fn a_service_that_is_killed_during_a_delivery_gets_the_rest<S: Service>(
    server: &Server,
    service: &mut S,
    arrivals: &mut Arrivals,
    key: &str,
) {
    let counter = |name: &str| server.counter("orders", "queue", name);
    // Events of their own: a load has the same ids each time.
    let publish = |ids: std::ops::Range<usize>| {
        let ids: Vec<String> = ids.map(|id| format!("late-{id}")).collect();
        ids.iter().for_each(|id| {
            server.publish(
                "orders",
                key,
                &load::body(std::slice::from_ref(id), "/load"),
            )
        });
        ids
    };
    let before = counter("delivered");
    publish(0..50);
    wait_for("a delivery", LONG, || counter("delivered") > before);
    service.stop();
    let rest = publish(50..100);
    let failed = counter("requestsFailed");
    wait_for("a request that fails", LONG, || {
        counter("requestsFailed") > failed
    });
    bring_back(server, service);
    end_waits(server, "orders", "queue");
    wait_until_settled(server, "orders", "queue");
    assert_eq!(
        (
            counter("delivered"),
            counter("dropped"),
            counter("deadLettered")
        ),
        (before + 100, 0, 0)
    );
    arrivals.take(service, "orders");
    let missing: Vec<&String> = rest.iter().filter(|id| !arrivals.have(id)).collect();
    assert!(
        missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        rest.len()
    );
}

fn a_poison_event_becomes_a_dead_letter<S: Service>(
    server: &Server,
    service: &mut S,
    arrivals: &mut Arrivals,
    key: &str,
) {
    let large = json!({"id": "poison", "subject": "s", "eventType": "T", "eventTime": "2026-11-20T17:18:13Z",
        "dataVersion": "1", "data": {"id": "poison", "filler": "x".repeat(S::TOO_LARGE)}});
    server.publish("orders", key, json!([large]).to_string().as_bytes());
    server.publish("orders", key, &load::body(&["behind".to_owned()], "/load"));
    wait_for("the event behind the poison", LONG, || {
        arrivals.take(service, "orders");
        arrivals.have("behind")
    });
    let folder = server.data_dir().join("dead-letters");
    wait_for("the dead letter", LONG, || {
        files(&folder).contains("UndeliverableDueToHttpPayloadTooLarge")
    });
    assert!(!arrivals.have("poison"));
}

/// Events that wait share requests, as many as the service takes.
fn requests_are_within_the_limit_of_the_service<S: Service>(
    server: &Server,
    service: &mut S,
    arrivals: &mut Arrivals,
    key: &str,
) {
    const EVENTS: u64 = 101;
    let counter = |name: &str| server.counter("orders", "queue", name);
    let before = ["requests", "requestsFailed", "delivered"].map(counter);
    server.post_verb("orders", "queue", "hold");
    let ids: Vec<String> = (0..EVENTS).map(|id| format!("shared-{id}")).collect();
    server.publish("orders", key, &load::body(&ids, "/load"));
    server.post_verb("orders", "queue", "resume");
    wait_for("the events", LONG, || {
        counter("delivered") == before[2] + EVENTS
    });
    arrivals.take(service, "orders");
    assert!(ids.iter().all(|id| arrivals.have(id)));
    let [requests, failed] = [
        counter("requests") - before[0],
        counter("requestsFailed") - before[1],
    ];
    let max = if S::EVENTS_MAX == 1 {
        EVENTS
    } else {
        EVENTS - 1
    };
    assert!(
        (EVENTS.div_ceil(S::EVENTS_MAX)..=max).contains(&requests),
        "{requests} requests"
    );
    assert_eq!(failed, 0, "{}", outcomes(server, "queue"));
}

/// A service that is down: its subscription waits, and no other can be created. When it is back, it
/// is not overrun.
fn an_unreachable_service_is_reported<S: Service>(
    server: &Server,
    service: &mut S,
    arrivals: &mut Arrivals,
    key: &str,
) {
    service.stop();
    let response = server.put_subscription("orders", "late", &spec(service, "orders"));
    let text = response.text();
    assert_eq!(response.status, 400, "{text}");
    assert!(text.contains("cannot be reached"), "{text}");
    server.publish(
        "orders",
        key,
        &load::body(&["patience".to_owned()], "/load"),
    );
    let health = || server.status("orders", "queue")["health"].clone();
    let mut cause = Value::Null;
    wait_for("the suspension", LONG, || {
        cause = health()["cause"].clone();
        cause.is_string()
    });
    assert!(cause == "SocketError" || cause == "TimedOut", "{cause}");
    bring_back(server, service);
    wait_for("the event that waited", LONG, || {
        arrivals.take(service, "orders");
        arrivals.have("patience")
    });
    wait_for("the end of the suspension", LONG, || {
        health()["state"] == "healthy"
    });
    let pace = &server.status("orders", "queue")["endpoint"]["rate"];
    assert!(pace.is_number(), "{}", server.status("orders", "queue"));
}
