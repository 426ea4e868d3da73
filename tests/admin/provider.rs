//! The views of the resource provider and of event types.

use expect_test::expect;
use gridhook::admin::ChaosMode;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};

fn names(list: &Value) -> Vec<String> {
    list["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[actix_web::test]
async fn resource_types_that_are_not_supported_have_empty_lists_and_are_refused_by_name() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let provider = "/providers/Microsoft.EventGrid";
    let events = format!("{provider}/topicTypes/microsoft.storage.storageaccounts/eventTypes");
    let events = control.call("GET", &events, Value::Null).await;
    assert_eq!(names(&events.json()), ["Microsoft.Storage.BlobCreated"]);
    assert_eq!(
        control
            .call("GET", &format!("{provider}/verifiedPartners"), Value::Null)
            .await
            .brief(),
        r#"200 {"value":[]}"#
    );
    assert_eq!(
        control
            .call(
                "GET",
                &format!("{provider}/verifiedPartners/acme"),
                Value::Null
            )
            .await
            .status,
        404
    );
    for resource_type in [
        "systemTopics",
        "partnerTopics",
        "partnerNamespaces",
        "partnerRegistrations",
        "partnerConfigurations",
        "partnerDestinations",
    ] {
        for place in [format!("/subscriptions/S-1{provider}"), RG.to_owned()] {
            let list = control
                .call("GET", &format!("{place}/{resource_type}"), Value::Null)
                .await;
            assert_eq!(
                list.brief(),
                r#"200 {"value":[]}"#,
                "{place}/{resource_type}"
            );
        }
        let one = format!("{RG}/{}/acme", resource_type.to_uppercase());
        let missing = control.call("GET", &one, Value::Null).await;
        assert_eq!(
            (missing.status, &missing.json()["error"]["code"]),
            (404, &json!("ResourceNotFound")),
            "{one}"
        );
        let reason = if resource_type == "systemTopics" {
            "services of Azure publish no events here"
        } else {
            "there are no partners"
        };
        let response = control
            .call("PUT", &one, json!({"location": "global"}))
            .await;
        assert_eq!(
            response.json()["error"]["message"],
            format!(
                "type is \"Microsoft.EventGrid/{resource_type}\", which is not supported: {reason}; \
                 expected a topic, a domain, a namespace or an event subscription."
            ),
        );
        assert_eq!(response.status, 400);
        assert_eq!(control.call("DELETE", &one, Value::Null).await.status, 204);
    }
}

#[actix_web::test]
async fn resources_that_only_azure_has_are_refused_with_the_reason() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let broker = "there is no MQTT broker";
    let address = "the address that the server listens on decides who reaches it";
    let system = "a system topic has the events of a service of Azure, which publishes none here";
    let partners = "there are no partners";
    for (path, reason) in [
        ("namespaces/plant/clients/press", broker),
        ("namespaces/plant/topicSpaces/presses", broker),
        ("Namespaces/plant/CACertificates/root", broker),
        ("topics/orders/privateEndpointConnections/one", address),
        ("systemTopics/blobs/eventSubscriptions/all", system),
        ("partnerNamespaces/acme/channels/one", partners),
    ] {
        let path = format!("{RG}/{path}");
        let response = control.call("PUT", &path, json!({"properties": {}})).await;
        assert_eq!(response.status, 404, "{path}");
        assert_eq!(
            response.json()["error"]["message"],
            format!("'{path}' is not supported: {reason}."),
        );
    }
    let path = format!("{RG}/topics/orders/colours/red");
    let message = control.call("GET", &path, Value::Null).await.json()["error"]["message"].clone();
    assert_eq!(
        message,
        format!("No HTTP resource was found that matches the request URI '{path}'.")
    );
}

