//! Enumerations are compared without case, as Azure does, and returned in their canonical case.

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};

/// `value` with the strings of these keys in capitals.
fn in_capitals(value: &Value, keys: &[&str]) -> Value {
    fn walk(value: &mut Value, keys: &[&str]) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    match value {
                        Value::String(text) if keys.contains(&key.as_str()) => {
                            *text = text.to_uppercase()
                        }
                        value => walk(value, keys),
                    }
                }
            }
            Value::Array(elements) => elements.iter_mut().for_each(|value| walk(value, keys)),
            _ => {}
        }
    }
    let mut value = value.clone();
    walk(&mut value, keys);
    value
}

/// Puts `body` in capitals, and looks for each value of `body` in the response.
async fn check(control: &ControlFixture, path: &str, body: &Value, keys: &[&str]) {
    let shouted = in_capitals(body, keys);
    assert_ne!(shouted, *body);
    let response = control.call("PUT", &format!("{RG}/{path}"), shouted).await;
    assert!(
        [200, 201].contains(&response.status),
        "{path}: {}",
        response.text
    );
    let shown = control
        .call("GET", &format!("{RG}/{path}"), Value::Null)
        .await
        .json();
    contains(path, &shown, body);
}

fn contains(at: &str, shown: &Value, body: &Value) {
    match body {
        Value::Object(members) => {
            for (key, value) in members {
                contains(&format!("{at}.{key}"), &shown[key], value);
            }
        }
        Value::Array(elements) => {
            for (place, value) in elements.iter().enumerate() {
                contains(&format!("{at}[{place}]"), &shown[place], value);
            }
        }
        value if at.ends_with(".endpointUrl") => assert!(value.is_string()),
        value => assert_eq!(shown, value, "{at}"),
    }
}

#[actix_web::test]
async fn enumerations_are_compared_without_case_and_answered_in_their_own() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    check_topic(&control).await;

    check_subscription(&control).await;

    check_namespace(&control).await;
    let key = json!({"keyName": "KEY2"});
    assert_eq!(
        control
            .call("POST", &format!("{RG}/topics/orders/regenerateKey"), key)
            .await
            .status,
        200
    );
}

async fn check_topic(control: &ControlFixture) {
    let topic = json!({
        "location": "here",
        "sku": {"name": "Basic"},
        "kind": "AzureArc",
        "identity": {"type": "SystemAssigned"},
        "tags": {"kind": "as It Is"},
        "properties": {
            "inputSchema": "CustomEventSchema",
            "publicNetworkAccess": "Enabled",
            "inboundIpRules": [{"ipMask": "10.0.0.0/8", "action": "Allow"}],
            "dataResidencyBoundary": "WithinRegion",
            "eventTypeInfo": {"kind": "Inline"},
            "inputSchemaMapping": {
                "inputSchemaMappingType": "Json",
                "properties": {
                    "eventType": {"sourceField": "type", "defaultValue": ""},
                    "subject": {"defaultValue": ""},
                },
            },
        },
    });
    let keys = [
        "inputSchema",
        "publicNetworkAccess",
        "action",
        "dataResidencyBoundary",
        "inputSchemaMappingType",
    ];
    check(control, "topics/custom", &topic, &keys).await;
    // These keys are of tags, too, which stay as they are.
    let mut shouted = topic.clone();
    for at in [
        "/sku/name",
        "/kind",
        "/identity/type",
        "/properties/eventTypeInfo/kind",
    ] {
        let value = shouted.pointer_mut(at).expect("it is there");
        *value = value.as_str().expect("a string").to_lowercase().into();
    }
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/topics/custom"), shouted)
            .await
            .status,
        201
    );
    let shown = control
        .call("GET", &format!("{RG}/topics/custom"), Value::Null)
        .await
        .json();
    contains("topics/custom", &shown, &topic);
}

async fn check_subscription(control: &ControlFixture) {
    let orders = format!("{RG}/topics/orders");
    assert_eq!(control.call("PUT", &orders, json!({})).await.status, 201);
    let subscription = json!({"properties": {
        "destination": {"endpointType": "WebHook", "properties": {
            "endpointUrl": "http://127.0.0.1:9/",
            "deliveryAttributeMappings": [
                {"name": "X-A", "type": "Static", "properties": {"value": "Static", "isSecret": false}},
                {"name": "X-B", "type": "Dynamic", "properties": {"sourceField": "data.x"}},
            ],
        }},
        "eventDeliverySchema": "CloudEventSchemaV1_0",
        "filter": {"advancedFilters": [
            {"operatorType": "StringContains", "key": "data.operatorType", "values": ["StringContains"]},
            {"operatorType": "IsNotNull", "key": "data.x"},
        ]},
        "deadLetterDestination": {"endpointType": "StorageBlob", "properties": {
            "resourceId": "/subscriptions/S/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/a",
            "blobContainerName": "letters",
        }},
    }});
    let keys = [
        "endpointType",
        "type",
        "eventDeliverySchema",
        "operatorType",
    ];
    check(
        control,
        "topics/orders/eventSubscriptions/billing",
        &subscription,
        &keys,
    )
    .await;
    let path = format!("{RG}/topics/orders/eventSubscriptions/billing");
    let patch = json!({"eventDeliverySchema": "eventgridSCHEMA"});
    assert_eq!(control.call("PATCH", &path, patch).await.status, 201);
    let shown = control.call("GET", &path, Value::Null).await.json();
    assert_eq!(
        shown["properties"]["eventDeliverySchema"],
        "EventGridSchema"
    );
}

async fn check_namespace(control: &ControlFixture) {
    let namespace = json!({
        "sku": {"name": "Standard"},
        "identity": {"type": "None"},
        "properties": {
            "publicNetworkAccess": "Enabled",
            "inboundIpRules": [{"ipMask": "10.0.0.0/8", "action": "Allow"}],
        },
    });
    check(
        control,
        "namespaces/plant",
        &namespace,
        &["name", "type", "publicNetworkAccess", "action"],
    )
    .await;
    let topic =
        json!({"properties": {"publisherType": "Custom", "inputSchema": "CloudEventSchemaV1_0"}});
    check(
        control,
        "namespaces/plant/topics/heat",
        &topic,
        &["publisherType", "inputSchema"],
    )
    .await;
    let queue = json!({"properties": {
        "deliveryConfiguration": {"deliveryMode": "Queue"},
        "filtersConfiguration": {"filters": [{"operatorType": "BoolEquals", "key": "data.on", "value": true}]},
    }});
    let keys = ["deliveryMode", "operatorType"];
    check(
        control,
        "namespaces/plant/topics/heat/eventSubscriptions/work",
        &queue,
        &keys,
    )
    .await;
}
