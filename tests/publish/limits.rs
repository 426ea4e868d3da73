//! Sizes and counts: at the limit, and one beyond.

use expect_test::expect;
use gridhook::{
    event::Schema,
    publish::{PublishLimits, read_for_redrive},
};

use super::{event_grid, read, shown};
use crate::support::publisher::topic;

fn event(padding: usize) -> String {
    let padding = "x".repeat(padding);
    format!(
        r#"{{"id":"1","subject":"","eventType":"T","eventTime":"2026-11-20T10:00:00Z","data":"{padding}"}}"#
    )
}

#[test]
fn an_event_has_as_many_bytes_as_azure_allows() {
    let overhead = event(0).len();
    let of = |len: usize| format!("[{}]", event(len - overhead));
    assert!(event_grid(of(1_049_600).as_bytes()).is_ok());
    expect!["413 PayloadTooLarge: The maximum size (1049600) has been exceeded."]
        .assert_eq(&shown(event_grid(of(1_049_601).as_bytes())));
}

#[test]
fn an_event_of_any_size_is_sent_again() {
    let largest = event_grid(format!("[{}]", event(1_049_600 - event(0).len())).as_bytes())
        .expect("it is an event");
    // The stored event is larger than the published one: it has the properties that the server
    // adds.
    let stored = String::from_utf8(largest[0].to_wire_bytes().to_vec()).expect("it is text");
    assert!(stored.len() > 1_049_600);
    let lowered = PublishLimits {
        request_bytes_max: 1_024,
        event_bytes_max: 1_024,
        ..PublishLimits::default()
    };
    for limits in [PublishLimits::default(), lowered] {
        let again = read_for_redrive(
            &topic("orders", Schema::EventGrid),
            Schema::EventGrid,
            &stored,
            &limits,
        );
        assert_eq!(again.map(drop), Ok(()));
    }
}

#[test]
fn a_request_has_as_many_bytes_as_azure_allows() {
    let at_most = format!(
        "[{}]{}",
        event(0),
        " ".repeat(1_536_000 - event(0).len() - 2)
    );
    assert!(event_grid(at_most.as_bytes()).is_ok());
    expect!["413 PayloadTooLarge: The maximum size (1536000) has been exceeded."]
        .assert_eq(&shown(event_grid(format!("{at_most} ").as_bytes())));
}

#[test]
fn a_request_has_five_thousand_events() {
    let of = |count: usize| format!("[{}]", vec![event(0); count].join(","));
    assert_eq!(
        event_grid(of(5_000).as_bytes())
            .map(|events| events.len())
            .ok(),
        Some(5_000)
    );
    expect![
        "413 PayloadTooLarge: The maximum number of events in a request (5000) has been exceeded."
    ]
    .assert_eq(&shown(event_grid(of(5_001).as_bytes())));
    // The count is known before any event is looked at, and no more than the limit are kept in
    // memory.
    let zeros = format!("[{}0]", "0,".repeat(700_000));
    expect![
        "413 PayloadTooLarge: The maximum number of events in a request (5000) has been exceeded."
    ]
    .assert_eq(&shown(event_grid(zeros.as_bytes())));
}

#[test]
fn limits_are_settings() {
    let limits = PublishLimits {
        events_max: 1,
        ..PublishLimits::default()
    };
    let body = format!("[{},{}]", event(0), event(0));
    expect![
        "413 PayloadTooLarge: The maximum number of events in a request (1) has been exceeded."
    ]
    .assert_eq(&shown(read(
        Schema::EventGrid,
        "",
        body.as_bytes(),
        &limits,
    )));
}
