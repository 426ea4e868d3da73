//! Commands read whole responses: a response that is read into its type and written again is the
//! same JSON.

use gridhook::{
    admin::{
        ChaosMode,
        model::subscription::{self, PathForm, SubscriptionView, subscription_view},
    },
    api::{
        account::{AzureSubscription, Location, Provider, ResourceGroup, Tenant},
        namespace::{Namespace, NamespaceTopic},
        provider::{EventType, ProviderOperation, TopicType},
        resource::{ErrorResponse, Page},
        status::{SubscriptionStatusView, TopicStatusView},
        subscription::{AnySubscriptionProperties, SubscriptionProperties},
        topic::{DeclaredEventType, DomainTopic, Topic},
    },
    event::{Name, Schema},
    record::topic::{NamespaceMembership, TopicRecord},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    control::{ControlFixture, RG},
    ranges, topic_record,
};

async fn put(control: &ControlFixture, path: &str, body: Value) {
    let response = control.call("PUT", path, body).await;
    assert_eq!(response.status, 201, "{path}: {}", response.text);
}

/// Reads the response to a GET, and checks that no field of the server is unknown to the type.
async fn whole<T: DeserializeOwned + Serialize>(control: &ControlFixture, path: &str) -> T {
    let response = control.call("GET", path, Value::Null).await;
    let read: T = serde_json::from_str(&response.text)
        .unwrap_or_else(|error| panic!("{path}: {error}: {}", response.text));
    assert_eq!(
        serde_json::to_value(&read).expect("JSON"),
        response.json(),
        "{path}"
    );
    read
}

/// A list with at least one element, each of them whole.
async fn whole_list<T: DeserializeOwned + Serialize>(control: &ControlFixture, path: &str) {
    let Page { value, .. } = whole::<Page<T>>(control, path).await;
    assert!(!value.is_empty(), "{path}");
}

fn letters() -> Value {
    json!({"endpointType": "StorageBlob", "properties": {"resourceId": "/subscriptions/0/storageAccounts/a", "blobContainerName": "data"}})
}

fn webhook() -> Value {
    json!({"endpointType": "WebHook", "properties": {
        "endpointUrl": "http://127.0.0.1:9000/hook?code=secret",
        "maxEventsPerBatch": 10,
        "preferredBatchSizeInKilobytes": 64,
        "maxRequestsPerSecond": 20,
        "responseTimeoutInSeconds": 5,
        "deliveryAttributeMappings": [
            {"name": "x-key", "type": "Static", "properties": {"value": "secret", "isSecret": true}},
            {"name": "x-id", "type": "Dynamic", "properties": {"sourceField": "data.id"}},
        ],
    }})
}

fn queue() -> Value {
    json!({"endpointType": "StorageQueue", "properties": {"resourceId": "/subscriptions/0/storageAccounts/a", "queueName": "work"}})
}

/// The type of the destination of a subscription, in any of its forms.
fn endpoint_type(view: SubscriptionView) -> Option<String> {
    let properties = SubscriptionProperties::try_from(view.properties).expect("it is translated");
    let destination = properties.any_destination();
    destination.map(|destination| destination.endpoint_type.clone())
}

