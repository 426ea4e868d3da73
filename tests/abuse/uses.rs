//! What a body names is used with the server's credentials: a scoped token may name what the
//! operator lets its resources use.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    server::tokens::{RG, ask, token},
    support::{
        server::{Server, SubscriptionSpec, operator, subscription},
        sink::Sink,
    },
};

const NAMESPACE_TOPIC: &str =
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/plant/topics/heat";

fn webhook(sink: &Sink, key: &str, value: &str) -> Value {
    let mut properties = json!({"endpointUrl": sink.url("/")});
    properties[key] = json!(value);
    json!({"destination": {"endpointType": "WebHook", "properties": properties}})
}

fn tokens_for(sink: &Sink, audience: &str, tenant: Option<&str>) -> Value {
    let mut properties = webhook(sink, "azureActiveDirectoryApplicationIdOrUri", audience);
    if let Some(tenant) = tenant {
        properties["destination"]["properties"]["azureActiveDirectoryTenantId"] = json!(tenant);
    }
    properties
}

fn queue(resource_id: &str) -> Value {
    json!({"destination": {"endpointType": "StorageQueue",
        "properties": {"resourceId": resource_id, "queueName": "orders"}}})
}

fn dead_letters(sink: &Sink, resource_id: &str) -> Value {
    json!({
        "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/")}},
        "deadLetterDestination": {"endpointType": "StorageBlob",
            "properties": {"resourceId": resource_id, "blobContainerName": "letters"}},
    })
}

fn to_namespace_topic() -> Value {
    json!({
        "destination": {"endpointType": "NamespaceTopic", "properties": {"resourceId": NAMESPACE_TOPIC}},
        "eventDeliverySchema": "CloudEventSchemaV1_0",
    })
}

/// A server whose resources are for the topic `orders`.
fn start_with_resources(folder: &Path) -> Server {
    let secret = folder.join("secret");
    std::fs::write(&secret, "s3cret").expect("written");
    Server::start(&[
        (
            "DELIVERY__RESOURCES__ARCHIVE__URL",
            "http://127.0.0.1:1/devstoreaccount1",
        ),
        ("DELIVERY__RESOURCES__ARCHIVE__ACCESS_KEY", "AAAA"),
        (
            "DELIVERY__RESOURCES__ARCHIVE__RESOURCE_IDS",
            "/queues/archive",
        ),
        ("DELIVERY__RESOURCES__ARCHIVE__USED_BY", "topics/orders"),
        ("DELIVERY__RESOURCES__EGRESS__URL", "proxy://127.0.0.1:1"),
        (
            "DELIVERY__RESOURCES__EGRESS__USED_BY",
            "topics/ord*,namespaces/plant",
        ),
        (
            "DELIVERY__IDENTITY_TOKEN_URL",
            "http://127.0.0.1:1/{tenant}/token",
        ),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            secret.to_str().expect("UTF-8"),
        ),
        (
            "DELIVERY__IDENTITY_AUDIENCES",
            "api://app@contoso topics/orders; api://other topics/elsewhere",
        ),
        (
            "DELIVERY__CLIENT_CERTIFICATES_USED_BY",
            "partner topics/orders",
        ),
        ("DEAD_LETTER__FOLDER_USED_BY", "topics/orders"),
        (
            "DEAD_LETTER__STORES__COLD__URL",
            &format!("file://{}", folder.join("cold").display()),
        ),
        ("DEAD_LETTER__STORES__COLD__ACCOUNTS", "cold"),
    ])
}

fn create_topics(server: &Server) {
    server.command(
        "PUT",
        &format!("{RG}/namespaces/plant"),
        &json!({"location": "local"}),
    );
    server.command("PUT", NAMESPACE_TOPIC, &json!({}));
    for topic in ["orders", "bills"] {
        server.topic(topic, "EventGridSchema");
    }
}

/// The status of a request that creates an event subscription. A preview has the same outcome.
fn put_and_delete(server: &Server, token: &str, topic: &str, properties: &Value) -> u16 {
    let body = json!({"properties": properties}).to_string();
    let path = format!("{}?whatIf=true", subscription(topic, "sub"));
    let planned = ask(server, token, "PUT", &path, &body).status;
    let response = ask(server, token, "PUT", &subscription(topic, "sub"), &body);
    // A permitted request may fail later, because no server listens there. A forbidden one is
    // refused before the server tries anything.
    assert_eq!(
        planned == 403,
        response.status == 403,
        "{}",
        response.text()
    );
    if response.status == 403 {
        assert!(
            response.text().contains("may not use what"),
            "{}",
            response.text()
        );
    }
    server.command("DELETE", &subscription(topic, "sub"), &Value::Null);
    response.status
}

