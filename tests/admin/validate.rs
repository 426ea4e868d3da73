//! The manual validation of the handshake, against a registry in memory and on a clock of its own.

use std::{sync::Arc, time::Duration};

use actix_web::test;
use expect_test::expect;
use gridhook::{
    admin::ChaosMode,
    clock::{Clock, ManualClock},
    control::{
        expiry,
        validation::{EndpointValidator, ValidationSettings},
    },
    deliver::{AddressRules, ClientOptions, TlsTrust},
    event::Timestamp,
    policy::validation::HandshakeTimes,
};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, Response};
use crate::support::{
    endpoint::{Endpoint, respond},
    memory_store::{MemoryStore, WriteFault},
    publisher::running_registry,
};

/// A control plane that asks endpoints, and the clock that it asks by.
async fn control() -> (ControlFixture, ManualClock) {
    let store = MemoryStore::new();
    let (registry, running, hand) = running_registry(&store);
    let (clock, validators) = Clock::new_manual(Timestamp(1_615_410_176_000_000));
    let client = ClientOptions::new(
        AddressRules::loopback(),
        TlsTrust::load(None).expect("certificates"),
    );
    let times = HandshakeTimes {
        answer: Duration::from_secs(10),
        pause: Duration::from_millis(1),
        window: Duration::from_secs(600),
    };
    let behaviors = ValidationSettings {
        validate: true,
        times,
        rate: 120,
        public_url: "http://here".to_owned(),
    };
    registry.set_validator(EndpointValidator::new(client, clock, behaviors));
    (
        ControlFixture::over(
            store,
            Arc::clone(&registry),
            running,
            hand,
            ChaosMode::Disabled,
        )
        .with_topic()
        .await,
        validators,
    )
}

fn path() -> String {
    format!("{RG}/topics/orders/eventSubscriptions/to-shop")
}

async fn put(control: &ControlFixture, url: &str) -> Response {
    let webhook = json!({"endpointType": "WebHook", "properties": {"endpointUrl": url}});
    control
        .call(
            "PUT",
            &path(),
            json!({"properties": {"destination": webhook}}),
        )
        .await
}

async fn state(control: &ControlFixture) -> Value {
    control.call("GET", &path(), Value::Null).await.json()["properties"]["provisioningState"]
        .clone()
}

/// The path of the newest manual validation URL that the endpoint received.
fn validation_path(endpoint: &Endpoint) -> String {
    let requests = endpoint.requests();
    let body: Value =
        serde_json::from_slice(&requests.last().expect("it was asked").body).expect("an event");
    let url = body[0]["data"]["validationUrl"]
        .as_str()
        .expect("an address")
        .to_owned();
    let code = body[0]["data"]["validationCode"]
        .as_str()
        .expect("a code")
        .to_owned();
    assert_eq!(code, code.to_uppercase());
    assert!(
        url.contains(&format!("?id={}&", code.to_lowercase())),
        "{url}"
    );
    url.strip_prefix("http://here")
        .expect("the server's own address")
        .to_owned()
}

async fn open(control: &ControlFixture, path: &str) -> Response {
    control.send(test::TestRequest::with_uri(path)).await
}

