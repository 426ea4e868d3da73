//! The resources that the commands read: each field that they name is in what the server writes.

use gridhook::{
    admin::ChaosMode,
    api::{
        resource::{
            BlobProperties, DeadLetterDestination, DeliveryConfiguration, Destination, DestinationProperties,
            EventSubscription, EventSubscriptionProperties, IdentifiedDeadLetterDestination, NamedResource,
            NamespaceDelivery, Page, RetryPolicy, SubscriptionFilter, TopicProperties, TopicResource,
        },
        status::{SubscriptionStatusView, TopicStatusView},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::control::{ControlFixture, RG};

async fn put(control: &ControlFixture, path: &str, body: Value) {
    let answer = control.call("PUT", path, body).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text);
}

/// Reads the response to a GET.
async fn get<T: DeserializeOwned>(control: &ControlFixture, path: &str) -> T {
    let answer = control.call("GET", path, Value::Null).await;
    serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.text))
}

/// A response that is read and written again is the same JSON: no field of the server is unknown to the type.
async fn is_whole<T: DeserializeOwned + Serialize>(control: &ControlFixture, path: &str) {
    let read: T = get(control, path).await;
    let sent: Value = get(control, path).await;
    assert_eq!(serde_json::to_value(read).expect("JSON"), sent, "{path}");
}

fn letters() -> Value {
    json!({"endpointType": "StorageBlob", "properties": {"resourceId": "/subscriptions/0/storageAccounts/a", "blobContainerName": "data"}})
}

fn webhook() -> Value {
    json!({"endpointType": "WebHook", "properties": {
        "endpointUrl": "http://127.0.0.1:9000/hook",
        "maxEventsPerBatch": 10,
        "preferredBatchSizeInKilobytes": 64,
        "maxRequestsPerSecond": 20,
        "responseTimeoutInSeconds": 5,
    }})
}

#[track_caller]
fn check_blob(letters: Option<&DeadLetterDestination>) {
    let BlobProperties { resource_id, blob_container_name } = &letters.expect("it was put").properties;
    assert!(resource_id.is_some() && blob_container_name.is_some());
}

#[track_caller]
fn check_webhook(destination: Option<&Destination>) {
    let Destination { endpoint_type, properties } = destination.expect("it was put");
    assert_eq!(endpoint_type, "WebHook");
    let DestinationProperties {
        endpoint_base_url,
        endpoint_url,
        max_events_per_batch,
        preferred_batch_size_in_kilobytes,
        max_requests_per_second,
        response_timeout_in_seconds,
        resource_id,
        others: _,
    } = properties;
    assert!(resource_id.is_none());
    assert!(endpoint_base_url.is_some() && endpoint_url.is_none(), "the query may be a secret");
    assert!(max_events_per_batch.is_some() && preferred_batch_size_in_kilobytes.is_some());
    assert_eq!((*max_requests_per_second, *response_timeout_in_seconds), (Some(20), Some(5)));
}

