//! Event subscriptions of namespace topics over HTTP, against a registry in memory.

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, Response};
use crate::spec::fact;

fn place(name: &str) -> String {
    format!("{RG}/namespaces/plant/topics/heat/eventSubscriptions/{name}")
}

async fn control() -> ControlFixture {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let namespace = format!("{RG}/namespaces/plant");
    assert_eq!(
        control
            .call("PUT", &namespace, json!({"location": "local"}))
            .await
            .status,
        201
    );
    let topic = json!({"properties": {"eventRetentionInDays": 2}});
    assert_eq!(
        control
            .call("PUT", &format!("{namespace}/topics/heat"), topic)
            .await
            .status,
        201
    );
    control
}

fn hook() -> Value {
    json!({"endpointType": "WebHook", "properties": {
        "endpointUrl": "http://127.0.0.1:9/heat?code=secret",
        "deliveryAttributeMappings": [
            {"name": "Custom-Header-1", "type": "Static", "properties": {"value": "value1", "isSecret": false}},
            {"name": "Pass", "type": "Static", "properties": {"value": "hidden", "isSecret": true}},
        ],
    }})
}

fn push(more: &Value) -> Value {
    let mut push = json!({"destination": hook()});
    for (key, value) in more.as_object().into_iter().flatten() {
        push[key] = value.clone();
    }
    json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push", "push": push}}})
}

fn queue(queue: &Value) -> Value {
    json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue", "queue": queue}}})
}

fn letters() -> Value {
    json!({
        "deliveryRetryPeriodInDays": 2,
        "endpointType": "StorageBlob",
        "StorageBlob": {"blobContainerName": "data", "resourceId": "/subscriptions/0/storageAccounts/a"},
        "identity": {"type": "UserAssigned", "userAssignedIdentity": "/subscriptions/0/identities/i"},
    })
}

#[track_caller]
fn refused(response: &Response, target: &str, says: &str) {
    let error = response.json()["error"].clone();
    let is = (response.status, error["target"].as_str());
    assert_eq!(is, (400, Some(target)), "{error}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| message.contains(says)),
        "{error}"
    );
}

#[actix_web::test]
async fn without_a_delivery_configuration_clients_pull() {
    let control = control().await;
    let response = control
        .call("PUT", &place("plain"), json!({"properties": {}}))
        .await;
    assert_eq!(response.status, 201, "{}", response.text);
    let delivery = &response.json()["properties"]["deliveryConfiguration"];
    assert_eq!(delivery["deliveryMode"], "Queue", "{delivery}");
}

#[actix_web::test]
async fn a_push_subscription_is_returned_as_it_was_put_without_its_secrets() {
    let control = control().await;
    let mut body = push(&json!({
        "maxDeliveryCount": 3, "eventTimeToLive": "P1DT30M",
        "deadLetterDestinationWithResourceIdentity": letters(),
    }));
    body["properties"]["eventDeliverySchema"] = "CloudEventSchemaV1_0".into();
    body["properties"]["filtersConfiguration"] = json!({
        "includedEventTypes": ["hot"],
        "filters": [{"operatorType": "NumberGreaterThan", "key": "data.degrees", "value": 80}],
    });
    let response = control.call("PUT", &place("alarm"), body).await;
    assert_eq!(response.status, 201, "{}", response.text);
    let reported = response.json();
    assert_eq!(reported["id"], place("alarm"));
    assert_eq!(
        reported["type"],
        "Microsoft.EventGrid/namespaces/topics/eventSubscriptions"
    );
    assert!(
        !response.text.contains("code=secret") && !response.text.contains("hidden\""),
        "{reported}"
    );
    let properties = &reported["properties"];
    assert_eq!(properties["provisioningState"], "Succeeded");
    assert_eq!(
        properties["filtersConfiguration"]["includedEventTypes"],
        json!(["hot"])
    );
    assert_eq!(
        properties["filtersConfiguration"]["filters"][0]["operatorType"],
        "NumberGreaterThan"
    );
    let push = &properties["deliveryConfiguration"]["push"];
    assert_eq!(
        (&push["maxDeliveryCount"], &push["eventTimeToLive"]),
        (&json!(3), &json!("P1DT30M"))
    );
    assert_eq!(
        push["destination"]["properties"]["endpointBaseUrl"],
        "http://127.0.0.1:9/heat"
    );
    let shown_dead_letters = &push["deadLetterDestinationWithResourceIdentity"];
    assert_eq!(
        shown_dead_letters,
        &json!({
            "deliveryRetryPeriodInDays": 2, "identity": letters()["identity"],
            "deadLetterDestination": {"endpointType": "StorageBlob", "properties": {
                "resourceId": "/subscriptions/0/storageAccounts/a", "blobContainerName": "data"}},
        })
    );
    let url = control
        .call(
            "POST",
            &format!("{}/getFullUrl", place("alarm")),
            Value::Null,
        )
        .await
        .json();
    assert_eq!(url["endpointUrl"], "http://127.0.0.1:9/heat?code=secret");
    // Some of it is changed, and the rest stays, secrets too.
    let patch = json!({"properties": {"deliveryConfiguration": {"push": {"maxDeliveryCount": 4}}}});
    let patched = control.call("PATCH", &place("alarm"), patch).await;
    assert_eq!(
        (
            patched.status,
            &patched.json()["properties"]["deliveryConfiguration"]["push"]["eventTimeToLive"]
        ),
        (200, &json!("P1DT30M"))
    );
    let attributes = control
        .call(
            "POST",
            &format!("{}/getDeliveryAttributes", place("alarm")),
            Value::Null,
        )
        .await;
    assert!(attributes.text.contains("hidden"), "{}", attributes.text);
    let list = control.call("GET", &place(""), Value::Null).await.json();
    assert_eq!(list["value"].as_array().map(Vec::len), Some(1), "{list}");
    let elsewhere = control
        .call("GET", &format!("{RG}/eventSubscriptions"), Value::Null)
        .await
        .json();
    assert_eq!(
        elsewhere,
        json!({"value": []}),
        "its words are others than those of this list"
    );
}

