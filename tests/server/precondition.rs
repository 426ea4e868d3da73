//! Two operators change one resource: one of them is refused.

use std::thread;

use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    endpoint::{Endpoint, Gate, Step, respond},
    server::{Server, operator, subscription, wait_for},
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

const PERMISSION: &str = "webhook-allowed-origin: *\r\n";

/// An endpoint that agrees to be called, the first time once the gate is open.
fn gated(gate: &Gate) -> Endpoint {
    let mut first = respond(200, PERMISSION, "");
    first.insert(0, Step::Gate(gate.clone()));
    Endpoint::start(vec![first, respond(200, PERMISSION, "")])
}

fn body(endpoint: &Endpoint) -> Value {
    json!({"properties": {
        "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": endpoint.url()}},
        "eventDeliverySchema": "CloudEventSchemaV1_0",
    }})
}

fn tag(server: &Server, path: &str) -> String {
    server
        .command("GET", path, &Value::Null)
        .header("etag")
        .expect("a tag")
        .to_owned()
}

#[test]
fn one_of_concurrent_changes_of_one_state_is_made_and_the_tag_survives_a_kill() {
    // The endpoint of a topic has the address of the server, which is part of its state.
    let mut server = Server::start(&[("SERVER__PUBLIC_URL", "http://events.example.com")]);
    server.topic("orders", "CloudEventSchemaV1_0");
    let endpoints: Vec<Endpoint> = (0..8)
        .map(|_| Endpoint::start(vec![respond(200, PERMISSION, "")]))
        .collect();
    let hook = subscription("orders", "hook");
    server.command("PUT", &hook, &body(&endpoints[0]));
    // The endpoint of each is validated, without the lock.
    let puts: Vec<(String, Value)> = endpoints
        .iter()
        .map(|endpoint| (hook.clone(), body(endpoint)))
        .chain((0..8).map(|number| {
            (
                TOPIC.to_owned(),
                json!({"tags": {"number": number.to_string()}}),
            )
        }))
        .collect();
    for puts in puts.chunks(8) {
        let state = tag(&server, &puts[0].0);
        let statuses: Vec<u16> = thread::scope(|scope| {
            let put = |(path, body): &'_ (String, Value)| {
                server
                    .admin_with_headers("PUT", path, &[("if-match", &state)], body)
                    .status
            };
            let asked: Vec<_> = puts
                .iter()
                .map(|one| scope.spawn(move || put(one)))
                .collect();
            asked
                .into_iter()
                .map(|one| one.join().expect("it is asked"))
                .collect()
        });
        let made = statuses.iter().filter(|status| **status == 201).count();
        assert!(
            made == 1 && statuses.iter().all(|status| [201, 412].contains(status)),
            "{statuses:?}"
        );
    }
    let before = [&hook, TOPIC].map(|path| tag(&server, path));
    server.kill_9();
    server.restart();
    assert_eq!([&hook, TOPIC].map(|path| tag(&server, path)), before);
}

#[test]
fn a_change_during_endpoint_validation_is_not_overwritten() {
    let server = Server::start(&[]);
    server.topic("orders", "CloudEventSchemaV1_0");
    let gate = Gate::default();
    let old = Endpoint::start(vec![respond(200, PERMISSION, "")]);
    let new = gated(&gate);
    let hook = subscription("orders", "hook");
    server.command("PUT", &hook, &body(&old));
    let state = tag(&server, &hook);
    let late = thread::scope(|scope| {
        let moving = scope.spawn(|| {
            server.admin_with_headers("PUT", &hook, &[("if-match", &state)], &body(&new))
        });
        wait_for("the handshake", LONG, || !new.requests().is_empty());
        server.command("PATCH", &hook, &json!({"labels": ["meanwhile"]}));
        gate.open();
        moving.join().expect("it is answered")
    });
    assert_eq!(late.codes().0, 412, "{}", late.text());
    assert!(
        late.text()
            .contains(&tag(&server, &hook).replace('"', "\\\"")),
        "{}",
        late.text()
    );
    assert_eq!(
        server.get_subscription("orders", "hook").json()["properties"]["labels"],
        json!(["meanwhile"])
    );
}