#[actix_web::test]
async fn what_the_commands_read_of_a_topic_and_its_subscription_is_sent() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let topic = format!("{RG}/topics/orders");
    let rules = json!([{"ipMask": "10.0.0.0/8", "action": "Allow"}]);
    let body = json!({"tags": {"a": "b"}, "properties": {"inboundIpRules": rules, "disableLocalAuth": false, "duplicateDetectionHistoryTimeWindow": "P1DT90S", "schemaValidation": "warn"}});
    put(&control, &topic, body).await;
    let TopicResource { id, location, tags, properties } = get(&control, &topic).await;
    let TopicProperties {
        endpoint,
        input_schema,
        edition,
        event_retention_in_days: _,
        duplicate_detection_history_time_window,
        schema_validation,
        disable_local_auth,
        public_network_access,
        inbound_ip_rules,
    } = properties;
    assert_eq!((id, location.as_deref(), tags.map(|tags| tags.len())), (topic.clone(), Some("local"), Some(1)));
    assert_eq!(duplicate_detection_history_time_window.as_deref(), Some("P1DT1M30S"));
    assert_eq!(schema_validation.as_deref(), Some("warn"));
    assert!(endpoint.is_some() && input_schema.is_some() && edition.is_some() && public_network_access.is_some());
    assert_eq!((disable_local_auth, inbound_ip_rules.map(|rules| rules.len())), (Some(false), Some(1)));

    let path = format!("{topic}/eventSubscriptions/billing");
    let body = json!({"properties": {
        "destination": webhook(),
        "filter": {
            "subjectBeginsWith": "/a", "subjectEndsWith": "z", "includedEventTypes": ["A"],
            "advancedFilters": [{"operatorType": "IsNotNull", "key": "data.a"}],
        },
        "transform": {"method": "PUT"},
        "retryPolicy": {"maxDeliveryAttempts": 3, "eventTimeToLiveInMinutes": 7},
        "deadLetterDestination": letters(),
        "labels": ["l"],
        "expirationTimeUtc": "2040-01-01T00:00:00Z",
        "ordering": {"key": "subject"},
    }});
    put(&control, &path, body).await;
    let EventSubscription { id, name, properties } = get(&control, &path).await;
    assert_eq!((id, name.as_str()), (path.clone(), "billing"));
    let EventSubscriptionProperties {
        topic: of,
        provisioning_state,
        event_delivery_schema,
        labels,
        expiration_time_utc,
        starts_from: _,
        destination,
        delivery_with_resource_identity,
        filter,
        transform,
        retry_policy,
        dead_letter_destination,
        dead_letter_with_resource_identity,
        ordering,
        delivery_configuration,
        filters_configuration,
    } = properties;
    assert_eq!(ordering.map(|ordering| ordering.key).as_deref(), Some("subject"));
    assert_eq!((of.as_deref(), provisioning_state.as_str()), (Some(topic.as_str()), "Succeeded"));
    assert_eq!((event_delivery_schema.as_str(), transform.map(|parts| parts.len())), ("EventGridSchema", Some(1)));
    assert_eq!((labels.map(|labels| labels.len()), expiration_time_utc.is_some()), (Some(1), true));
    let filter = filter.expect("it was put");
    let SubscriptionFilter { included_event_types, subject_begins_with, subject_ends_with, advanced_filters } = filter;
    assert_eq!((subject_begins_with.as_deref(), subject_ends_with.as_deref()), (Some("/a"), Some("z")));
    assert!(included_event_types.is_some() && advanced_filters.is_some());
    let RetryPolicy { max_delivery_attempts, event_time_to_live_in_minutes } = retry_policy.expect("it was put");
    assert_eq!((max_delivery_attempts, event_time_to_live_in_minutes), (Some(3), Some(7)));
    check_webhook(destination.as_ref());
    check_blob(dead_letter_destination.as_ref());
    assert!(delivery_configuration.is_none() && filters_configuration.is_none());
    assert!(delivery_with_resource_identity.is_none() && dead_letter_with_resource_identity.is_none());
    let identified = json!({"identity": {"type": "SystemAssigned"}, "deadLetterDestination": letters()});
    let identified = json!({"properties": {"destination": webhook(), "deadLetterWithResourceIdentity": identified}});
    let answer = control.call("PUT", &path, identified).await;
    assert!(answer.status < 300, "{}", answer.text);
    let EventSubscriptionProperties { dead_letter_destination, dead_letter_with_resource_identity: with, .. } =
        get::<EventSubscription>(&control, &path).await.properties;
    check_blob(with.expect("it was put").dead_letter_destination.as_ref());
    assert!(dead_letter_destination.is_none());

    is_whole::<SubscriptionStatusView>(&control, &format!("{path}/status")).await;
    is_whole::<TopicStatusView>(&control, &format!("{topic}/status")).await;
    is_whole::<gridhook::api::ledger::LedgerPageView>(&control, &format!("{path}/ledger")).await;
    is_whole::<gridhook::api::trace::TraceView>(&control, &format!("{topic}/trace?id=none")).await;
    is_whole::<gridhook::api::supervision::SupervisionReport>(&control, "/supervision").await;
    is_whole::<gridhook::api::top::TopReport>(&control, "/top").await;
    is_whole::<gridhook::api::clock::ClockView>(&control, "/clock").await;
    is_whole::<gridhook::api::health::Readiness>(&control, "/readyz").await;
    let Page { value, .. } = get::<Page<NamedResource>>(&control, &format!("{topic}/eventSubscriptions")).await;
    assert_eq!(value.len(), 1);
}

#[actix_web::test]
async fn what_the_commands_read_of_a_namespace_topics_subscription_is_sent() {
    let control = ControlFixture::new(ChaosMode::Disabled);
    let namespace = format!("{RG}/namespaces/plant");
    put(&control, &namespace, json!({"location": "local"})).await;
    let topic = format!("{namespace}/topics/heat");
    put(&control, &topic, json!({"properties": {"eventRetentionInDays": 2}})).await;
    assert_eq!(get::<TopicResource>(&control, &topic).await.properties.event_retention_in_days, Some(2));
    let with_letters = json!({"deadLetterDestination": letters()});
    for (name, mode, lock) in [("push", "Push", None), ("pull", "Queue", Some(60))] {
        let mut part = json!({
            "maxDeliveryCount": 4,
            "eventTimeToLive": "PT2H",
            "deadLetterDestinationWithResourceIdentity": with_letters,
        });
        let key = if let Some(seconds) = lock {
            part["receiveLockDurationInSeconds"] = json!(seconds);
            "queue"
        } else {
            part["destination"] = webhook();
            "push"
        };
        let path = format!("{topic}/eventSubscriptions/{name}");
        let filters = json!({"includedEventTypes": ["A"], "filters": [{"operatorType": "IsNotNull", "key": "data.a"}]});
        let delivery = json!({"deliveryMode": mode, key: part});
        let body = json!({"properties": {"deliveryConfiguration": delivery, "filtersConfiguration": filters}});
        put(&control, &path, body).await;
        let EventSubscriptionProperties { delivery_configuration, filters_configuration, filter, .. } =
            get::<EventSubscription>(&control, &path).await.properties;
        let filters = filters_configuration.expect("it was put");
        assert!(filter.is_none() && filters.included_event_types.is_some() && filters.advanced_filters.is_some());
        let NamespaceDelivery {
            destination,
            delivery_with_resource_identity: _,
            max_delivery_count,
            event_time_to_live,
            receive_lock_duration_in_seconds,
            dead_letter_destination_with_resource_identity,
        } = match delivery_configuration.expect("it was put") {
            DeliveryConfiguration::Push { push } => {
                check_webhook(push.destination.as_ref());
                push
            }
            DeliveryConfiguration::Queue { queue } => queue,
        };
        assert_eq!(destination.is_some(), lock.is_none());
        assert_eq!((max_delivery_count, event_time_to_live.as_deref()), (Some(4), Some("PT2H")));
        assert_eq!(receive_lock_duration_in_seconds, lock);
        let IdentifiedDeadLetterDestination { dead_letter_destination } =
            dead_letter_destination_with_resource_identity.expect("it was put");
        check_blob(dead_letter_destination.as_ref());
    }
}