#[actix_web::test]
async fn dead_letters_are_asked_for_as_the_documents_have_it_or_as_the_sdks_have_it() {
    let _rows = crate::spec::shows(&[
        "S001-003: Blob storage (Azure Blob Storage) is currently the only supported dead-letter \
         destination, so exactly one destination type exists.",
        "S001-100: The dead-letter retry schedule is fixed and cannot be configured by the user.",
        "S001-121: The object deadLetterDestinationWithResourceIdentity in the template has \
         exactly these properties in this order: deliveryRetryPeriodInDays, endpointType, \
         StorageBlob, identity.",
        "S001-124: The object StorageBlob in the template has exactly the properties \
         blobContainerName and resourceId, and its key begins with a capital S.",
        "S001-131: Dead-lettering can be enabled and configured on an existing event subscription.",
    ]);
    let control = control().await;
    let sdk = json!({"identity": {"type": "SystemAssigned"}, "deadLetterDestination": {
        "endpointType": "StorageBlob", "properties": {"resourceId": "/r", "blobContainerName": "data"}}});
    let key = "deadLetterDestinationWithResourceIdentity";
    let response = control
        .call("PUT", &place("one"), push(&json!({ key: sdk.clone() })))
        .await;
    assert_eq!(
        response.json()["properties"]["deliveryConfiguration"]["push"][key],
        sdk,
        "{}",
        response.text
    );
    // On one that is there, it can be asked for in the other form.
    let patch = json!({"properties": {"deliveryConfiguration": {"push": {key: letters()}}}});
    let response = control.call("PATCH", &place("one"), patch).await;
    let reported = &response.json()["properties"]["deliveryConfiguration"]["push"][key];
    let stored = &reported["deadLetterDestination"];
    assert_eq!(
        stored["properties"]["resourceId"],
        "/subscriptions/0/storageAccounts/a"
    );
    fact(
        "S001-125",
        &json!({"blobContainerName": stored["properties"]["blobContainerName"]}),
    );
    fact("S001-123", &json!({"endpointType": stored["endpointType"]}));
    fact(
        "S001-122",
        &json!({"deliveryRetryPeriodInDays": reported["deliveryRetryPeriodInDays"]}),
    );
    let at = |below: &str| format!("properties.deliveryConfiguration.push.{key}.{below}");
    for (change, below, says) in [
        (
            json!({"endpointType": "ServiceBus"}),
            "endpointType",
            "StorageBlob",
        ),
        (
            json!({"retryIntervals": ["PT1S"]}),
            "retryIntervals",
            "unknown field",
        ),
        (
            json!({"deliveryRetryPeriodInDays": 3}),
            "deliveryRetryPeriodInDays",
            "1 to 2",
        ),
        (
            json!({"StorageBlob": {"resourceId": "/r"}}),
            "StorageBlob.blobContainerName",
            "is missing",
        ),
        (
            json!({"StorageBlob": {"resourceId": "/r", "blobContainerName": "data", "folder": "f"}}),
            "StorageBlob.folder",
            "`blobContainerName`",
        ),
        (
            json!({"identity": {"type": "None"}}),
            "identity.type",
            "SystemAssigned",
        ),
    ] {
        let mut given = letters();
        for (name, value) in change.as_object().into_iter().flatten() {
            given[name] = value.clone();
        }
        refused(
            &control
                .call("PUT", &place("one"), push(&json!({ key: given })))
                .await,
            &at(below),
            says,
        );
    }
}

