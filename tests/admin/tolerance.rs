//! Properties that Azure accepts in bodies besides the documented form. Templates and Terraform
//! send them.

use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};

async fn put(control: &ControlFixture, path: &str, body: Value) -> Value {
    let response = control.call("PUT", &format!("{RG}/{path}"), body).await;
    assert_eq!(response.status, 201, "{path}: {}", response.text);
    response.json()
}

#[actix_web::test]
async fn a_body_may_begin_with_a_byte_order_mark() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let body = "\u{feff}{\"location\": \"westeurope\"}".as_bytes();
    let response = control
        .put_bytes(&format!("{RG}/topics/orders"), body)
        .await;
    assert_eq!(
        response.json()["location"],
        "westeurope",
        "{}",
        response.text
    );
}

#[actix_web::test]
async fn empty_text_is_no_value_for_optional_properties() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let topic = json!({"location": "", "properties": {"inputSchema": "", "publicNetworkAccess": "",
        "encryption": null, "platformCapabilities": {"confidentialCompute": {"mode": "Disabled"}},
        "minimumTlsVersionAllowed": "", "dataResidencyBoundary": "", "duplicateDetectionHistoryTimeWindow": ""}});
    let topic = put(&control, "topics/orders", topic).await;
    assert_eq!(topic["location"], "local");
    assert_eq!(topic["properties"]["inputSchema"], "EventGridSchema");
    assert_eq!(topic["properties"]["publicNetworkAccess"], "Enabled");
    let mut body = hook();
    body["properties"]["expirationTimeUtc"] = "".into();
    body["properties"]["eventDeliverySchema"] = "".into();
    body["properties"]["destination"]["properties"]["azureActiveDirectoryTenantId"] = "".into();
    body["properties"]["destination"]["properties"]["azureActiveDirectoryApplicationIdOrUri"] =
        "".into();
    let subscription = put(&control, "topics/orders/eventSubscriptions/all", body).await;
    assert_eq!(subscription["properties"]["expirationTimeUtc"], Value::Null);
    assert_eq!(
        subscription["properties"]["eventDeliverySchema"],
        "EventGridSchema"
    );
    put(
        &control,
        "namespaces/plant",
        json!({"location": "", "properties": {"publicNetworkAccess": ""}}),
    )
    .await;
    put(
        &control,
        "namespaces/plant/topics/orders",
        json!({"properties": {"inputSchema": ""}}),
    )
    .await;
    let queue = json!({"properties": {"expirationTimeUtc": "", "deliveryConfiguration": {
        "deliveryMode": "Queue", "queue": {"eventTimeToLive": ""}}}});
    put(
        &control,
        "namespaces/plant/topics/orders/eventSubscriptions/pull",
        queue,
    )
    .await;
    // A required property is not optional because it is empty.
    let empty = json!({"properties": {"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": ""}}}});
    let response = control
        .call(
            "PUT",
            &format!("{RG}/topics/orders/eventSubscriptions/other"),
            empty,
        )
        .await;
    assert_eq!(response.status, 400, "{}", response.text);
}

#[actix_web::test]
async fn what_azure_ignores_in_event_subscriptions_is_ignored() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    put(
        &control,
        "topics/orders",
        json!({"properties": {"name": "orders"}}),
    )
    .await;
    put(&control, "namespaces/plant", json!({})).await;
    put(
        &control,
        "namespaces/plant/topics/orders",
        json!({"properties": {"name": "orders"}}),
    )
    .await;
    let queue = json!({"location": "westus", "tags": {}, "properties": {"name": "pull", "deliveryConfiguration": {
        "deliveryMode": "Queue"}}});
    put(
        &control,
        "namespaces/plant/topics/orders/eventSubscriptions/pull",
        queue,
    )
    .await;
    let mut body = hook();
    body["location"] = "westus".into();
    body["tags"] = json!({"team": "shop"});
    body["properties"]["name"] = "another".into();
    body["properties"]["filter"] = json!({"subjectIsCaseSensitive": true});
    let subscription = put(&control, "topics/orders/eventSubscriptions/all", body).await;
    assert_eq!(
        (&subscription["name"], &subscription["tags"]),
        (&json!("all"), &Value::Null)
    );
    let path = format!("{RG}/topics/orders/eventSubscriptions/all");
    let patched = control
        .call(
            "PATCH",
            &path,
            json!({"tags": {}, "location": "x", "labels": ["one"]}),
        )
        .await;
    assert_eq!(
        (patched.status, &patched.json()["properties"]["labels"]),
        (201, &json!(["one"]))
    );
    // Other unknown keys are still named.
    let response = control.call("PATCH", &path, json!({"sku": {}})).await;
    assert!(
        response.status == 400 && response.text.contains("sku"),
        "{}",
        response.text
    );
}