#[actix_web::test]
async fn the_provider_lists_its_operations_and_types_of_topics() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let provider = "/providers/Microsoft.EventGrid";
    let operations = control
        .call("GET", &format!("{provider}/operations"), Value::Null)
        .await
        .json();
    let names_of_operations = names(&operations);
    assert!(names_of_operations.contains(&"Microsoft.EventGrid/domains/topics/write".to_owned()));
    assert!(names_of_operations.contains(&"Microsoft.EventGrid/events/send/action".to_owned()));
    let types = control
        .call("GET", &format!("{provider}/topicTypes"), Value::Null)
        .await
        .json();
    assert_eq!(
        names(&types),
        [
            "Microsoft.EventGrid.Topics",
            "Microsoft.EventGrid.Domains",
            "Microsoft.Storage.StorageAccounts"
        ]
    );
    let mut lines = Vec::new();
    for path in [
        "topicTypes/microsoft.eventgrid.domains",
        "topicTypes/none",
        "topicTypes/Microsoft.EventGrid.Topics/eventTypes",
    ] {
        lines.push(
            control
                .call("GET", &format!("{provider}/{path}"), Value::Null)
                .await
                .brief(),
        );
    }
    lines.push(
        control
            .call("PUT", &format!("{provider}/operations"), Value::Null)
            .await
            .brief(),
    );
    expect![[r#"
        200 {"id":"providers/Microsoft.EventGrid/topicTypes/Microsoft.EventGrid.Domains","name":"Microsoft.EventGrid.Domains","type":"Microsoft.EventGrid/topicTypes","properties":{"provider":"Microsoft.EventGrid","resourceType":"domains","displayName":"Event Grid Domains","description":"Custom events, published to the topics of a domain.","resourceRegionType":"RegionalResource","provisioningState":"Succeeded","sourceResourceFormat":"/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/Microsoft.EventGrid/domains/{resourceName}","supportedScopesForSource":["Resource"]}}
        404 {"error":{"code":"ResourceNotFound","message":"There is no topic type 'none'; expected Microsoft.EventGrid.Topics and Microsoft.EventGrid.Domains and Microsoft.Storage.StorageAccounts.","target":null,"details":[]}}
        200 {"value":[]}
        405 {"error":{"code":"MethodNotAllowed","message":"The method PUT is not allowed here; allowed: GET, HEAD.","target":null,"details":[]}}"#]].assert_eq(&lines.join("\n"));
}

#[actix_web::test]
async fn a_topic_lists_the_event_types_that_it_declares() {
    let control = ControlFixture::new(ChaosMode::Disabled).with_topic().await;
    let topic = format!("{RG}/topics/orders");
    let body = json!({"properties": {"eventTypeInfo": {"kind": "Inline", "inlineEventTypes": {
        "Order.Placed": {"displayName": "Placed", "description": "an order", "dataSchemaUrl": "https://schemas"},
        "Order.Paid": {}}}}});
    assert_eq!(control.call("PUT", &topic, body).await.status, 201);
    let types = control
        .call(
            "GET",
            &format!("{topic}/providers/Microsoft.EventGrid/eventTypes"),
            Value::Null,
        )
        .await;
    expect![[r#"200 {"value":[{"id":"/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders/providers/Microsoft.EventGrid/eventTypes/Order.Paid","name":"Order.Paid","type":"Microsoft.EventGrid/topicTypes/eventTypes","properties":{"displayName":"Order.Paid","isInDefaultSet":true}},{"id":"/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders/providers/Microsoft.EventGrid/eventTypes/Order.Placed","name":"Order.Placed","type":"Microsoft.EventGrid/topicTypes/eventTypes","properties":{"displayName":"Placed","description":"an order","schemaUrl":"https://schemas","isInDefaultSet":true}}]}"#]].assert_eq(&types.brief());
    let connections = control
        .call(
            "GET",
            &format!("{topic}/privateEndpointConnections"),
            Value::Null,
        )
        .await;
    assert_eq!(connections.brief(), r#"200 {"value":[]}"#);
}