#[test]
fn a_scoped_token_names_what_its_resources_may_use_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start_with_resources(folder.path());
    let sink = Sink::start();
    create_topics(&server);
    let put = |token: &str, topic: &str, properties: &Value| {
        put_and_delete(&server, token, topic, properties)
    };
    let admin = token(
        &server,
        &[
            "team",
            "--role",
            "admin",
            "--scope",
            "topics/orders,topics/bills",
        ],
    );
    let operators_token =
        std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let operators_token = operators_token.trim().to_owned();
    let publisher = token(
        &server,
        &[
            "both",
            "--role",
            "admin",
            "--scope",
            &format!("topics/bills,{}", "namespaces/plant"),
        ],
    );
    for (name, properties) in [
        ("queue", queue("archive")),
        ("queue by id", queue("/queues/archive/services/x")),
        ("proxy", webhook(&sink, "proxy", "egress")),
        (
            "certificate",
            webhook(&sink, "clientCertificate", "partner"),
        ),
        ("audience", tokens_for(&sink, "api://app", Some("contoso"))),
        ("folder", dead_letters(&sink, "any-account")),
    ] {
        assert_ne!(put(&admin, "orders", &properties), 403, "{name} of orders");
        assert_eq!(put(&admin, "bills", &properties), 403, "{name} of bills");
    }
    for (name, properties) in [
        ("no proxy", webhook(&sink, "proxy", "none")),
        (
            "another certificate",
            webhook(&sink, "clientCertificate", "other"),
        ),
        (
            "another tenant",
            tokens_for(&sink, "api://app", Some("fabrikam")),
        ),
        (
            "another audience",
            tokens_for(&sink, "https://vault.example", Some("contoso")),
        ),
        (
            "an audience of others",
            tokens_for(&sink, "api://other", None),
        ),
        ("another store", dead_letters(&sink, "cold")),
        ("a namespace topic", to_namespace_topic()),
    ] {
        assert_eq!(put(&admin, "orders", &properties), 403, "{name}");
    }
    assert_ne!(
        put(&publisher, "bills", &to_namespace_topic()),
        403,
        "it may publish there"
    );
    let plain = json!({"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/")}}});
    assert_eq!(put(&admin, "bills", &plain), 201, "a webhook uses nothing");
    for properties in [
        queue("archive"),
        to_namespace_topic(),
        webhook(&sink, "proxy", "egress"),
    ] {
        assert_ne!(
            put(&operators_token, "bills", &properties),
            403,
            "an operator of the whole server uses all"
        );
    }
}

#[test]
fn what_an_operator_has_set_is_kept_and_does_not_go_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s3cret").expect("written");
    let server = Server::start(&[
        ("DELIVERY__IDENTITY_TOKEN_URL", "http://127.0.0.1:1/token"),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            secret.to_str().expect("UTF-8"),
        ),
        ("DELIVERY__VALIDATE", "false"),
    ]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    let spec = SubscriptionSpec::new(&sink.url("/"));
    server.subscribe(
        "orders",
        "sub",
        &spec.webhook("azureActiveDirectoryApplicationIdOrUri", json!("api://app")),
    );
    let admin = token(
        &server,
        &["team", "--role", "admin", "--scope", "topics/orders"],
    );
    let portal = token(
        &server,
        &[
            "link",
            "--role",
            "portal",
            "--scope",
            "topics/orders",
            "--expires",
            "8h",
        ],
    );
    let patch = |token: &str, body: &Value| {
        ask(
            &server,
            token,
            "PATCH",
            &subscription("orders", "sub"),
            &body.to_string(),
        )
        .status
    };
    let to = |url: &str| json!({"destination": {"properties": {"endpointUrl": url}}});
    assert_eq!(patch(&admin, &json!({"labels": ["team=a"]})), 201);
    for caller in [&admin, &portal] {
        assert_eq!(
            patch(caller, &to(&sink.url("/moved"))),
            201,
            "the same host"
        );
        assert_eq!(
            patch(caller, &to("http://127.0.0.1:9/")),
            403,
            "another host would receive the token"
        );
    }
    operator(&server, &["tokens", "list"]).expect("the server runs");
}