#[actix_web::test]
async fn a_topic_and_what_belongs_to_it_are_read_whole() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let topic = format!("{RG}/topics/orders");
    let body = json!({
        "tags": {"a": "b"}, "sku": {"name": "Premium"}, "kind": "AzureArc",
        "extendedLocation": {"type": "CustomLocation", "name": "here"},
        "identity": {"type": "SystemAssigned"},
        "properties": {
            "inboundIpRules": [{"ipMask": "10.0.0.0/8", "action": "Allow"}], "disableLocalAuth": false,
            "duplicateDetectionHistoryTimeWindow": "P1DT90S", "schemaValidation": "warn",
            "dataResidencyBoundary": "WithinRegion", "minimumTlsVersionAllowed": "1.2",
        },
    });
    put(&control, &topic, body).await;
    let view: Topic = whole(&control, &topic).await;
    assert_eq!(
        view.properties
            .and_then(|properties| properties.duplicate_detection_history_time_window)
            .as_deref(),
        Some("P1DT1M30S")
    );
    whole_list::<Topic>(&control, &format!("{RG}/topics")).await;
    let event_type = json!({"properties": {"description": "d", "versions": {"1": {"schema": {"type": "object"}}}}});
    put(&control, &format!("{topic}/eventTypes/A"), event_type).await;
    whole::<DeclaredEventType>(&control, &format!("{topic}/eventTypes/A")).await;
    whole_list::<DeclaredEventType>(&control, &format!("{topic}/eventTypes")).await;
    whole_list::<EventType>(
        &control,
        &format!("{topic}/providers/Microsoft.EventGrid/eventTypes"),
    )
    .await;

    let path = format!("{topic}/eventSubscriptions/billing");
    let body = json!({"properties": {
        "destination": webhook(),
        "filter": {
            "subjectBeginsWith": "/a", "subjectEndsWith": "z", "includedEventTypes": ["A"],
            "advancedFilters": [{"operatorType": "IsNotNull", "key": "data.a"}],
            "enableAdvancedFilteringOnArrays": true,
        },
        "transform": {"method": "PUT"},
        "retryPolicy": {"maxDeliveryAttempts": 3, "eventTimeToLiveInMinutes": 7, "schedule": ["10s", "20s"]},
        "deadLetterDestination": letters(),
        "deadLetterInProbation": true,
        "onGone": "disable",
        "labels": ["l"],
        "expirationTimeUtc": "2040-01-01T00:00:00Z",
        "ordering": {"key": "subject", "onFailure": "block"},
        "startsFrom": "2020-01-01T00:00:00Z",
    }});
    put(&control, &path, body).await;
    assert_eq!(
        endpoint_type(whole(&control, &path).await).as_deref(),
        Some("WebHook")
    );
    whole_list::<SubscriptionView>(&control, &format!("{topic}/eventSubscriptions")).await;
    let identified =
        json!({"identity": {"type": "SystemAssigned"}, "deadLetterDestination": letters()});
    put(
        &control,
        &path,
        json!({"properties": {"destination": webhook(), "deadLetterWithResourceIdentity": identified}}),
    )
    .await;
    whole::<SubscriptionView>(&control, &path).await;

    whole::<SubscriptionStatusView>(&control, &format!("{path}/status")).await;
    whole::<TopicStatusView>(&control, &format!("{topic}/status")).await;
    whole::<gridhook::api::ledger::LedgerPageView>(&control, &format!("{path}/ledger")).await;
    whole::<gridhook::api::trace::TraceView>(&control, &format!("{topic}/trace?id=none")).await;
    whole::<gridhook::api::supervision::SupervisionReport>(&control, "/supervision").await;
    whole::<gridhook::api::top::TopReport>(&control, "/top").await;
    whole::<gridhook::api::clock::ClockView>(&control, "/clock").await;
    whole::<gridhook::api::health::Readiness>(&control, "/readyz").await;
    whole::<ErrorResponse>(&control, &format!("{RG}/topics/none")).await;
}

#[actix_web::test]
async fn a_domain_and_its_topics_are_read_whole() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let domain = format!("{RG}/domains/shops");
    put(
        &control,
        &domain,
        json!({"properties": {"autoCreateTopicWithFirstSubscription": false}}),
    )
    .await;
    whole::<Topic>(&control, &domain).await;
    put(&control, &format!("{domain}/topics/berlin"), json!({})).await;
    whole::<DomainTopic>(&control, &format!("{domain}/topics/berlin")).await;
    whole_list::<DomainTopic>(&control, &format!("{domain}/topics")).await;
}