#[actix_web::test]
async fn a_validation_counts_once_and_only_with_its_token_and_in_time() {
    let (control, hand) = control().await;
    let endpoint = Endpoint::start(vec![respond(200, "", "thank you")]);
    assert_eq!(put(&control, &endpoint.url()).await.status, 201);
    let first = validation_path(&endpoint);
    let mut lines = vec![
        open(&control, "/eventsubscriptions/to-shop/validate")
            .await
            .brief(),
        open(&control, &first.replace("token=", "token=f"))
            .await
            .brief(),
        open(&control, &first[..first.len() - 1]).await.brief(),
    ];
    // A second change of the same subscription is validated anew.
    assert_eq!(put(&control, &endpoint.url()).await.status, 201);
    let second = validation_path(&endpoint);
    lines.push(open(&control, &first).await.brief());
    hand.advance(Duration::from_millis(599_999));
    assert_eq!(state(&control).await, "AwaitingManualAction");
    lines.push(open(&control, &second).await.brief());
    lines.push(open(&control, &second).await.brief());
    assert_eq!(state(&control).await, "Succeeded");

    assert_eq!(
        put(&control, &format!("{}&x=2", endpoint.url()))
            .await
            .status,
        201
    );
    hand.advance(Duration::from_secs(600));
    assert_eq!(state(&control).await, "Failed");
    lines.push(open(&control, &validation_path(&endpoint)).await.brief());
    expect![[r#"
        404 {"error":{"code":"ResourceNotFound","message":"No event subscription waits for this validation. It was done or replaced by a later change, or the URL is incomplete.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"No event subscription waits for this validation. It was done or replaced by a later change, or the URL is incomplete.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"No event subscription waits for this validation. It was done or replaced by a later change, or the URL is incomplete.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"No event subscription waits for this validation. It was done or replaced by a later change, or the URL is incomplete.","target":null,"details":[]}}
        200 Webhook successfully validated as a subscription endpoint.
        404 {"error":{"code":"ResourceNotFound","message":"No event subscription waits for this validation. It was done or replaced by a later change, or the URL is incomplete.","target":null,"details":[]}}
        410 {"error":{"code":"Gone","message":"This validation expired at 2021-03-10T21:22:55.9990000Z. PUT the event subscription again to start a new one.","target":null,"details":[]}}"#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_full_disk_neither_makes_nor_forgets_a_word() {
    let (control, _hand) = control().await;
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    // For one write there is no room.
    let fill = |control: &ControlFixture| {
        control.store.fail(
            control.store.writes()..control.store.writes() + 1,
            WriteFault::Full,
        )
    };
    fill(&control);
    assert_eq!(put(&control, &endpoint.url()).await.status, 503);
    assert_eq!(control.call("GET", &path(), Value::Null).await.status, 404);
    assert_eq!(put(&control, &endpoint.url()).await.status, 201);
    fill(&control);
    assert_eq!(
        open(&control, &validation_path(&endpoint)).await.status,
        503
    );
    assert_eq!(state(&control).await, "AwaitingManualAction");
    assert_eq!(
        open(&control, &validation_path(&endpoint)).await.status,
        200
    );
    assert_eq!(state(&control).await, "Succeeded");
}

#[actix_web::test]
async fn a_subscription_that_awaits_validation_is_deleted_with_its_topic() {
    let (control, _hand) = control().await;
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    for deleted in [path(), format!("{RG}/topics/orders")] {
        assert_eq!(put(&control, &endpoint.url()).await.status, 201);
        assert_eq!(
            control.call("DELETE", &deleted, Value::Null).await.status,
            204
        );
        assert_eq!(
            open(&control, &validation_path(&endpoint)).await.status,
            404
        );
        assert_eq!(control.call("GET", &path(), Value::Null).await.status, 404);
    }
}

/// The names of a list.
async fn names(control: &ControlFixture, path: &str) -> Vec<String> {
    let list = control
        .call("GET", &format!("{RG}/domains/shop/{path}"), Value::Null)
        .await
        .json();
    let one = |one: &Value| {
        let state = one["properties"]["provisioningState"]
            .as_str()
            .unwrap_or_default();
        format!("{} {state}", one["name"].as_str().expect("a name"))
    };
    list["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(one)
        .collect()
}

async fn put_north(control: &ControlFixture, properties: &Value) -> Response {
    let path = format!("{RG}/domains/shop/topics/north/eventSubscriptions/to-shop");
    control
        .call("PUT", &path, json!({"properties": properties}))
        .await
}

#[actix_web::test]
async fn endpoints_of_a_domain_and_of_its_topics_agree_first_each_for_itself() {
    let (control, _hand) = control().await;
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/domains/shop"), json!({}))
            .await
            .status,
        201
    );
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let webhook = json!({"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": endpoint.url()}}});
    assert_eq!(put_north(&control, &webhook).await.status, 201);
    let north = validation_path(&endpoint);
    let path = format!("{RG}/domains/shop/eventSubscriptions/to-shop");
    assert_eq!(
        control
            .call("PUT", &path, json!({"properties": webhook}))
            .await
            .status,
        201
    );
    let whole = validation_path(&endpoint);
    let asked: Vec<Value> = endpoint
        .requests()
        .iter()
        .map(|request| {
            serde_json::from_slice::<Value>(&request.body).expect("an event")[0]["topic"].clone()
        })
        .collect();
    assert_eq!(
        asked,
        [
            format!("{RG}/domains/shop/topics/north"),
            format!("{RG}/domains/shop")
        ]
    );
    assert_eq!(
        names(&control, "topics").await,
        ["north Succeeded"],
        "a topic comes with what is wished for it"
    );
    assert_eq!(
        names(&control, "topics/north/eventSubscriptions").await,
        ["to-shop AwaitingManualAction"]
    );
    assert_eq!(open(&control, &north).await.status, 200);
    assert_eq!(
        names(&control, "topics/north/eventSubscriptions").await,
        ["to-shop Succeeded"]
    );
    assert_eq!(
        names(&control, "eventSubscriptions").await,
        ["to-shop AwaitingManualAction"]
    );
    let (again, _clock, _running) = running_registry(&control.store);
    let domain = again.find_topic("domain:shop").expect("it is recovered");
    assert_eq!(again.all_provisioned(&domain).len(), 2);
    assert_eq!(
        domain
            .list_subscriptions()
            .iter()
            .map(|one| one.key())
            .collect::<Vec<_>>(),
        ["north/to-shop"]
    );
    assert_eq!(open(&control, &whole).await.status, 200);
    assert_eq!(
        names(&control, "eventSubscriptions").await,
        ["to-shop Succeeded"]
    );
    let topic = format!("{RG}/domains/shop/topics/north");
    assert_eq!(
        control.call("DELETE", &topic, Value::Null).await.status,
        204
    );
    let farewell = last_of(&endpoint, 3).await;
    assert_eq!(
        farewell["eventType"],
        "Microsoft.EventGrid.SubscriptionDeletedEvent"
    );
    assert_eq!(farewell["topic"], topic);
}

#[actix_web::test]
async fn an_expiration_time_is_returned_and_a_subscription_that_awaits_validation_expires() {
    let (control, _hand) = control().await;
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/domains/shop"), json!({}))
            .await
            .status,
        201
    );
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let mut webhook = json!({"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": endpoint.url()}},
        "expirationTimeUtc": "2021-03-10T21:03:56Z"});
    let expires = control.clock.now().after(Duration::from_secs(60));
    assert_eq!(put_north(&control, &webhook).await.status, 201);
    assert_eq!(
        expiry::delete_expired(&control.registry, control.clock.now()).await,
        Some(expires)
    );
    assert_eq!(
        expiry::delete_expired(&control.registry, expires).await,
        None
    );
    assert!(
        names(&control, "topics").await.is_empty(),
        "the topic went with its last proposal"
    );
    assert_eq!(
        open(&control, &validation_path(&endpoint)).await.status,
        404
    );

    assert_eq!(put_north(&control, &webhook).await.status, 201);
    assert_eq!(
        open(&control, &validation_path(&endpoint)).await.status,
        200
    );
    // A proposal that expires later neither ends the current address nor waits for it.
    webhook["destination"]["properties"]["endpointUrl"] = format!("{}&x=2", endpoint.url()).into();
    webhook["expirationTimeUtc"] = "2021-03-10T22:00:00Z".into();
    assert_eq!(put_north(&control, &webhook).await.status, 201);
    let asked = endpoint.requests().len();
    assert!(
        expiry::delete_expired(&control.registry, expires)
            .await
            .is_some()
    );
    assert_eq!(
        names(&control, "topics/north/eventSubscriptions").await,
        ["to-shop AwaitingManualAction"]
    );
    let farewell = last_of(&endpoint, asked + 1).await;
    assert_eq!(
        farewell["eventType"],
        "Microsoft.EventGrid.SubscriptionDeletedEvent"
    );
}

/// The event in the last of this number of requests.
async fn last_of(endpoint: &Endpoint, count: usize) -> Value {
    for _ in 0..500 {
        if endpoint.requests().len() >= count {
            break;
        }
        actix_web::rt::time::sleep(Duration::from_millis(10)).await;
    }
    let requests = endpoint.requests();
    assert_eq!(requests.len(), count);
    let body: Value = serde_json::from_slice(&requests[count - 1].body).expect("an event");
    body[0].clone()
}
