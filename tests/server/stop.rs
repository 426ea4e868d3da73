//! A stop on request, and a folder that is in use.

use std::{thread, time::Duration};

use super::{LONG, assert_arrived, wait_until_settled};
use crate::support::{
    load::{Load, Rate},
    server::{Server, Wish, wait_for},
    sink::{Manner, Sink},
};

/// A stop waits so long for requests in flight.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(3);

fn rate(key: String) -> Rate {
    let pause = Duration::from_millis(5);
    Rate { topic: "orders".to_owned(), key, publishers: 3, events_per_request: 10, pause }
}

#[test]
fn a_server_that_is_asked_to_stop_under_load_finishes_what_is_in_flight_and_loses_and_repeats_nothing() {
    let (mut server, sink) = (Server::start(&[]), Sink::start());
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &Wish::of(&sink.url("/hook")).batch(10));
    sink.set("/hook", Manner::Slow(Duration::from_millis(100), 200));
    let load = Load::start(server.at(), &rate(key));
    for _ in 0..3 {
        let before = load.acknowledged();
        wait_for("publishers to be served", LONG, || load.acknowledged() > before + 1000);
        let took = server.terminate();
        println!("stopped after {took:?}");
        assert!(took < Duration::from_secs(10), "stopped after {took:?}");
        server.restart();
        load.turn_to(server.at());
    }
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "hook");
    let repeated = assert_arrived(&sink, "/hook", &acknowledged);
    assert!(repeated.is_empty(), "{} events were repeated though the server finished them", repeated.len());
}

#[test]
fn a_stop_waits_no_longer_than_it_was_told_for_an_endpoint_that_hangs() {
    let (mut server, sink) = (Server::start(&[("SERVER__SHUTDOWN_WAIT", "3s")]), Sink::start());
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &Wish::of(&sink.url("/hook")));
    sink.set("/hook", Manner::Hang);
    let load = Load::start(server.at(), &rate(key));
    wait_for("requests that hang", LONG, || server.status("orders", "hook")["inFlight"] == 16);
    let took = server.terminate();
    assert!((SHUTDOWN_WAIT..SHUTDOWN_WAIT * 3).contains(&took), "stopped after {took:?}");
    let acknowledged = load.stop();
    sink.set("/hook", Manner::Answer(200));
    server.restart();
    wait_until_settled(&server, "orders", "hook");
    let repeated = assert_arrived(&sink, "/hook", &acknowledged);
    assert!(repeated.is_empty(), "nothing was taken twice");
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let (mut server, sink) = (Server::start(&[]), Sink::start());
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &Wish::of(&sink.url("/hook")));
    sink.set("/hook", Manner::Hang);
    server.publish("orders", &key, &crate::support::load::body(&["one".to_owned()], "/a"));
    wait_for("a request that hangs", LONG, || server.status("orders", "hook")["inFlight"] == 1);
    server.signal_term();
    thread::sleep(Duration::from_millis(50));
    server.signal_term();
    assert_eq!(server.wait(Duration::from_secs(5)), Some(130));
    sink.set("/hook", Manner::Answer(200));
    server.restart();
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(sink.taken("/hook"), 1);
}

#[test]
fn a_second_server_on_the_same_folder_is_refused_and_says_why() {
    let server = Server::start(&[]);
    let (status, said) = server.second();
    assert!(!status.success(), "it ended with {status}");
    let folder = server.data_dir().display().to_string();
    assert!(said.contains(&folder) && said.contains("another"), "it says which folder, and why: {said}");
    server.topic("orders", "EventGridSchema");
}
