//! The table `[resource]` of the edition decides about the responses of a service: a scripted
//! endpoint behind the senders of Azure Functions and Service Bus.

use std::time::Duration;

use serde_json::{Value, json};

use super::{LONG, outcomes};
use crate::{
    spec::fact,
    support::{
        endpoint::{Endpoint, respond},
        load,
        server::{Server, SubscriptionSpec, subscription, wait_for},
    },
};

fn start(endpoint: &Endpoint) -> Server {
    Server::start(&[
        (
            "DELIVERY__RESOURCES__SERVICE__URL",
            &format!("http://{}", endpoint.address()),
        ),
        ("DELIVERY__RESOURCES__SERVICE__FUNCTION_KEY", "key"),
        (
            "DELIVERY__RESOURCES__SERVICE__SAS_TOKEN",
            "SharedAccessSignature sr=s",
        ),
        ("DELIVERY__CONCURRENCY", "1"),
    ])
}

fn spec(kind: &str, resource_id: &str) -> SubscriptionSpec {
    let destination = json!({"endpointType": kind, "properties": {"resourceId": resource_id}});
    SubscriptionSpec::new("")
        .also(&json!({}), &json!({"destination": destination}))
        .dead_letters("letters")
}

fn function() -> SubscriptionSpec {
    spec("AzureFunction", "service/functions/bill")
}

/// Delivers an event to an endpoint with this response. Returns the line of the ledger after the
/// attempt, and whether the event is tried again.
fn attempt(
    edition: &str,
    destination: &SubscriptionSpec,
    status: u16,
    body: &str,
) -> (Value, bool) {
    let endpoint = Endpoint::start(vec![respond(status, "", body)]);
    let server = start(&endpoint);
    let key = server.topic_of(
        "orders",
        &json!({"inputSchema": "EventGridSchema", "edition": edition}),
    );
    server.subscribe("orders", "resource", destination);
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    let mut found = None;
    wait_for("the end of the attempt", LONG, || {
        let ledger = server
            .command(
                "GET",
                &format!("{}/ledger", subscription("orders", "resource")),
                &Value::Null,
            )
            .json();
        let lines = ledger["lines"].as_array().expect("a list");
        found = lines
            .iter()
            .find(|line| line["step"] == "deferred" || line["step"] == "deadLettered")
            .cloned();
        found.is_some()
    });
    let line = found.expect("it was waited for");
    let is_deferred = line["step"] == "deferred";
    (line, is_deferred)
}

fn seconds(line: &Value, from: &str, to: &str) -> f64 {
    let time = |name: &str| -> jiff::Timestamp {
        line[name]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("no {name}: {line}"))
    };
    time(to).duration_since(time(from)).as_secs_f64()
}

#[test]
fn a_resource_is_never_asked_again_after_what_the_edition_lists() {
    for (id, status) in [("S003-030", 400), ("S003-031", 413), ("S003-032", 403)] {
        let (_, retry) = attempt("2021", &function(), status, "");
        fact(
            id,
            &json!({"endpointType": "AzureResource", "status": status, "retry": retry}),
        );
    }
    for (id, status) in [("S000-012", 400), ("S000-013", 413)] {
        let (_, retry) = attempt("2023", &function(), status, "");
        fact(
            id,
            &json!({"endpoint": "azure-resource", "status": status, "retry": retry}),
        );
    }
}

#[test]
fn a_resource_is_asked_again_no_earlier_than_the_edition_says() {
    for (edition, id, status) in [
        ("2021", "S003-152", 401),
        ("2021", "S003-154", 404),
        ("2023", "S000-210", 401),
        ("2023", "S000-212", 404),
    ] {
        let (line, retry) = attempt(edition, &function(), status, "");
        let wait = seconds(&line, "at", "nextAttempt");
        // By chance a wait is longer by a tenth.
        let min = if (300.0..=331.0).contains(&wait) {
            300
        } else {
            0
        };
        match edition {
            "2021" => {
                let found = json!({"endpointType": "AzureResource", "status": status, "retry": retry, "minDelaySeconds": min});
                fact(id, &found);
            }
            _ => fact(
                id,
                &json!({"status": status, "endpoint": "azure-resource", "retry": retry, "minSeconds": min}),
            ),
        }
    }
}

#[test]
fn the_answer_of_a_service_decides_the_outcome_and_the_probation() {
    let bus = || spec("ServiceBusQueue", "service/queues/orders");
    for (row, probation, destination, status, body, outcome) in [
        (
            "S000-135",
            Some("S000-164"),
            bus(),
            400,
            "40300: MessagingEntityDisabled, the entity is disabled",
            "Disabled",
        ),
        (
            "S000-137",
            Some("S000-165"),
            bus(),
            403,
            "40301: the quota of the entity is exceeded",
            "Full",
        ),
        (
            "S000-152",
            None,
            bus(),
            400,
            "The SessionId was not set on a message",
            "SessionQueueNotSupported",
        ),
        (
            "S000-155",
            Some("S000-169"),
            function(),
            405,
            "",
            "InvalidAzureFunctionDestination",
        ),
    ] {
        let endpoint = Endpoint::start(vec![respond(status, "", body)]);
        let server = start(&endpoint);
        let key = server.topic_of(
            "orders",
            &json!({"inputSchema": "EventGridSchema", "edition": "2023"}),
        );
        server.subscribe("orders", "resource", &destination);
        // One for each failure that it takes to suspend a destination, each in a request of its
        // own.
        for id in 0..20 {
            server.publish("orders", &key, &load::body(&[id.to_string()], "/a"));
            let sent = |requests: usize| endpoint.requests().len() >= requests;
            let is_suspended =
                || server.status("orders", "resource")["health"]["state"] == "suspended";
            wait_for("the attempt", LONG, || sent(id + 1) || is_suspended());
        }
        assert!(
            outcomes(&server, "resource").contains(outcome),
            "{}",
            outcomes(&server, "resource")
        );
        fact(row, &json!(outcome));
        let Some(row) = probation else { continue };
        wait_for("the suspension", LONG, || {
            server.status("orders", "resource")["health"]["state"] == "suspended"
        });
        let health = &server.status("orders", "resource")["health"];
        assert_eq!(health["cause"], outcome);
        let lasts = Duration::from_secs_f64(seconds(health, "since", "nextProbe"));
        fact(
            row,
            &json!({"outcome": outcome, "seconds": lasts.as_secs() / 60 * 60}),
        );
    }
}