#[test]
fn a_resource_that_changed_after_the_plan_is_not_pruned() {
    let server = Server::start(&[]);
    let gate = Gate::default();
    let old = Endpoint::start(vec![respond(200, PERMISSION, "")]);
    let new = gated(&gate);
    for topic in ["orders", "retired"] {
        server.command(
            "PUT",
            &TOPIC.replace("orders", topic),
            &json!({"properties": {"inputSchema": "CloudEventSchemaV1_0"}}),
        );
        server.command("PUT", &subscription(topic, "hook"), &body(&old));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("grid.toml");
    let text = format!(
        "[topics.orders]\ninputSchema = \
         \"CloudEventSchemaV1_0\"\n[topics.orders.eventSubscriptions.hook]\n\
         endpointUrl = \"{}\"\neventDeliverySchema = \"CloudEventSchemaV1_0\"\n",
        new.url(),
    );
    std::fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("text");
    let apply = || {
        operator(
            &server,
            &[
                "apply",
                "-f",
                file,
                "--prune",
                "--yes",
                "--subscription-id",
                "s",
                "--resource-group",
                "r",
            ],
        )
    };
    let refusal = thread::scope(|scope| {
        let pruning = scope.spawn(apply);
        wait_for("the handshake", LONG, || !new.requests().is_empty());
        server.command(
            "PATCH",
            &subscription("retired", "hook"),
            &json!({"labels": ["still needed"]}),
        );
        gate.open();
        pruning.join().expect("it ends")
    });
    let refusal = refusal.expect_err("the event subscription was changed meanwhile");
    assert!(
        refusal.contains("hook") && refusal.contains("412") && refusal.contains("1 of 3 changes"),
        "{refusal}"
    );
    assert_eq!(
        server.get_subscription("retired", "hook").json()["properties"]["labels"],
        json!(["still needed"])
    );
    let pruned = apply().expect("a second time");
    assert!(pruned.ends_with("delete 2"), "{pruned}");
    assert_eq!(
        server
            .admin("GET", &TOPIC.replace("orders", "retired"), &Value::Null)
            .status,
        404
    );
}

#[test]
fn one_of_two_simultaneous_applies_is_refused() {
    let server = Server::start(&[]);
    let gate = Gate::default();
    let old = Endpoint::start(vec![respond(200, PERMISSION, "")]);
    let new = gated(&gate);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, first: &Endpoint, label: &str| {
        let path = folder.path().join(name);
        let schema = "eventDeliverySchema = \"CloudEventSchemaV1_0\"";
        let text = format!(
            "[topics.orders]\ninputSchema = \"CloudEventSchemaV1_0\"\n\
             [topics.orders.eventSubscriptions.aaa]\nendpointUrl = \"{}\"\n{schema}\n\
             [topics.orders.eventSubscriptions.bbb]\nendpointUrl = \"{}\"\n{schema}\nlabels = \
             [\"{label}\"]\n",
            first.url(),
            old.url(),
        );
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("text").to_owned()
    };
    let apply = |path: &str| operator(&server, &["apply", "-f", path, "--yes"]);
    apply(&file("first.toml", &old, "first")).expect("applied");
    let [slow, quick] = [
        file("slow.toml", &new, "slow"),
        file("quick.toml", &old, "quick"),
    ];
    let refusal = thread::scope(|scope| {
        let slow = scope.spawn(|| apply(&slow));
        wait_for("the handshake", LONG, || !new.requests().is_empty());
        apply(&quick).expect("the other apply");
        gate.open();
        slow.join().expect("it ends")
    });
    let refusal = refusal.expect_err("bbb was changed meanwhile");
    assert!(
        refusal.contains("subscription bbb of orders") && refusal.contains("412"),
        "{refusal}"
    );
    assert!(
        refusal.contains("1 of 2 changes were applied before"),
        "{refusal}"
    );
    let labels = |name| {
        operator(
            &server,
            &["subscriptions", "show", "orders", name, "--output", "json"],
        )
        .expect("shown")
    };
    assert!(labels("bbb").contains("quick"), "{}", labels("bbb"));
    apply(&slow).expect("a second time");
    assert!(labels("bbb").contains("slow"), "{}", labels("bbb"));
}