#[actix_web::test]
async fn booleans_as_text_and_former_values_are_read_as_azure_reads_them() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let body = json!({"identity": {"type": "SystemAssigned,UserAssigned"},
        "properties": {"inputSchema": "CloudEventV01Schema", "disableLocalAuth": "True"}});
    let topic = put(&control, "topics/orders", body).await;
    assert_eq!(topic["properties"]["inputSchema"], "CloudEventSchemaV1_0");
    assert_eq!(topic["properties"]["disableLocalAuth"], true);
    assert_eq!(topic["identity"]["type"], "SystemAssigned, UserAssigned");
    for (number, schema) in ["CloudEventV01Schema", "inputeventschema"]
        .into_iter()
        .enumerate()
    {
        let mut body = hook();
        body["properties"]["eventDeliverySchema"] = schema.into();
        body["properties"]["filter"] = json!({"isSubjectCaseSensitive": "true"});
        let path = format!("topics/orders/eventSubscriptions/s{number}-{number}");
        let properties = put(&control, &path, body).await["properties"].clone();
        assert_eq!(
            properties["eventDeliverySchema"], "CloudEventSchemaV1_0",
            "{schema}"
        );
        assert_eq!(properties["filter"]["isSubjectCaseSensitive"], true);
    }
    let other = json!({"properties": {"disableLocalAuth": "yes"}});
    assert_eq!(
        control
            .call("PUT", &format!("{RG}/topics/bills"), other)
            .await
            .status,
        400
    );
}

#[actix_web::test]
async fn the_type_and_the_secrecy_of_a_header_are_read_as_azure_reads_them() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let mut body = hook();
    body["properties"]["destination"]["properties"]["deliveryAttributeMappings"] = json!([
        {"name": "x-key", "type": "static", "properties": {"value": "secret", "isSecret": "True"}}]);
    let path = "topics/orders/eventSubscriptions/all";
    let mapping = |subscription: &Value| {
        subscription["properties"]["destination"]["properties"]["deliveryAttributeMappings"][0]
            .clone()
    };
    let shown = json!({"name": "x-key", "type": "Static", "properties": {"value": "Hidden", "isSecret": true}});
    assert_eq!(mapping(&put(&control, path, body.clone()).await), shown);
    // The secret is kept if it is left out.
    body["properties"]["destination"]["properties"]["deliveryAttributeMappings"][0]["properties"] =
        json!({"isSecret": "true"});
    body["properties"]["filter"] = json!({"enableAdvancedFilteringOnArrays": "TRUE"});
    let subscription = put(&control, path, body).await;
    assert_eq!(mapping(&subscription), shown);
    assert_eq!(
        subscription["properties"]["filter"]["enableAdvancedFilteringOnArrays"],
        true
    );
}

#[actix_web::test]
async fn a_patch_replaces_all_tags_and_merges_everything_else() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    for resource in ["topics/orders", "domains/shop", "namespaces/plant"] {
        let body = json!({"tags": {"team": "a", "cost": "7"}, "properties": {"minimumTlsVersionAllowed": "1.1"}});
        put(&control, resource, body).await;
        let path = format!("{RG}/{resource}");
        let tags = async |change: Value| {
            let patched = control.call("PATCH", &path, change).await;
            assert!([200, 201].contains(&patched.status), "{}", patched.text);
            patched.json()["tags"].clone()
        };
        assert_eq!(
            tags(json!({"properties": {"publicNetworkAccess": "Disabled"}})).await,
            json!({"team": "a", "cost": "7"})
        );
        assert_eq!(
            tags(json!({"tags": {"team": "b"}})).await,
            json!({"team": "b"}),
            "{resource}"
        );
        let shown = control.call("GET", &path, Value::Null).await.json();
        assert_eq!(shown["properties"]["publicNetworkAccess"], "Disabled");
        assert_eq!(shown["properties"]["minimumTlsVersionAllowed"], "1.1");
        assert_eq!(tags(json!({"tags": {}})).await, json!({}));
        assert_eq!(tags(json!({"tags": {"x": "1"}})).await, json!({"x": "1"}));
        assert_eq!(tags(json!({"tags": null})).await, json!({}));
    }
}
