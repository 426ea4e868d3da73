//! The control plane over HTTP, against a registry in memory.

use actix_web::{ResponseError as _, http::Method, test};
use expect_test::expect;
use gridhook::{
    admin::{AdminError, ChaosMode, health::StartPhase},
    control::registry,
    journal::{self},
    store::{Batch, Family, Store as _, keys},
};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, Response, TOKEN, hook};
use crate::support::memory_store::WriteFault;

#[actix_web::test]
async fn statuses_are_those_that_every_client_accepts() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let topic = format!("{RG}/topics/orders");
    let nested = format!("{topic}/eventSubscriptions/to-shop");
    let scoped = format!(
        "/{topic}/providers/Microsoft.EventGrid/eventSubscriptions/to-shop?api-version=2025-02-15"
    );
    let calls = [
        ("PUT", topic.as_str(), json!({"location": "local"})),
        ("PUT", &topic, json!({"location": "local"})),
        ("PATCH", &topic, json!({"tags": {"a": "b"}})),
        ("GET", &topic, Value::Null),
        ("POST", &format!("{topic}/listKeys"), Value::Null),
        (
            "POST",
            &format!("{topic}/regenerateKey"),
            json!({"keyName": "key1"}),
        ),
        ("PUT", &nested, hook()),
        ("PUT", &scoped, hook()),
        ("PATCH", &nested, json!({"labels": ["x"]})),
        ("PATCH", &scoped, json!({"labels": ["y"]})),
        ("GET", &nested, Value::Null),
        ("GET", &scoped, Value::Null),
        ("POST", &format!("{nested}/getFullUrl"), Value::Null),
        (
            "POST",
            &format!("{nested}/getDeliveryAttributes"),
            Value::Null,
        ),
        ("GET", &format!("{nested}/status"), Value::Null),
        ("POST", &format!("{nested}/hold"), Value::Null),
        ("POST", &format!("{nested}/resume"), Value::Null),
        ("DELETE", &nested, Value::Null),
        ("DELETE", &scoped, Value::Null),
        ("DELETE", &topic, Value::Null),
        ("DELETE", &topic, Value::Null),
        ("GET", &topic, Value::Null),
        ("GET", &nested, Value::Null),
        ("DELETE", &nested, Value::Null),
    ];
    let mut lines = Vec::new();
    for (method, path, body) in calls {
        let short = path.replace(RG, "RG:");
        lines.push(format!(
            "{method} {short} {}",
            control.call(method, path, body).await.status
        ));
    }
    expect![[r#"
        PUT RG:/topics/orders 201
        PUT RG:/topics/orders 201
        PATCH RG:/topics/orders 201
        GET RG:/topics/orders 200
        POST RG:/topics/orders/listKeys 200
        POST RG:/topics/orders/regenerateKey 200
        PUT RG:/topics/orders/eventSubscriptions/to-shop 201
        PUT /RG:/topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop?api-version=2025-02-15 201
        PATCH RG:/topics/orders/eventSubscriptions/to-shop 201
        PATCH /RG:/topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop?api-version=2025-02-15 201
        GET RG:/topics/orders/eventSubscriptions/to-shop 200
        GET /RG:/topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop?api-version=2025-02-15 200
        POST RG:/topics/orders/eventSubscriptions/to-shop/getFullUrl 200
        POST RG:/topics/orders/eventSubscriptions/to-shop/getDeliveryAttributes 200
        GET RG:/topics/orders/eventSubscriptions/to-shop/status 200
        POST RG:/topics/orders/eventSubscriptions/to-shop/hold 200
        POST RG:/topics/orders/eventSubscriptions/to-shop/resume 200
        DELETE RG:/topics/orders/eventSubscriptions/to-shop 204
        DELETE /RG:/topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop?api-version=2025-02-15 204
        DELETE RG:/topics/orders 204
        DELETE RG:/topics/orders 204
        GET RG:/topics/orders 404
        GET RG:/topics/orders/eventSubscriptions/to-shop 404
        DELETE RG:/topics/orders/eventSubscriptions/to-shop 404"#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn without_the_token_nothing_is_answered() {
    let control = ControlFixture::new(ChaosMode::Enabled).with_topic().await;
    let mut lines = Vec::new();
    for header in [
        None,
        Some("Bearer wrong"),
        Some("Basic swordfish"),
        Some("swordfish"),
        Some("Bearer "),
    ] {
        for path in [
            format!("{RG}/topics/orders"),
            "/subscriptions/x/none".to_owned(),
            "/chaos/kill".to_owned(),
        ] {
            let mut request = test::TestRequest::with_uri(&path);
            if let Some(header) = header {
                request = request.insert_header(("Authorization", header));
            }
            let response = control.send(request).await;
            assert_eq!(response.status, 401);
            assert_eq!(
                response
                    .headers
                    .get("WWW-Authenticate")
                    .expect("it is there"),
                "Bearer"
            );
            lines.push(format!("{header:?} {}", response.text));
        }
    }
    lines.dedup();
    expect![[r#"
        None {"error":{"code":"AuthenticationFailed","message":"Authentication failed: the 'Authorization' header is missing or is not of the form 'Bearer <admin token>'.","target":null,"details":[]}}
        Some("Bearer wrong") {"error":{"code":"InvalidAuthenticationToken","message":"The access token is invalid.","target":null,"details":[]}}
        Some("Basic swordfish") {"error":{"code":"AuthenticationFailed","message":"Authentication failed: the 'Authorization' header is missing or is not of the form 'Bearer <admin token>'.","target":null,"details":[]}}
        Some("swordfish") {"error":{"code":"AuthenticationFailed","message":"Authentication failed: the 'Authorization' header is missing or is not of the form 'Bearer <admin token>'.","target":null,"details":[]}}
        Some("Bearer ") {"error":{"code":"AuthenticationFailed","message":"Authentication failed: the 'Authorization' header is missing or is not of the form 'Bearer <admin token>'.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
    let lower = test::TestRequest::with_uri(&format!("{RG}/topics/orders"))
        .insert_header(("Authorization", format!("bearer {TOKEN}")));
    assert_eq!(control.send(lower).await.status, 200);
}

#[actix_web::test]
async fn errors_have_arms_form() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let topic = format!("{RG}/topics/orders");
    let elsewhere = topic.replace("/rg/", "/elsewhere/");
    let answers = [
        control.call("PUT", &topic, json!({"colour": 1})).await,
        control.call("PUT", &elsewhere, json!({})).await,
        control.call("GET", &elsewhere, Value::Null).await,
        control
            .call(
                "GET",
                &format!("{topic}/eventSubscriptions/none"),
                Value::Null,
            )
            .await,
        control
            .call(
                "PATCH",
                &format!("{topic}/eventSubscriptions/none"),
                json!({}),
            )
            .await,
        control.call("POST", &topic, Value::Null).await,
        control
            .call("GET", &format!("{topic}/listKeys"), Value::Null)
            .await,
        control
            .call("GET", &format!("{RG}/domains/x?secret=1"), Value::Null)
            .await,
        control
            .call("GET", &format!("{RG}/topics?$filter=name"), Value::Null)
            .await,
        control
            .call("PUT", &topic, json!({"location": "x".repeat(300_000)}))
            .await,
        control.call("POST", "/healthz", Value::Null).await,
    ];
    let lines: Vec<_> = answers.iter().map(Response::brief).collect();
    expect![[r#"
        400 {"error":{"code":"InvalidRequest","message":"colour cannot be read: unknown field `colour`, expected one of `id`, `name`, `type`, `location`, `tags`, `sku`, `kind`, `extendedLocation`, `identity`, `systemData`, `properties`.","target":"colour","details":[]}}
        409 {"error":{"code":"Conflict","message":"The name 'orders' is taken: names of topics are unique in the server, and /subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders exists.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/topics/orders' under resource group 'elsewhere' was not found.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/topics/orders/eventSubscriptions/none' under resource group 'rg' was not found.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/topics/orders/eventSubscriptions/none' under resource group 'rg' was not found.","target":null,"details":[]}}
        405 {"error":{"code":"MethodNotAllowed","message":"The method POST is not allowed here; allowed: GET, PUT, PATCH, DELETE, HEAD.","target":null,"details":[]}}
        405 {"error":{"code":"MethodNotAllowed","message":"The method GET is not allowed here; allowed: POST.","target":null,"details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.EventGrid/domains/x' under resource group 'rg' was not found.","target":null,"details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"$filter cannot be read at \"name\"; expected contains(name, 'text'), name eq 'text' or name ne 'text', joined by and, or, not and parentheses.","target":"$filter","details":[]}}
        413 {"error":{"code":"RequestEntityTooLarge","message":"The body exceeds 262144 bytes.","target":null,"details":[]}}
        405 {"error":{"code":"MethodNotAllowed","message":"The method POST is not allowed here; allowed: GET, HEAD.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
    assert_eq!(
        answers[5].headers.get("Allow").expect("it is there"),
        "GET, PUT, PATCH, DELETE, HEAD"
    );
    let kill = json!({"actor": "topic", "topic": "orders", "by": "stop"});
    assert_eq!(
        control.call("POST", "/chaos/kill", kill).await.status,
        404,
        "nothing is broken on purpose"
    );
}

#[actix_web::test]
async fn errors_of_the_registry_have_their_statuses() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let mut lines = Vec::new();
    let mut put = async |url: &str| {
        let body = json!({"properties": {"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": url}}}});
        let response = control
            .call(
                "PUT",
                &format!("{RG}/topics/orders/eventSubscriptions/to-shop"),
                body,
            )
            .await;
        let after = response
            .headers
            .get("Retry-After")
            .map(|value| value.to_str().expect("it is text").to_owned());
        lines.push(format!("{after:?} {}", response.brief()));
    };
    put("http://10.0.0.1/hook").await;
    control
        .store
        .fail(control.store.writes()..u64::MAX, WriteFault::Full);
    put("http://127.0.0.1:9000/hook").await;
    control
        .store
        .fail(control.store.writes()..u64::MAX, WriteFault::Failed);
    put("http://127.0.0.1:9000/hook").await;
    expect![[r#"
        None 400 {"error":{"code":"InvalidRequest","message":"properties.destination.properties.endpointUrl is refused: the address 10.0.0.1 is private or reserved; the setting delivery.allow_networks allows a network.","target":"properties.destination.properties.endpointUrl","details":[]}}
        Some("10") 503 {"error":{"code":"ServiceUnavailable","message":"The disk of the data folder is full; nothing was changed. Try again when there is space.","target":null,"details":[]}}
        Some("10") 503 {"error":{"code":"ServiceUnavailable","message":"The journal is closed; a change may or may not have been made. Try again later.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_read_of_a_damaged_store_mentions_no_change() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let topic = control.registry.find_topic("orders").expect("a topic");
    let mut batch = Batch::default();
    let key = keys::floor_key(topic.partition());
    batch.put(Family::Meta, key, &b"no floor"[..3]);
    control.store.write(&batch).expect("written");
    let status = format!("{RG}/topics/orders/status");
    let response = control.call("GET", &status, Value::Null).await;
    expect![[r#"500 {"error":{"code":"InternalServerError","message":"The request failed: the store is damaged: a record of kind floor is damaged.","target":null,"details":[]}}"#]].assert_eq(&response.brief());
}

#[actix_web::test]
async fn internal_errors_say_what_failed() {
    let errors = [
        AdminError::Broken("the started redrive has no job"),
        registry::Error::Unreadable {
            name: "orders".to_owned(),
            reason: "it has no partition".to_owned(),
        }
        .into(),
    ];
    let lines = errors.map(|error| format!("{} {error}", error.status_code().as_u16()));
    expect![[r#"
        500 The server has a bug: the started redrive has no job.
        500 The request failed: cannot read the record orders in the store: it has no partition."#]]
    .assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn keys_are_returned_by_their_own_calls_only_and_survive_an_update() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let topic = format!("{RG}/topics/orders");
    let keys = control
        .call("POST", &format!("{topic}/listKeys"), Value::Null)
        .await
        .json();
    let key1 = keys["key1"].as_str().expect("text");
    let key2 = keys["key2"].as_str().expect("text");
    assert_eq!((key1.len(), key2.len()), (44, 44), "32 bytes in base64");
    assert_ne!(key1, key2);
    for (method, body) in [
        ("PUT", json!({})),
        ("PATCH", json!({})),
        ("GET", Value::Null),
    ] {
        let response = control.call(method, &topic, body).await.text;
        assert!(
            !response.contains(key1) && !response.contains(key2),
            "{response}"
        );
    }
    assert_eq!(
        control
            .call("POST", &format!("{topic}/listKeys"), Value::Null)
            .await
            .json(),
        keys
    );
    let changed = control
        .call(
            "POST",
            &format!("{topic}/regenerateKey"),
            json!({"keyName": "key2"}),
        )
        .await
        .json();
    assert_eq!(changed["key1"], keys["key1"]);
    assert_ne!(changed["key2"], keys["key2"]);
}

#[actix_web::test]
async fn only_get_full_url_returns_the_query() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let nested = format!("{RG}/topics/orders/eventSubscriptions");
    for (method, path, body) in [
        ("GET", format!("{nested}/to-shop"), Value::Null),
        ("GET", nested.clone(), Value::Null),
        (
            "PATCH",
            format!("{nested}/TO-SHOP"),
            json!({"labels": ["x"]}),
        ),
        ("GET", format!("{nested}/to-shop/status"), Value::Null),
    ] {
        let response = control.call(method, &path, body).await.text;
        assert!(
            response.contains("to-shop") && !response.contains("secret"),
            "{response}"
        );
    }
    let full = control
        .call("POST", &format!("{nested}/to-shop/getFullUrl"), Value::Null)
        .await;
    assert_eq!(
        full.text,
        r#"{"endpointUrl":"http://127.0.0.1:9000/hook?code=secret"}"#
    );
}

#[actix_web::test]
async fn lists_keep_to_their_scope() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let other = "/subscriptions/s-1/resourceGroups/other/providers/Microsoft.EventGrid/topics";
    assert_eq!(
        control
            .call("PUT", &format!("{other}/bills"), json!({}))
            .await
            .status,
        201
    );
    for (path, names) in [
        (format!("{RG}/topics?$top=1"), vec!["orders"]),
        (other.to_owned(), vec!["bills"]),
        (
            "/subscriptions/S-1/providers/microsoft.eventgrid/topics".to_owned(),
            vec!["bills", "orders"],
        ),
        (
            "/subscriptions/none/providers/Microsoft.EventGrid/topics".to_owned(),
            vec![],
        ),
    ] {
        let list = control.call("GET", &path, Value::Null).await.json();
        let got: Vec<_> = list["value"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|topic| topic["name"].clone())
            .collect();
        assert_eq!(json!(got), json!(names), "{path}");
    }
}

#[actix_web::test]
async fn an_edition_with_smaller_ranges_is_refused_while_a_subscription_asks_for_more() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let patch = json!({"properties": {"edition": "short"}});
    let response = control
        .call("PATCH", &format!("{RG}/topics/orders"), patch.clone())
        .await;
    expect![[r#"400 {"error":{"code":"InvalidRequest","message":"properties.edition does not fit the event subscription to-shop, whose maxDeliveryAttempts is 30; expected 1 to 5.","target":"properties.edition","details":[]}}"#]].assert_eq(&response.brief());
    let fewer = json!({"retryPolicy": {"maxDeliveryAttempts": 5}});
    let subscription = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    assert_eq!(
        control.call("PATCH", &subscription, fewer).await.status,
        201
    );
    assert_eq!(
        control
            .call("PATCH", &format!("{RG}/topics/orders"), patch)
            .await
            .status,
        201
    );
}

#[actix_web::test]
async fn the_status_shows_hold_and_resume() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let subscription = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    let held = control
        .call("POST", &format!("{subscription}/hold"), Value::Null)
        .await;
    expect![[r#"200 {"topic":"orders","subscription":"to-shop","heldBy":"operator","health":{"state":"healthy","failures":0},"condition":{"state":"held","severity":4,"successShare":null,"windowSeconds":null},"endpoint":{"rate":null,"healthyRate":null,"concurrency":16,"eventsPerRequest":1},"counters":{"passed":0,"filtered":0,"matched":0,"delivered":0,"pending":0,"deadLettered":0,"dropped":0,"canceled":0,"requests":0,"requestsFailed":0,"late":0},"backlog":0,"oldestUnread":null,"oldestUnreadAgeSeconds":null,"nextDue":null,"inFlight":0,"lateRequests":0,"actor":{"incarnation":1,"restarts":0,"ends":{"panicked":0,"killed":0,"stopped":0,"orphaned":0},"lastCause":null,"lastEnd":null,"recovery":{"count":0,"last":null,"p50":null,"p99":null,"longest":null},"quarantined":{"count":0,"newest":[]}}}"#]].assert_eq(&held.brief());
    let resumed = control
        .call("POST", &format!("{subscription}/resume"), Value::Null)
        .await;
    assert_eq!(resumed.json()["heldBy"], Value::Null);
    assert_eq!(
        control
            .call(
                "POST",
                &format!("{RG}/topics/orders/eventSubscriptions/none/hold"),
                Value::Null
            )
            .await
            .status,
        404
    );
}

#[actix_web::test]
async fn a_command_that_has_no_sense_is_a_conflict_that_says_why() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let subscription = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    let mut lines = Vec::new();
    for verb in ["probe", "release", "hold", "probe"] {
        let response = control
            .call("POST", &format!("{subscription}/{verb}"), Value::Null)
            .await;
        lines.push(if response.status == 200 {
            "200".to_owned()
        } else {
            response.brief()
        });
    }
    expect![[r#"
        409 {"error":{"code":"Conflict","message":"Nothing was done: the endpoint is healthy; only one on probation can be probed or released.","target":null,"details":[]}}
        409 {"error":{"code":"Conflict","message":"Nothing was done: the endpoint is healthy; only one on probation can be probed or released.","target":null,"details":[]}}
        200
        409 {"error":{"code":"Conflict","message":"Nothing was done: the subscription is held; resume it first.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
    assert_eq!(
        control
            .call("GET", &format!("{subscription}/probe"), Value::Null)
            .await
            .status,
        405
    );
}

#[actix_web::test]
async fn health_asks_for_no_token() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let ask = async |path: &str| {
        control
            .send(test::TestRequest::with_uri(path))
            .await
            .brief()
    };
    let mut lines = vec![ask("/healthz").await, ask("/readyz").await];
    control.vitals.enter_phase(StartPhase::Serving);
    lines.push(ask("/readyz").await);
    *control.state.lock() = journal::JournalState::Full;
    lines.push(ask("/readyz").await);
    lines.push(ask("/healthz").await);
    let head = control
        .send(test::TestRequest::with_uri("/readyz").method(Method::HEAD))
        .await;
    assert_eq!(head.status, 503);
    expect![[r#"
        200 {"status":"starting","step":"the start begins"}
        503 {"ready":false,"phase":"recovering","journal":"writable","lostEvents":0,"problems":["the store is being read after the start: the start begins"]}
        200 {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":[]}
        503 {"ready":false,"phase":"serving","journal":"full","lostEvents":0,"problems":["the disk of the data folder is full: publishes are refused until there is space"]}
        200 {"status":"ok"}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn chaos_is_passed_on_where_it_is_enabled() {
    let control = ControlFixture::new(ChaosMode::Enabled)
        .with_subscription()
        .await;
    let mut lines = Vec::new();
    for (path, body) in [
        (
            "kill",
            json!({"actor": "delivery", "topic": "orders", "subscription": "to-shop", "by": "panic"}),
        ),
        (
            "kill",
            json!({"actor": "delivery", "topic": "orders", "by": "panic"}),
        ),
        (
            "kill",
            json!({"actor": "topic", "topic": "orders", "subscription": "to-shop", "by": "panic"}),
        ),
        (
            "kill",
            json!({"actor": "server", "topic": "orders", "by": "panic"}),
        ),
        (
            "poison",
            json!({"topic": "orders", "subscription": "to-shop", "eventId": "e-1", "times": 3}),
        ),
        (
            "poison",
            json!({"topic": "orders", "subscription": "to-shop", "eventId": "e-1", "times": 0}),
        ),
        (
            "poison",
            json!({"topic": "none", "subscription": "to-shop", "eventId": "e-1", "times": 1}),
        ),
        ("other", json!({})),
    ] {
        lines.push(
            control
                .call("POST", &format!("/chaos/{path}"), body)
                .await
                .brief(),
        );
    }
    lines.push(
        control
            .call("GET", "/chaos/kill", Value::Null)
            .await
            .brief(),
    );
    expect![[r#"
        200 {"actor":"delivery","topic":"orders","subscription":"to-shop","by":"panic"}
        400 {"error":{"code":"InvalidRequest","message":"subscription is missing; the actor belongs to an event subscription.","target":"subscription","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"subscription does not apply to the actor of a topic; leave it out.","target":"subscription","details":[]}}
        400 {"error":{"code":"InvalidRequest","message":"actor cannot be read: unknown variant `server`, expected one of `topic`, `subscription`, `delivery`, `deadLetter`, `random`.","target":"actor","details":[]}}
        200 {"topic":"orders","subscription":"to-shop","eventId":"e-1","times":3}
        400 {"error":{"code":"InvalidRequest","message":"times is 0; expected 1 or more.","target":"times","details":[]}}
        404 {"error":{"code":"ResourceNotFound","message":"there is no topic 'none'","target":null,"details":[]}}
        404 {"error":{"code":"NotFound","message":"No HTTP resource was found that matches the request URI '/chaos/other'.","target":null,"details":[{"code":"ResourceNotFound","message":"No HTTP resource was found that matches the request URI '/chaos/other'."}]}}
        405 {"error":{"code":"MethodNotAllowed","message":"The method GET is not allowed here; allowed: POST.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_question_about_an_event_says_once_which_one() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let ask = async |query: &str| {
        let path = format!("{RG}/topics/orders/eventSubscriptions/to-shop/explain{query}");
        control.call("GET", &path, Value::Null).await
    };
    for query in [
        "",
        "?id=",
        "?id=a&sequence=1",
        "?id=a&id=b",
        "?sequence=0",
        "?sequence=x",
        "?sequence=-1",
        "?at=1",
    ] {
        let response = ask(query).await;
        assert_eq!(response.status, 400, "{query}: {}", response.text);
        assert!(
            response.text.contains("expected") || response.text.contains("which event"),
            "{query}: {}",
            response.text
        );
    }
    let unpublished = ask("?sequence=1&api-version=2025-02-15").await;
    assert_eq!(
        (unpublished.status, &unpublished.json()["state"]),
        (200, &json!("notPublished"))
    );
    let unknown = ask("?id=nobody").await;
    expect![[r#"404 {"state":"notFound","searched":{"eventsInFlight":0,"eventsPending":0,"logFromSequence":1,"logBeforeSequence":1}}"#]].assert_eq(&unknown.brief());
    let path = format!("{RG}/topics/orders/eventSubscriptions/none/explain?sequence=1");
    assert_eq!(control.call("GET", &path, Value::Null).await.status, 404);
    let path = format!("{RG}/topics/orders/eventSubscriptions/to-shop/explain?sequence=1");
    assert_eq!(control.call("POST", &path, Value::Null).await.status, 405);
    assert_eq!(
        control
            .send(test::TestRequest::with_uri(&path))
            .await
            .status,
        401,
        "a token is asked for"
    );
}

#[actix_web::test]
async fn head_is_get_without_its_body() {
    let control = ControlFixture::new(ChaosMode::Enabled)
        .with_subscription()
        .await;
    let topic = format!("{RG}/topics/orders");
    let list = format!("{RG}/topics");
    let missing = format!("{list}/none");
    for path in [
        topic.as_str(),
        &list,
        &missing,
        "/top",
        "/server",
        "/audit",
        "/metrics",
    ] {
        let [head, get] = [
            control.call("HEAD", path, Value::Null).await,
            control.call("GET", path, Value::Null).await,
        ];
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.headers.get("etag"), get.headers.get("etag"), "{path}");
    }
    let unknown = test::TestRequest::with_uri("/top").method(Method::HEAD);
    assert_eq!(control.send(unknown).await.status, 401);
    // A stream would have no end.
    assert_eq!(control.call("HEAD", "/tail", Value::Null).await.status, 405);
    let response = control.call("PUT", "/top", json!({})).await;
    assert_eq!(response.headers.get("allow").expect("a list"), "GET, HEAD");
}

#[actix_web::test]
async fn tags_and_labels_have_azures_bounds() {
    let control = ControlFixture::new(ChaosMode::Disabled)
        .with_subscription()
        .await;
    let many = |count: usize| {
        (0..count)
            .map(|number| (format!("t{number}"), json!("v")))
            .collect::<serde_json::Map<_, _>>()
    };
    let long = |length: usize| "é".repeat(length);
    let subscription = format!("{RG}/topics/orders/eventSubscriptions/to-shop");
    for (path, body, reason) in [
        (
            "topics/orders",
            json!({"tags": many(51)}),
            "tags has 51 tags; expected at most 50",
        ),
        (
            "namespaces/plant",
            json!({"tags": many(51)}),
            "tags has 51 tags; expected at most 50",
        ),
        (
            "topics/orders",
            json!({"tags": {"a": long(257)}}),
            "a name of 1 and a value of 257 characters",
        ),
        (
            "topics/orders",
            json!({"tags": {(long(513)): "a"}}),
            "a name of 513 and a value of 1 characters",
        ),
    ] {
        let response = control.call("PUT", &format!("{RG}/{path}"), body).await;
        assert_eq!(response.status, 400, "{}", response.text);
        assert!(response.text.contains(reason), "{}", response.text);
    }
    for (labels, reason) in [
        (
            vec!["a".to_owned(); 51],
            "labels has 51 labels; expected at most 50",
        ),
        (
            vec![long(257)],
            "labels has a label of 257 characters at 0; expected at most 256",
        ),
    ] {
        let response = control
            .call("PATCH", &subscription, json!({"labels": labels}))
            .await;
        assert_eq!(response.status, 400, "{}", response.text);
        assert!(response.text.contains(reason), "{}", response.text);
    }
    let most = json!({"tags": many(50)});
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/topics/orders"), most)
            .await
            .status,
        201
    );
    assert_eq!(
        control
            .call(
                "PUT",
                &format!("{RG}/topics/long"),
                json!({"tags": {(long(512)): long(256)}})
            )
            .await
            .status,
        201
    );
    let labels = json!({"labels": vec![long(256); 50]});
    assert_eq!(
        control.call("PATCH", &subscription, labels).await.status,
        201
    );
}
