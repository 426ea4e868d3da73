//! Functions: called at the address of their trigger, with the key of their app, and without a
//! handshake.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{LONG, Service, conform};
use crate::support::{
    http::header,
    http_service::HttpService,
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

const KEY: &str = "function-key-that-nobody-sees";

/// The largest request that the app of the test takes.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// An app with a function, which keeps what it is called with.
struct App {
    service: HttpService,
    events: Arc<Mutex<Vec<Value>>>,
}

impl App {
    fn new() -> Self {
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&events);
        let service = HttpService::new(Arc::new(move |head, body| {
            let is_called = head
                .starts_with("POST /runtime/webhooks/eventgrid?functionName=orders HTTP/1.1\r\n");
            let status = match serde_json::from_slice::<Vec<Value>>(body) {
                _ if !is_called => 404,
                _ if header(head, "x-functions-key") != Some(KEY) => 401,
                _ if body.len() > REQUEST_BYTES_MAX => 413,
                Err(_) => 400,
                Ok(events) => {
                    kept.lock().extend(events);
                    200
                }
            };
            (status, "", Vec::new())
        }));
        Self { service, events }
    }
}

impl Service for App {
    const KIND: &'static str = "AzureFunction";
    const SECRET: &'static str = KEY;
    const ELSEWHERE: &'static str = "elsewhere/functions/orders";
    const IS_DURABLE: bool = true;
    const TOO_LARGE: usize = REQUEST_BYTES_MAX;
    const EVENTS_MAX: u64 = 10;

    fn resume(&mut self) {
        self.service.resume();
    }

    fn stop(&mut self) {
        self.service.stop();
    }

    fn create(&mut self, _: &str) {}

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("URL", format!("http://{}", self.service.address())),
            ("FUNCTION_KEY", KEY.to_owned()),
        ]
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        json!({"resourceId": format!("service/functions/{name}"), "maxEventsPerBatch": 10})
    }

    fn receive(&mut self, _: &str) -> Vec<Value> {
        std::mem::take(&mut self.events.lock())
    }
}

#[test]
fn a_function_keeps_what_every_destination_promises() {
    conform(App::new());
}

/// The destination with another value of its property.
fn change(destination: &Value) -> Value {
    let mut changed = destination.clone();
    changed["destination"]["properties"]["deliveryAttributeMappings"][0]["properties"]["value"] =
        "green".into();
    changed
}

#[test]
fn a_function_is_called_at_its_trigger_with_its_key() {
    let sink = Sink::start();
    let url = sink.url("");
    let app = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Web/sites/app";
    let server = Server::start(&[
        ("DELIVERY__RESOURCES__APP__URL", &url),
        ("DELIVERY__RESOURCES__APP__RESOURCE_IDS", app),
        ("DELIVERY__RESOURCES__APP__FUNCTION_KEY", KEY),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let properties = json!({
        "resourceId": format!("{app}/functions/bill"),
        "maxEventsPerBatch": 10,
        "preferredBatchSizeInKilobytes": 64,
        "deliveryAttributeMappings": [
            {"name": "x-tenant", "type": "Static", "properties": {"value": "blue", "isSecret": true}},
        ],
    });
    let destination =
        json!({"destination": {"endpointType": "AzureFunction", "properties": properties}});
    let spec = SubscriptionSpec::new("").also(&json!({}), &destination);
    server.subscribe("orders", "function", &spec);
    let view = server.get_subscription("orders", "function").json();
    let shown = &view["properties"]["destination"];
    assert_eq!(shown["endpointType"], "AzureFunction");
    assert_eq!(shown["properties"]["maxEventsPerBatch"], 10);
    assert_eq!(
        shown["properties"]["deliveryAttributeMappings"][0]["properties"]["value"],
        "Hidden"
    );
    // A client that writes back what it read changes nothing.
    let again = server.patch("orders", "function", &json!({"destination": shown}));
    assert_eq!(again.status, 201, "{}", again.text());

    let ids: Vec<String> = (0..10).map(|id| id.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/load"));
    let path = "/runtime/webhooks/eventgrid?functionName=bill";
    wait_for("the events", LONG, || sink.taken(path) == ids.len());
    assert!(
        sink.handshakes(path).is_empty(),
        "Azure Functions answer no handshake of ours"
    );
    for head in sink.heads(path) {
        for line in [
            &*format!("x-functions-key: {KEY}"),
            "x-tenant: blue",
            "aeg-event-type: Notification",
        ] {
            assert!(
                head.to_lowercase().contains(&line.to_lowercase()),
                "{line} in {head}"
            );
        }
    }
    assert!(
        sink.look(path, |ledger| ledger
            .values()
            .flatten()
            .any(|arrival| arrival.batch > 1)),
        "events share requests"
    );
    // A subscription of the same name and destination has its own secret.
    let other = server.topic("bills", "EventGridSchema");
    let spec = SubscriptionSpec::new("").also(&json!({}), &change(&destination));
    server.subscribe("bills", "function", &spec);
    server.publish("bills", &other, &load::body(&["green".to_owned()], "/load"));
    wait_for("its secret", LONG, || {
        sink.heads(path)
            .iter()
            .any(|head| head.contains("x-tenant: green"))
    });
    let metrics = server.command("GET", "/metrics", &Value::Null).text();
    let mut samples = metrics
        .lines()
        .filter(|line| line.starts_with("gridhook_subscription_destinations{"));
    assert!(
        samples.any(|line| line.contains("destination=\"AzureFunction\"")),
        "{metrics}"
    );
    let texts = [
        view.to_string(),
        server.logs(),
        server.say(&["config", "show"]).1,
    ];
    assert!(
        texts.iter().all(|text| !text.contains(KEY)),
        "the key is shown"
    );

    for (id, says) in [
        ("app", "/functions/NAME"),
        ("other/functions/bill", "expected one of app"),
    ] {
        let properties = json!({"endpointType": "AzureFunction", "properties": {"resourceId": id}});
        let spec = SubscriptionSpec::new("").also(&json!({}), &json!({"destination": properties}));
        let response = server.put_subscription("orders", "wrong", &spec);
        assert!(
            response.status == 400 && response.text().contains(says),
            "{id}: {}",
            response.text()
        );
    }
}