#[actix_web::test]
async fn a_namespace_its_topics_and_their_subscriptions_are_read_whole() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let namespace = format!("{RG}/namespaces/plant");
    let body = json!({
        "location": "local", "tags": {"a": "b"}, "identity": {"type": "SystemAssigned"},
        "properties": {"isZoneRedundant": true, "minimumTlsVersionAllowed": "1.2",
            "inboundIpRules": [{"ipMask": "10.0.0.0/8"}]},
    });
    put(&control, &namespace, body).await;
    whole::<Namespace>(&control, &namespace).await;
    whole_list::<Namespace>(&control, &format!("{RG}/namespaces")).await;
    let topic = format!("{namespace}/topics/heat");
    let body = json!({"properties": {"eventRetentionInDays": 2, "schemaValidation": "warn",
        "duplicateDetectionHistoryTimeWindow": "PT1M"}});
    put(&control, &topic, body).await;
    let view: NamespaceTopic = whole(&control, &topic).await;
    let properties = view.properties.expect("properties");
    assert_eq!(properties.event_retention_in_days, Some(2));
    whole_list::<NamespaceTopic>(&control, &format!("{namespace}/topics")).await;

    let with_letters = json!({"deadLetterDestination": letters()});
    for (name, mode, part) in [
        ("push", "Push", json!({"push": {"destination": webhook()}})),
        (
            "pull",
            "Queue",
            json!({"queue": {"receiveLockDurationInSeconds": 60}}),
        ),
    ] {
        let mut delivery = part;
        for terms in delivery.as_object_mut().expect("one part").values_mut() {
            terms["maxDeliveryCount"] = 4.into();
            terms["eventTimeToLive"] = "PT2H".into();
            terms["deadLetterDestinationWithResourceIdentity"] = with_letters.clone();
        }
        delivery["deliveryMode"] = mode.into();
        let path = format!("{topic}/eventSubscriptions/{name}");
        let filters = json!({"includedEventTypes": ["A"], "filters": [{"operatorType": "IsNotNull", "key": "data.a"}]});
        put(
            &control,
            &path,
            json!({"properties": {"deliveryConfiguration": delivery, "filtersConfiguration": filters}}),
        )
        .await;
        let view: SubscriptionView = whole(&control, &path).await;
        assert!(
            matches!(view.properties, AnySubscriptionProperties::Namespace(_)),
            "{name}"
        );
        assert_eq!(endpoint_type(view).is_none(), name == "pull");
    }
    whole_list::<SubscriptionView>(&control, &format!("{topic}/eventSubscriptions")).await;
}

/// The view of a server with an identity and with the services of other destinations.
fn shown(topic: &TopicRecord, properties: Value) -> SubscriptionView {
    let body = json!({ "properties": properties }).to_string();
    let record = subscription::read_put(
        &Name::new("billing"),
        topic,
        None,
        &ranges(),
        body.as_bytes(),
    )
    .expect("it is taken");
    let view =
        serde_json::to_value(subscription_view(&record, topic, PathForm::Nested)).expect("JSON");
    let read: SubscriptionView = serde_json::from_value(view.clone()).expect("it is read");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), view);
    read
}

#[test]
fn identities_and_other_destinations_are_read_whole() {
    let mut hook = webhook();
    hook["properties"]["azureActiveDirectoryApplicationIdOrUri"] = "api://orders".into();
    let identified = json!({"identity": {"type": "SystemAssigned"}, "destination": hook});
    let topic = topic_record(Schema::EventGrid);
    let in_namespace = TopicRecord {
        namespace: Some(NamespaceMembership {
            name: Name::new("plant"),
            retention_days: 1,
        }),
        ..topic_record(Schema::CloudEvents)
    };
    let pushed =
        |push: Value| json!({"deliveryConfiguration": {"deliveryMode": "Push", "push": push}});
    for view in [
        shown(&topic, json!({"deliveryWithResourceIdentity": identified})),
        shown(
            &in_namespace,
            pushed(json!({"deliveryWithResourceIdentity": identified})),
        ),
    ] {
        assert_eq!(endpoint_type(view).as_deref(), Some("WebHook"));
    }
    for view in [
        shown(&topic, json!({"destination": queue()})),
        shown(&in_namespace, pushed(json!({"destination": queue()}))),
    ] {
        assert_eq!(endpoint_type(view).as_deref(), Some("StorageQueue"));
    }
}

#[actix_web::test]
async fn the_account_and_the_provider_are_read_whole() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    put(&control, &format!("{RG}/topics/orders"), json!({})).await;
    let subscription = RG.split("/resourceGroups/").next().expect("a subscription");
    whole_list::<Tenant>(&control, "/tenants").await;
    whole_list::<AzureSubscription>(&control, "/subscriptions").await;
    whole::<AzureSubscription>(&control, subscription).await;
    whole_list::<Location>(&control, &format!("{subscription}/locations")).await;
    whole_list::<ResourceGroup>(&control, &format!("{subscription}/resourceGroups")).await;
    whole_list::<Provider>(&control, &format!("{subscription}/providers")).await;
    whole_list::<ProviderOperation>(&control, "/providers/Microsoft.EventGrid/operations").await;
    whole_list::<TopicType>(&control, "/providers/Microsoft.EventGrid/topicTypes").await;
}
