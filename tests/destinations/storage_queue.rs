//! Queues of a storage account: Azurite's queue service, which is Microsoft's own.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{LONG, Service, conform};
use crate::support::{
    azurite::{ACCOUNT, Azurite, KEY, ask, create_queue, sas_to_add},
    load,
    server::{Server, SubscriptionSpec, wait_for},
};

/// How long a message lives.
const SECONDS: u64 = 120;

/// Azurite's queues, with the account's key.
struct Queues {
    azurite: Azurite,
    /// It may forget them at its end.
    names: BTreeSet<String>,
}

impl Queues {
    fn new() -> Self {
        Self {
            azurite: Azurite::new("queue"),
            names: BTreeSet::new(),
        }
    }
}

impl Service for Queues {
    const KIND: &'static str = "StorageQueue";
    const SECRET: &'static str = KEY;
    const IS_DURABLE: bool = false;
    const TOO_LARGE: usize = 60 * 1024;
    const EVENTS_MAX: u64 = 1;

    fn resume(&mut self) {
        self.azurite.resume();
        self.names
            .iter()
            .for_each(|name| create_queue(self.azurite.address(), name));
    }

    fn stop(&mut self) {
        self.azurite.kill_9();
    }

    fn create(&mut self, name: &str) {
        create_queue(self.azurite.address(), name);
        self.names.insert(name.to_owned());
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            (
                "URL",
                format!("http://{}/{ACCOUNT}", self.azurite.address()),
            ),
            (
                "RESOURCE_IDS",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a"
                    .to_owned(),
            ),
            ("ACCESS_KEY", KEY.to_owned()),
        ]
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        // In another case than in the settings: Azure's ids have none.
        let id = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Storage/storageAccounts/A";
        json!({"resourceId": id, "queueName": name, "queueMessageTimeToLiveInSeconds": 3600})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let query = [("numofmessages", "32"), ("visibilitytimeout", "86400")];
            let response = ask(
                self.azurite.address(),
                "GET",
                &format!("{name}/messages"),
                &query,
            );
            assert_eq!(response.status, 200, "{}", response.text());
            let text = response.text();
            let messages = text
                .split("<MessageText>")
                .skip(1)
                .map(|rest| rest.split('<').next().expect("a part"));
            let found: Vec<Value> = messages
                .map(|message| {
                    let event = BASE64_STANDARD.decode(message).expect("base64");
                    serde_json::from_slice(&event).expect("JSON")
                })
                .collect();
            if found.is_empty() {
                return events;
            }
            events.extend(found);
        }
    }
}

#[test]
fn a_storage_queue_keeps_what_every_destination_promises() {
    conform(Queues::new());
}

#[test]
fn a_shared_access_signature_adds_messages_that_live_as_long_as_the_subscription_says() {
    let mut queues = Queues::new();
    queues.resume();
    queues.create("orders");
    let token = sas_to_add("orders", "2099-01-01T00:00:00Z");
    let server = Server::start(&[
        (
            "DELIVERY__RESOURCES__SERVICE__URL",
            &format!("http://{}/{ACCOUNT}", queues.azurite.address()),
        ),
        ("DELIVERY__RESOURCES__SERVICE__SAS_TOKEN", &token),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let properties = json!({"resourceId": "service", "queueName": "orders", "queueMessageTimeToLiveInSeconds": SECONDS});
    let destination =
        json!({"destination": {"endpointType": "StorageQueue", "properties": properties}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    wait_for("the delivery", LONG, || {
        server.counter("orders", "queue", "delivered") == 1
    });
    let shown = ask(
        queues.azurite.address(),
        "GET",
        "orders/messages",
        &[("peekonly", "true")],
    )
    .text();
    let time = |name: &str| {
        let (_, rest) = shown
            .split_once(&format!("<{name}>"))
            .unwrap_or_else(|| panic!("no {name} in {shown}"));
        httpdate::parse_http_date(rest.split('<').next().unwrap_or_default()).expect("a date")
    };
    let lives = time("ExpirationTime")
        .duration_since(time("InsertionTime"))
        .expect("later");
    assert_eq!(lives, Duration::from_secs(SECONDS));
    let signature = token.rsplit('=').next().expect("a signature");
    assert!(
        !server.logs().contains(signature)
            && !server.say(&["config", "show"]).1.contains(signature)
    );
}