#[actix_web::test]
async fn an_event_is_kept_no_longer_than_the_retention_of_its_topic() {
    let control = control().await;
    let at = "properties.deliveryConfiguration.push.eventTimeToLive";
    for (given, says) in [
        ("P2DT1M", "PT1M to P2D"),
        ("PT0S", "PT1M to P2D"),
        ("PT90S", "whole minutes"),
        ("P1M", "without years and months"),
        ("1 day", "in ISO 8601"),
        ("soon", "in ISO 8601"),
    ] {
        refused(
            &control
                .call(
                    "PUT",
                    &place("alarm"),
                    push(&json!({"eventTimeToLive": given})),
                )
                .await,
            at,
            says,
        );
    }
    for (given, reported) in [
        ("P2D", "P2D"),
        ("PT36H", "P1DT12H"),
        ("PT120S", "PT2M"),
        ("P0DT1H", "PT1H"),
    ] {
        let response = control
            .call(
                "PUT",
                &place("alarm"),
                push(&json!({"eventTimeToLive": given})),
            )
            .await;
        assert_eq!(
            response.json()["properties"]["deliveryConfiguration"]["push"]["eventTimeToLive"],
            reported
        );
    }
    assert_eq!(
        control
            .call(
                "PUT",
                &place("alarm"),
                push(&json!({"eventTimeToLive": "P2D"}))
            )
            .await
            .status,
        201
    );
    let shorter = json!({"properties": {"eventRetentionInDays": 1}});
    let response = control
        .call(
            "PATCH",
            &format!("{RG}/namespaces/plant/topics/heat"),
            shorter,
        )
        .await;
    refused(
        &response,
        "properties.eventRetentionInDays",
        "of the event subscription alarm is 2880 minutes",
    );
}

#[actix_web::test]
async fn a_pull_subscription_has_a_lock_duration_and_keeps_its_delivery_mode() {
    let control = control().await;
    let response = control
        .call("PUT", &place("pulled"), queue(&json!({})))
        .await;
    assert_eq!(response.status, 201, "{}", response.text);
    assert_eq!(
        response.json()["properties"]["deliveryConfiguration"],
        json!({"deliveryMode": "Queue", "queue": {
            "receiveLockDurationInSeconds": 60, "maxDeliveryCount": 10, "eventTimeToLive": "P1D"}})
    );
    let at = |key: &str| format!("properties.deliveryConfiguration.{key}");
    for (body, key, says) in [
        (
            queue(&json!({"receiveLockDurationInSeconds": 301})),
            "queue.receiveLockDurationInSeconds",
            "60 to 300",
        ),
        (
            queue(&json!({"maxDeliveryCount": 11})),
            "queue.maxDeliveryCount",
            "1 to 10",
        ),
        (push(&json!({})), "deliveryMode", "expected Queue"),
        (
            json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push"}}}),
            "push",
            "is missing",
        ),
        (
            json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Pull"}}}),
            "deliveryMode",
            "Queue or Push",
        ),
    ] {
        refused(
            &control.call("PUT", &place("pulled"), body).await,
            &at(key),
            says,
        );
    }
    let patch = json!({"properties": {"deliveryConfiguration": {"queue": {"receiveLockDurationInSeconds": 90}}}});
    let patched = control.call("PATCH", &place("pulled"), patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    let reported = control
        .call("GET", &place("pulled"), Value::Null)
        .await
        .json();
    assert_eq!(
        reported["properties"]["deliveryConfiguration"]["queue"]["receiveLockDurationInSeconds"],
        90
    );
}

#[actix_web::test]
async fn an_endpoint_may_be_called_in_the_name_of_an_identity() {
    let control = control().await;
    let at = "properties.deliveryConfiguration.push.deliveryWithResourceIdentity";
    let identified = |kind: &str| json!({"identity": {"type": kind}, "destination": hook()});
    for (kind, below, says) in [
        ("UserAssigned", "identity.type", "expected SystemAssigned"),
        (
            "SystemAssigned",
            "destination.properties.azureActiveDirectoryApplicationIdOrUri",
            "is missing",
        ),
    ] {
        let body = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push",
            "push": {"deliveryWithResourceIdentity": identified(kind)}}}});
        refused(
            &control.call("PUT", &place("alarm"), body).await,
            &format!("{at}.{below}"),
            says,
        );
    }
    let both = push_with(&identified("SystemAssigned"));
    refused(
        &control.call("PUT", &place("alarm"), both).await,
        at,
        "and destination are both given",
    );
}

