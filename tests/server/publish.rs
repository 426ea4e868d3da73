//! Publishers with access tokens, and delivery in another schema.

use base64::{Engine, engine::general_purpose::STANDARD};
use gridhook::clock::Clock;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::LONG;
use crate::{
    publish::bearer::Signer,
    support::{
        endpoint::{Endpoint, Received, respond},
        http::Client,
        server::{Server, SubscriptionSpec, events_path, wait_for},
    },
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/custom";

const OBJECT: &str =
    r#"{"key": 17, "kind": "Order.Placed", "at": "2026-11-20T12:00:00Z", "total": 12.50}"#;

/// A topic with a schema of its own, closed to access keys.
fn make_topic(server: &Server) {
    let mapping = json!({"inputSchemaMappingType": "Json", "properties": {
        "id": {"sourceField": "key"}, "eventTime": {"sourceField": "at"}, "eventType": {"sourceField": "kind"},
        "subject": {"defaultValue": "orders"}, "dataVersion": {"sourceField": "ver", "defaultValue": "2"}}});
    let properties = json!({"inputSchema": "CustomEventSchema", "inputSchemaMapping": mapping, "disableLocalAuth": true});
    server.command("PUT", TOPIC, &json!({"properties": properties}));
}

fn the_one(endpoint: &Endpoint) -> Received {
    wait_for("the event", LONG, || !endpoint.requests().is_empty());
    endpoint.requests().remove(0)
}

fn body(received: &Received) -> String {
    String::from_utf8_lossy(&received.body)
        .replace(OBJECT, "<object>")
        .replace(TOPIC, "<topic>")
}

#[test]
fn a_custom_event_of_a_token_s_holder_arrives_in_every_schema() {
    let signer = Signer::new();
    let issuer = Endpoint::start(vec![respond(200, "", &signer.set().to_string())]);
    let jwks = format!("{}keys", issuer.url());
    let server = Server::start(&[
        ("AUTH__ISSUER", "https://issuer/"),
        ("AUTH__JWKS", &jwks),
        ("DELIVERY__VALIDATE", "false"),
    ]);
    make_topic(&server);
    let schemas = [
        "CustomInputSchema",
        "EventGridSchema",
        "CloudEventSchemaV1_0",
    ];
    let endpoints = schemas.map(|schema| {
        let endpoint = Endpoint::start(vec![respond(200, "", "")]);
        server.subscribe(
            "custom",
            schema.trim_end_matches("V1_0"),
            &SubscriptionSpec::new(&endpoint.url()).schema(schema),
        );
        endpoint
    });

    let seconds = Clock::system().now().0 / 1_000_000;
    let claims = json!({"iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": seconds + 600});
    let token = format!(
        "Bearer {}",
        signer.sign(Some("ec"), Algorithm::ES256, &claims)
    );
    let mut client = Client::new(server.address());
    let mut publish = |name: &str, value: &str| {
        let body = format!("[{OBJECT}]");
        client
            .ask(
                "POST",
                &events_path("custom"),
                &[(name, value)],
                body.as_bytes(),
            )
            .expect("a response")
            .status
    };
    let keys = server
        .command("POST", &format!("{TOPIC}/listKeys"), &Value::Null)
        .json();
    assert_eq!(
        publish("aeg-sas-key", keys["key1"].as_str().expect("a key")),
        401
    );
    assert_eq!(publish("aeg-sas-key", &STANDARD.encode([7; 32])), 401);
    wait_for("the issuer's keys", LONG, || {
        publish("authorization", &token) == 200
    });
    assert_eq!(issuer.requests().len(), 1, "the keys are kept");

    let [custom, event_grid, cloud] = endpoints.each_ref().map(the_one);
    assert_eq!(body(&custom), "[<object>]");
    assert_eq!(
        body(&event_grid),
        r#"[{"id":"17","topic":"<topic>","subject":"orders","data":<object>,"eventType":"Order.Placed","eventTime":"2026-11-20T12:00:00Z","metadataVersion":"1","dataVersion":"2"}]"#
    );
    assert_eq!(
        body(&cloud),
        r#"{"id":"17","source":"<topic>","type":"Order.Placed","time":"2026-11-20T12:00:00Z","subject":"orders","data":<object>,"specversion":"1.0"}"#
    );
    let headers = |received: &Received| {
        [
            "aeg-output-event-id",
            "aeg-data-version",
            "aeg-metadata-version",
        ]
        .map(|name| received.header(name).map(str::to_owned).unwrap_or_default())
    };
    assert_eq!(headers(&custom), ["17", "", "1"]);
    assert_eq!(headers(&event_grid), ["17", "2", "1"]);
    assert_eq!(headers(&cloud), ["17", "", "1.0"]);
}

#[test]
fn an_unknown_path_has_azures_error() {
    let server = Server::start(&[]);
    let response = Client::new(server.address())
        .ask("GET", "/nowhere/At/all?key=secret", &[], b"")
        .expect("a response");
    assert_eq!(
        response.codes(),
        (404, "NotFound".to_owned(), "ResourceNotFound".to_owned())
    );
    let text = response.text();
    assert!(
        text.contains("request URI 'http%3A%2F%2F127.0.0.1%3A")
            && text.contains("%2Fnowhere%2FAt%2Fall'."),
        "{text}"
    );
    assert!(
        text.contains(" Request '") && !text.contains("secret"),
        "{text}"
    );
}

#[test]
fn a_path_is_answered_however_it_is_spelled() {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    let event =
        br#"[{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"}]"#;
    let mut client = Client::new(server.address());
    let mut answers = |usual: &str, key: &str, body: &[u8]| {
        // The router finds the second one.
        [usual.to_owned(), usual.replace("events", "Events")].map(|path| {
            let response = client
                .ask("POST", &path, &[("aeg-sas-key", key)], body)
                .expect("a response");
            assert_eq!(
                response.header("x-ms-request-id"),
                response.header("x-ms-correlation-request-id"),
                "{path}"
            );
            let id = response.header("x-ms-request-id").expect("an id");
            assert_eq!(id.len(), 36, "{id}");
            let problem = if response.status == 200 {
                None
            } else {
                Some(response.codes())
            };
            (response.status, problem)
        })
    };
    let path = events_path("orders");
    for (path, key, body, status) in [
        (&*path, &*key, &event[..], 200),
        (&path, &key, b"", 400),
        (&path, "bm9uZQ==", event, 401),
        ("/topics/nobody/api/events", &key, event, 404),
        ("/domains/orders/api/events", &key, event, 404),
        ("/topics//api/events", &key, event, 404),
        ("/topics/a/b/api/events", &key, event, 404),
        ("/api/events", &key, event, 404),
        ("/api/events?api-version=x", &key, event, 404),
        (&format!("{path}?api-version=x"), &key, event, 400),
        (&format!("{path}?api-version=2018-01-01"), &key, event, 200),
    ] {
        let [direct, routed] = answers(path, key, body);
        assert_eq!((direct.0, &direct), (status, &routed), "{path}");
    }
}
