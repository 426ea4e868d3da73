//! A stop on request, and a folder that is in use.

use std::{thread, time::Duration};

use serde_json::json;

use super::{LONG, assert_arrived, pull, wait_until_settled};
use crate::support::{
    load::{Load, Rate},
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Seconds for which a client waits for events: longer than a stop may take.
const POLL: &str = "/namespaces/plant/topics/heat/eventsubscriptions/queue:receive?api-version=2024-06-01&maxEvents=1&maxWaitTime=110";

/// A stop waits so long for requests in flight.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(3);

fn rate(key: String) -> Rate {
    let pause = Duration::from_millis(5);
    Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 3,
        events_per_request: 10,
        pause,
    }
}

#[test]
fn a_server_that_is_asked_to_stop_under_load_finishes_what_is_in_flight_and_loses_and_repeats_nothing()
 {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(10),
    );
    sink.set("/hook", Behavior::Slow(Duration::from_millis(100), 200));
    let load = Load::start(server.address(), &rate(key));
    for _ in 0..3 {
        let before = load.acknowledged();
        wait_for("publishers to be served", LONG, || {
            load.acknowledged() > before + 1000
        });
        let took = server.terminate();
        println!("stopped after {took:?}");
        assert!(
            took < Duration::from_secs(25),
            "it waited for 30 s, although requests end at once: {took:?}"
        );
        server.restart();
        load.turn_to(server.address());
    }
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "hook");
    let repeated = assert_arrived(&sink, "/hook", &acknowledged);
    assert!(
        repeated.is_empty(),
        "{} events were repeated though the server finished them",
        repeated.len()
    );
}

#[test]
fn a_stop_waits_for_an_endpoint_that_hangs_up_to_its_timeout() {
    let mut server = Server::start(&[("SERVER__SHUTDOWN_TIMEOUT", "3s")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Hang);
    let load = Load::start(server.address(), &rate(key));
    wait_for("requests that hang", LONG, || {
        server.status("orders", "hook")["inFlight"] == 16
    });
    let took = server.terminate();
    // Without the setting it waits for 30 s.
    assert!(
        (SHUTDOWN_WAIT..Duration::from_secs(25)).contains(&took),
        "stopped after {took:?}"
    );
    let acknowledged = load.stop();
    sink.set("/hook", Behavior::Respond(200));
    server.restart();
    wait_until_settled(&server, "orders", "hook");
    let repeated = assert_arrived(&sink, "/hook", &acknowledged);
    assert!(repeated.is_empty(), "nothing was taken twice");
}

#[test]
fn clients_that_wait_for_events_are_answered_at_once_and_publishers_served_meanwhile() {
    let (mut server, shown) = pull::start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[("queue", 60, 5)]);
    let key = server.topic("orders", "EventGridSchema");
    let polls: Vec<_> = (0..5)
        .map(|_| {
            let mut client = server.client();
            let shown = shown.clone();
            thread::spawn(move || {
                client
                    .ask("POST", POLL, &[("authorization", &shown)], b"")
                    .expect("a response")
            })
        })
        .collect();
    let open = "gridhook_http_open_connections{listener=\"publishers\"}";
    wait_for("five clients that wait", LONG, || {
        metric(&server, open).is_some_and(|open| open >= 5.0)
    });
    let mut publisher = server.client();
    let path = crate::support::server::events_path("orders");
    let mut publish = move |id: &str| {
        let body = crate::support::load::body(&[id.to_owned()], "/a");
        publisher
            .ask("POST", &path, &[("aeg-sas-key", &key)], &body)
            .map(|response| response.status)
    };
    assert_eq!(publish("before").expect("a response"), 200);
    let clock = gridhook::clock::Clock::system();
    // Publishes without a pause, so that the moment is not missed on a busy machine: whether one
    // was served after the server said that it stops.
    let mut asking = server.client();
    let served = thread::spawn(move || {
        for number in 0.. {
            let Ok(ready) = asking.ask("GET", "/readyz", &[], b"") else {
                return false;
            };
            let Ok(status) = publish(&number.to_string()) else {
                return false;
            };
            if (ready.status, status) == (503, 200) {
                return true;
            }
        }
        unreachable!("a range without an end")
    });
    let asked = clock.now();
    server.signal("TERM");
    assert!(
        served.join().expect("a publisher"),
        "publishers are served for a moment yet"
    );
    for poll in polls {
        let response = poll.join().expect("a client");
        assert_eq!(
            (response.status, response.json()),
            (200, json!({"value": []}))
        );
    }
    assert_eq!(server.wait(LONG), Some(0));
    let took = clock.now().since(asked);
    // A client that waits would hold it for `server.shutdown_timeout`, 30 seconds.
    assert!(took < Duration::from_secs(25), "stopped after {took:?}");
}

/// A sample of the figures of the server.
fn metric(server: &Server, name: &str) -> Option<f64> {
    let response = server
        .command("GET", "/metrics", &serde_json::Value::Null)
        .text();
    response
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Hang);
    server.publish(
        "orders",
        &key,
        &crate::support::load::body(&["one".to_owned()], "/a"),
    );
    wait_for("a request that hangs", LONG, || {
        server.status("orders", "hook")["inFlight"] == 1
    });
    server.signal("TERM");
    // Two signals at once would be one.
    wait_for("the first signal to be seen", LONG, || {
        server.logs().contains("stopping: ")
    });
    server.signal("TERM");
    assert_eq!(server.wait(Duration::from_secs(25)), Some(130));
    sink.set("/hook", Behavior::Respond(200));
    server.restart();
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(sink.taken("/hook"), 1);
}

#[test]
fn a_second_server_on_the_same_folder_is_refused_and_says_why() {
    let server = Server::start(&[]);
    let (status, reported) = server.start_second();
    assert!(!status.success(), "it ended with {status}");
    let folder = server.data_dir().display().to_string();
    assert!(
        reported.contains(&folder) && reported.contains("another"),
        "it says which folder, and why: {reported}"
    );
    server.topic("orders", "EventGridSchema");
}