/// The delivery plan refuses what the check of the body does not know, such as a proxy.
#[actix_web::test]
async fn a_refused_plan_names_the_property_as_the_body_does() {
    let control = control().await;
    let topic = format!("{RG}/topics/orders");
    let created = control
        .call("PUT", &topic, json!({"location": "local"}))
        .await;
    assert_eq!(created.status, 201);
    let own = format!("{topic}/eventSubscriptions/billing");
    let proxied = json!({"endpointType": "WebHook", "properties": {
        "endpointUrl": "http://127.0.0.1:9/", "proxy": "elsewhere"}});
    let destination = "destination.properties.proxy";
    let says = "is \"elsewhere\", which does not exist";
    let put = json!({"properties": {"destination": proxied}});
    let response = control.call("PUT", &own, put).await;
    refused(&response, &format!("properties.{destination}"), says);
    let plain = json!({"properties": {"destination": hook()}});
    assert_eq!(control.call("PUT", &own, plain).await.status, 201);
    let patch = json!({"destination": proxied});
    refused(&control.call("PATCH", &own, patch).await, destination, says);
    let push = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push",
        "push": {"destination": proxied}}}});
    let at = format!("properties.deliveryConfiguration.push.{destination}");
    refused(&control.call("PUT", &place("alarm"), push).await, &at, says);
}

fn push_with(identified: &Value) -> Value {
    push(&json!({ "deliveryWithResourceIdentity": identified }))
}

#[actix_web::test]
async fn a_put_with_what_if_reports_its_changes_and_makes_none() {
    let control = control().await;
    let namespace = format!("{RG}/namespaces/plant");
    for (path, body, exists, at) in [
        (
            place("alarm"),
            push(&json!({})),
            false,
            "deliveryConfiguration.deliveryMode",
        ),
        (
            format!("{namespace}/topics/heat"),
            json!({}),
            true,
            "properties.eventRetentionInDays",
        ),
        (
            namespace.clone(),
            json!({"location": "other"}),
            true,
            "location",
        ),
    ] {
        let reported = control
            .call("PUT", &format!("{path}?whatIf=true"), body)
            .await
            .json();
        assert_eq!(reported["exists"], exists, "{reported}");
        assert!(
            reported["changes"].to_string().contains(at)
                && !reported.to_string().contains("code=secret"),
            "{reported}"
        );
    }
    assert_eq!(
        control
            .call("GET", &place("alarm"), Value::Null)
            .await
            .status,
        404
    );
    assert_eq!(
        control.call("GET", &namespace, Value::Null).await.json()["location"],
        "local"
    );
}

#[actix_web::test]
async fn labels_are_stored_shown_where_there_are_any_and_kept_by_a_patch() {
    let control = control().await;
    let mut body = push(&json!({}));
    let plain = control.call("PUT", &place("plain"), body.clone()).await;
    assert!(plain.json()["properties"]["labels"].is_null());
    body["properties"]["labels"] = json!(["team=shop"]);
    let made = control.call("PUT", &place("labelled"), body).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let patch = json!({"properties": {"expirationTimeUtc": "2040-01-01T00:00:00Z"}});
    let changed = control.call("PATCH", &place("labelled"), patch).await;
    assert_eq!(changed.status, 200, "{}", changed.json());
    let response = control.call("GET", &place("labelled"), json!(null)).await;
    assert_eq!(
        response.json()["properties"]["labels"],
        json!(["team=shop"])
    );
}
