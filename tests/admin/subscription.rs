//! Event subscriptions: body, record and body again.

use expect_test::expect;
use gridhook::admin::model::subscription::subscription_view;
use gridhook::{
    admin::model::{
        EditionRanges,
        subscription::{PathForm, check_limits, read_patch, read_put},
    },
    event::{Name, Schema},
    record::subscription::{OnGone, SubscriptionRecord},
};
use serde_json::{Value, json};

use super::{editions, pretty, ranges, ranges_of, topic_record};

/// The editions of the documents without namespaces.
const OF_DOCUMENTS: [&str; 3] = ["2020", "2021", "2023"];

pub(super) fn take(topic: Schema, body: &Value) -> Result<SubscriptionRecord, String> {
    take_in(&ranges(), topic, body)
}

fn take_in(
    ranges: &EditionRanges,
    topic: Schema,
    body: &Value,
) -> Result<SubscriptionRecord, String> {
    let body = body.to_string();
    read_put(
        &Name::new("to-shop"),
        &topic_record(topic),
        None,
        ranges,
        body.as_bytes(),
    )
    .map_err(|error| error.to_string())
}

pub(super) fn webhook(properties: Value) -> Value {
    json!({"properties": {"destination": {"endpointType": "WebHook", "properties": properties}}})
}

fn least() -> Value {
    webhook(json!({"endpointUrl": "http://127.0.0.1:9000/hook?code=secret"}))
}

/// The least body with `value` at `key` of its properties.
pub(super) fn with(key: &str, value: Value) -> Value {
    let mut body = least();
    body["properties"][key] = value;
    body
}

fn full() -> Value {
    json!({"properties": {
        "destination": {"endpointType": "WebHook", "properties": {
            "endpointUrl": "https://example.com:8443/a/b?code=secret&x=1", "maxEventsPerBatch": 10,
            "preferredBatchSizeInKilobytes": 128, "deliveryAttributeMappings": [], "minimumTlsVersionAllowed": "1.2"}},
        "filter": {"subjectBeginsWith": "/a", "subjectEndsWith": ".x", "includedEventTypes": ["A", "B"],
            "isSubjectCaseSensitive": true, "enableAdvancedFilteringOnArrays": false, "advancedFilters": []},
        "labels": ["l"], "eventDeliverySchema": "CloudEventSchemaV1_0", "expirationTimeUtc": null,
        "retryPolicy": {"maxDeliveryAttempts": 10, "eventTimeToLiveInMinutes": 60},
        "deadLetterDestination": {"endpointType": "StorageBlob",
            "properties": {"resourceId": "/r", "blobContainerName": "dead-letters"}}}})
}

#[test]
fn a_body_with_an_address_only_has_every_default() {
    let _rows = crate::spec::shows(&[
        "S000-006: By default, Event Grid delivers one event at a time to a subscriber.",
        "S000-007: In a default (unbatched) delivery the payload is an array that holds exactly \
         one event.",
        "S000-045, S002-028, S003-064: The default maximum number of delivery attempts is 30.",
        "S000-047, S002-029, S003-065: The default event time-to-live (TTL) is 1440 minutes.",
        "S000-054, S002-005, S003-006: By default, Event Grid sends each event to subscribers \
         individually.",
        "S000-057: Output batching is turned off by default.",
        "S000-076: By default, Event Grid adds only one event to each delivery request.",
        "S000-099, S002-037, S003-076: Dead-lettering is not turned on by default.",
        "S002-006, S003-007: The subscriber receives an array with a single event.",
    ]);
    let record = take(Schema::EventGrid, &least()).expect("it is taken");
    expect![[r#"
        {
          "number": 0,
          "version": 0,
          "name": "to-shop",
          "webhook": {
            "endpoint_url": "http://127.0.0.1:9000/hook?code=secret",
            "max_events_per_batch": 1,
            "preferred_batch_size_in_kilobytes": 64
          },
          "filter": {
            "isSubjectCaseSensitive": false
          },
          "delivery_schema": "EventGridSchema",
          "retry": {
            "max_delivery_attempts": 30,
            "event_time_to_live_in_minutes": 1440
          },
          "dead_letter": null,
          "dead_letter_in_probation": false,
          "on_gone": "retry",
          "labels": []
        }"#]]
    .assert_eq(&pretty(&record));
    for edition in OF_DOCUMENTS {
        let same = take_in(&ranges_of(edition), Schema::EventGrid, &least()).expect("it is taken");
        assert_eq!(pretty(&same), pretty(&record), "{edition}");
    }
}

#[test]
fn every_key_finds_its_place_in_the_record() {
    let _rows = crate::spec::shows(&[
        "S000-042, S002-024, S003-060: The retry policy can be set, when an event subscription is \
         created, with two settings: maximum number of attempts and event time-to-live.",
        "S000-055, S003-008: Event Grid can be configured to group events into batches for \
         delivery.",
        "S000-059, S003-009: Batched delivery has two settings: maximum events per batch and \
         preferred batch size in kilobytes.",
        "S000-100, S002-038, S003-077: To turn dead-lettering on, a storage location for \
         undelivered events must be given when the event subscription is created.",
        "S000-112, S003-089: The endpoint of the dead-letter container is given when the event \
         subscription is created.",
        "S002-025, S003-061: For deterministic behaviour, the maximum number of delivery attempts \
         is set in the subscription's retry policy.",
        "S002-027, S003-063: The retry policy can be customized when an event subscription is \
         created.",
    ]);
    let record = take(Schema::EventGrid, &full()).expect("it is taken");
    expect![[r#"
        {
          "number": 0,
          "version": 0,
          "name": "to-shop",
          "webhook": {
            "endpoint_url": "https://example.com:8443/a/b?code=secret&x=1",
            "max_events_per_batch": 10,
            "preferred_batch_size_in_kilobytes": 128
          },
          "filter": {
            "includedEventTypes": [
              "A",
              "B"
            ],
            "subjectBeginsWith": "/a",
            "subjectEndsWith": ".x",
            "isSubjectCaseSensitive": true
          },
          "delivery_schema": "CloudEventSchemaV1_0",
          "retry": {
            "max_delivery_attempts": 10,
            "event_time_to_live_in_minutes": 60
          },
          "dead_letter": {
            "resource_id": "/r",
            "container": "dead-letters"
          },
          "dead_letter_in_probation": false,
          "on_gone": "retry",
          "labels": [
            "l"
          ]
        }"#]]
    .assert_eq(&pretty(&record));
}

#[test]
fn a_returned_endpoint_has_no_query() {
    let record = take(Schema::EventGrid, &full()).expect("it is taken");
    let reported = pretty(&subscription_view(
        &record,
        &topic_record(Schema::EventGrid),
        PathForm::Nested,
    ));
    assert!(!reported.contains("secret"), "{reported}");
    expect![[r#"
        {
          "id": "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders/eventSubscriptions/to-shop",
          "name": "to-shop",
          "type": "Microsoft.EventGrid/topics/eventSubscriptions",
          "properties": {
            "deadLetterDestination": {
              "endpointType": "StorageBlob",
              "properties": {
                "blobContainerName": "dead-letters",
                "resourceId": "/r"
              }
            },
            "destination": {
              "endpointType": "WebHook",
              "properties": {
                "endpointBaseUrl": "https://example.com:8443/a/b",
                "maxEventsPerBatch": 10,
                "minimumTlsVersionAllowed": "1.2",
                "preferredBatchSizeInKilobytes": 128
              }
            },
            "eventDeliverySchema": "CloudEventSchemaV1_0",
            "filter": {
              "includedEventTypes": [
                "A",
                "B"
              ],
              "isSubjectCaseSensitive": true,
              "subjectBeginsWith": "/a",
              "subjectEndsWith": ".x"
            },
            "labels": [
              "l"
            ],
            "provisioningState": "Succeeded",
            "retryPolicy": {
              "eventTimeToLiveInMinutes": 60,
              "maxDeliveryAttempts": 10
            },
            "topic": "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders"
          }
        }"#]].assert_eq(&reported);
    let scoped = serde_json::to_value(subscription_view(
        &record,
        &topic_record(Schema::EventGrid),
        PathForm::Scoped,
    ));
    let scoped = scoped.expect("it is JSON");
    assert_eq!(
        scoped["id"],
        "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid/topics/orders/providers/Microsoft.EventGrid/eventSubscriptions/to-shop"
    );
    assert_eq!(scoped["type"], "Microsoft.EventGrid/eventSubscriptions");
}

#[test]
fn a_returned_subscription_can_be_put_once_the_address_is_added() {
    let topic = topic_record(Schema::EventGrid);
    let record = take(Schema::EventGrid, &full()).expect("it is taken");
    let mut reported = serde_json::to_value(subscription_view(&record, &topic, PathForm::Nested))
        .expect("it is JSON");
    let without = take(Schema::EventGrid, &reported).expect_err("the address is not in it");
    expect![
        "properties.destination.properties.endpointUrl is missing; POST getFullUrl returns it, \
         GET does not"
    ]
    .assert_eq(&without);
    reported["properties"]["destination"]["properties"]["endpointUrl"] =
        json!(record.webhook.endpoint_url);
    let again = take(Schema::EventGrid, &reported).expect("it is taken back");
    assert_eq!(pretty(&again), pretty(&record));
}

#[test]
fn the_schema_pairs_that_can_be_made_are_taken() {
    for (input, asked, got) in [
        (Schema::EventGrid, None, Schema::EventGrid),
        (
            Schema::EventGrid,
            Some("EventGridSchema"),
            Schema::EventGrid,
        ),
        (
            Schema::EventGrid,
            Some("CloudEventSchemaV1_0"),
            Schema::CloudEvents,
        ),
        (Schema::CloudEvents, None, Schema::CloudEvents),
        (
            Schema::CloudEvents,
            Some("CloudEventSchemaV1_0"),
            Schema::CloudEvents,
        ),
    ] {
        let body = with("eventDeliverySchema", json!(asked));
        assert_eq!(
            take(input, &body).expect("it is taken").delivery_schema,
            got
        );
    }
}

#[test]
fn both_ends_of_every_range_are_taken() {
    let _rows = crate::spec::shows(&[
        "S000-044: The maximum number of delivery attempts must be an integer from 1 to 30.",
        "S000-046: The event time-to-live (TTL) must be an integer from 1 to 1440.",
        "S000-063, S003-014: The maximum events per batch must be between 1 and 5000.",
        "S000-084, S003-023: The value of preferred-batch-size-in-kilobytes must be between 1 and \
         1024.",
    ]);
    let ends = [(1, 1, 1, 1), (30, 1440, 5000, 1024)];
    for (edition, (attempts, minutes, events, kilobytes)) in OF_DOCUMENTS
        .into_iter()
        .flat_map(|edition| ends.map(|end| (edition, end)))
    {
        let mut body = webhook(
            json!({"endpointUrl": "http://x/", "maxEventsPerBatch": events,
            "preferredBatchSizeInKilobytes": kilobytes}),
        );
        body["properties"]["retryPolicy"] =
            json!({"maxDeliveryAttempts": attempts, "eventTimeToLiveInMinutes": minutes});
        let record = take_in(&ranges_of(edition), Schema::EventGrid, &body).expect("it is taken");
        assert_eq!(record.retry.max_delivery_attempts, attempts);
        assert_eq!(record.retry.event_time_to_live_in_minutes, minutes);
        assert_eq!(record.webhook.max_events_per_batch, events);
        assert_eq!(record.webhook.preferred_batch_size_in_kilobytes, kilobytes);
    }
}

fn refusals(bodies: &[(Schema, Value)]) -> String {
    let lines: Vec<_> = bodies
        .iter()
        .map(|(topic, body)| take(*topic, body).expect_err(&body.to_string()))
        .collect();
    lines.join("\n")
}

#[test]
fn a_wrong_destination_is_refused_and_its_address_not_repeated() {
    let _rows = crate::spec::shows(&[
        "S000-063, S003-014: The maximum events per batch must be between 1 and 5000.",
        "S000-084, S003-023: The value of preferred-batch-size-in-kilobytes must be between 1 and \
         1024.",
    ]);
    let url = |url: &str| webhook(json!({"endpointUrl": url}));
    let kind = |kind: &str| json!({"properties": {"destination": {"endpointType": kind, "properties": {"resourceId": "/r"}}}});
    let also = |key: &str, value: Value| {
        let mut body = least();
        body["properties"]["destination"]["properties"][key] = value;
        body
    };
    let bodies = [
        json!({}),
        json!({"properties": {}}),
        json!({"properties": {"destination": {"endpointType": "WebHook"}}}),
        webhook(json!({})),
        kind("EventHub"),
        kind("StorageQueue"),
        kind("webhook"),
        url("secret"),
        url("/secret"),
        url("ftp://x/secret"),
        url("http://x/ secret"),
        url("http://x/a\nsecret"),
        url("http://"),
        url("http://user:secret@x/"),
        url("http://@x/secret"),
        url("http://x\\@y/secret"),
        url("http:x/secret"),
        url("http://x/#secret"),
        also("maxEventsPerBatch", json!(0)),
        also("maxEventsPerBatch", json!(5001)),
        also("maxEventsPerBatch", json!("10")),
        also("preferredBatchSizeInKilobytes", json!(1025)),
        also("preferredBatchSizeInKilobytes", json!(-1)),
        also("maxRequestsPerSecond", json!(0)),
        also("maxRequestsPerSecond", json!(10_001)),
        also("responseTimeoutInSeconds", json!(0)),
        also("responseTimeoutInSeconds", json!(231)),
        also("azureActiveDirectoryTenantId", json!("t")),
        also("azureActiveDirectoryTenantId", json!("../t")),
        also("azureActiveDirectoryApplicationIdOrUri", json!("a b")),
        also("minimumTlsVersionAllowed", json!("1.4")),
        also("colour", json!("red")),
    ];
    let bodies: Vec<_> = bodies
        .into_iter()
        .map(|body| (Schema::EventGrid, body))
        .collect();
    let text = refusals(&bodies);
    assert!(
        !text.contains("secret@") && !text.contains("/secret"),
        "{text}"
    );
    expect![[r#"
        the body cannot be read: missing field `properties`
        properties cannot be read: missing field `destination`
        properties.destination cannot be read: missing field `properties`
        properties.destination.properties.endpointUrl is missing; POST getFullUrl returns it, GET does not
        properties.destination.properties.resourceId is "/r"; expected an id that ends with /eventhubs/NAME
        properties.destination.properties cannot be read: missing field `queueName`
        properties.destination.properties.resourceId cannot be read: unknown field `resourceId`, expected one of `endpointUrl`, `maxEventsPerBatch`, `preferredBatchSizeInKilobytes`, `maxRequestsPerSecond`, `responseTimeoutInSeconds`, `minimumTlsVersionAllowed`, `azureActiveDirectoryTenantId`, `azureActiveDirectoryApplicationIdOrUri`, `clientCertificate`, `proxy`, `signing`, `deliveryAttributeMappings`, `endpointBaseUrl`, `allowedRate`
        properties.destination.properties.endpointUrl has no http:// or https:// at its beginning; expected an absolute http or https URL
        properties.destination.properties.endpointUrl has no http:// or https:// at its beginning; expected an absolute http or https URL
        properties.destination.properties.endpointUrl has another scheme than http and https; expected an absolute http or https URL
        properties.destination.properties.endpointUrl has a space or a control character in it; expected an absolute http or https URL
        properties.destination.properties.endpointUrl has a space or a control character in it; expected an absolute http or https URL
        properties.destination.properties.endpointUrl is not a URL (empty host); expected an absolute http or https URL
        properties.destination.properties.endpointUrl contains a user name or a password; put a secret into the query
        properties.destination.properties.endpointUrl contains a user name or a password; put a secret into the query
        properties.destination.properties.endpointUrl contains a backslash; expected / in a path and %5C elsewhere
        properties.destination.properties.endpointUrl has no host after "://"; example: https://example.com/hook
        properties.destination.properties.endpointUrl has a fragment (#), which is never sent; leave it out
        properties.destination.properties.maxEventsPerBatch is 0; expected 1 to 5000
        properties.destination.properties.maxEventsPerBatch is 5001; expected 1 to 5000
        properties.destination.properties.maxEventsPerBatch cannot be read: invalid type: string "10", expected a whole number
        properties.destination.properties.preferredBatchSizeInKilobytes is 1025; expected 1 to 1024
        properties.destination.properties.preferredBatchSizeInKilobytes is -1; expected 1 to 1024
        properties.destination.properties.maxRequestsPerSecond is 0; expected 1 to 10000
        properties.destination.properties.maxRequestsPerSecond is 10001; expected 1 to 10000
        properties.destination.properties.responseTimeoutInSeconds is 0; expected 1 to 230
        properties.destination.properties.responseTimeoutInSeconds is 231; expected 1 to 230
        properties.destination.properties.azureActiveDirectoryApplicationIdOrUri is missing; azureActiveDirectoryTenantId needs it
        properties.destination.properties.azureActiveDirectoryTenantId is "../t"; expected up to 256 letters, digits and -.
        properties.destination.properties.azureActiveDirectoryApplicationIdOrUri is "a b"; expected up to 256 letters, digits and -._~:/
        properties.destination.properties.minimumTlsVersionAllowed cannot be read: unknown variant `1.4`, expected one of `1.0`, `1.1`, `1.2`, `1.3`
        properties.destination.properties.colour cannot be read: unknown field `colour`, expected one of `endpointUrl`, `maxEventsPerBatch`, `preferredBatchSizeInKilobytes`, `maxRequestsPerSecond`, `responseTimeoutInSeconds`, `minimumTlsVersionAllowed`, `azureActiveDirectoryTenantId`, `azureActiveDirectoryApplicationIdOrUri`, `clientCertificate`, `proxy`, `signing`, `deliveryAttributeMappings`, `endpointBaseUrl`, `allowedRate`"#]].assert_eq(&text);
}

#[test]
fn everything_else_that_is_wrong_is_refused_with_what_is_allowed() {
    let _rows = crate::spec::shows(&[
        "S000-044: The maximum number of delivery attempts must be an integer from 1 to 30.",
        "S000-046: The event time-to-live (TTL) must be an integer from 1 to 1440.",
    ]);
    let blob = |kind: &str, id: &str, container: &str| {
        with(
            "deadLetterDestination",
            json!({"endpointType": kind, "properties": {"resourceId": id, "blobContainerName": container}}),
        )
    };
    let grid = |body: Value| (Schema::EventGrid, body);
    let mut named = least();
    named["name"] = json!("other");
    let text = refusals(&[
        grid(named),
        grid(with("colour", json!("red"))),
        grid(with("deliveryWithResourceIdentity", json!({}))),
        grid(with("deadLetterWithResourceIdentity", json!("x"))),
        grid(with(
            "deadLetterWithResourceIdentity",
            json!({"identity": {"type": "SystemAssigned"}}),
        )),
        grid(identified("UserAssigned", true)),
        grid(identified("SystemAssigned", false)),
        grid(identified("Nobody", true)),
        grid(with("expirationTimeUtc", json!("tomorrow"))),
        grid(with(
            "filter",
            json!({"subjectBeginsWith": "ä".repeat(513)}),
        )),
        grid(with("filter", json!({"subjectEndsWith": "x".repeat(513)}))),
        grid(with("filter", json!({"includedEventTypes": vec!["A"; 26]}))),
        grid(with("filter", json!({"includedEventTypes": ["A", ""]}))),
        grid(with(
            "filter",
            json!({"includedEventTypes": ["x".repeat(513)]}),
        )),
        grid(with("filter", json!({"includedEventTypes": "A"}))),
        grid(with("filter", json!({"subjectContains": "A"}))),
        grid(with("retryPolicy", json!({"maxDeliveryAttempts": 0}))),
        grid(with("retryPolicy", json!({"maxDeliveryAttempts": 31}))),
        grid(with("retryPolicy", json!({"eventTimeToLiveInMinutes": 0}))),
        grid(with(
            "retryPolicy",
            json!({"eventTimeToLiveInMinutes": 1441}),
        )),
        grid(with(
            "retryPolicy",
            json!({"eventTimeToLiveInMinutes": 4294967296_i64}),
        )),
        grid(with(
            "retryPolicy",
            json!({"eventTimeToLiveInMinutes": 1.5}),
        )),
        grid(with("retryPolicy", json!({"schedule": ["10s", "2s"]}))),
        grid(with("labels", json!("l"))),
        grid(with("eventDeliverySchema", json!("CustomInputSchema"))),
        grid(with("eventDeliverySchema", json!("CloudEvents"))),
        (
            Schema::CloudEvents,
            with("eventDeliverySchema", json!("EventGridSchema")),
        ),
        (
            Schema::CloudEvents,
            with("eventDeliverySchema", json!("CustomInputSchema")),
        ),
        grid(blob("Folder", "/r", "abc")),
        grid(blob("StorageBlob", "", "abc")),
        grid(blob("StorageBlob", "/r", "../../etc")),
        grid(blob("StorageBlob", "/r", "ab")),
        grid(blob("StorageBlob", "/r", "Abc")),
        grid(blob("StorageBlob", "/r", "a--b")),
        grid(with("deadLetterInProbation", json!(true))),
        grid(with("onGone", json!("delete"))),
        grid(with("ordering", json!({"key": "id"}))),
        grid(with("ordering", json!({"key": "source"}))),
        (
            Schema::CloudEvents,
            with("ordering", json!({"key": "type"})),
        ),
        (Schema::Custom, with("ordering", json!({"key": "data..a"}))),
        grid(with(
            "ordering",
            json!({"key": "subject", "onFailure": "wait"}),
        )),
        grid(with("ordering", json!({}))),
        grid(with("transform", json!({}))),
        grid(with("transform", json!({"method": "GET"}))),
    ]);
    expect![[r#"
        name is "other"; expected the name in the path, "to-shop"
        properties.colour cannot be read: unknown field `colour`, expected one of `destination`, `deliveryWithResourceIdentity`, `filter`, `labels`, `eventDeliverySchema`, `transform`, `retryPolicy`, `deadLetterDestination`, `deadLetterWithResourceIdentity`, `expirationTimeUtc`, `deadLetterInProbation`, `onGone`, `ordering`, `startsFrom`, `topic`, `provisioningState`, `endpointInService`
        properties.deliveryWithResourceIdentity and destination are both given; leave one of them out
        properties.deadLetterWithResourceIdentity is not an object; expected an object with identity and deadLetterDestination
        properties.deadLetterWithResourceIdentity.deadLetterDestination is missing; an identity is allowed only with a destination
        properties.deliveryWithResourceIdentity.identity.type is "UserAssigned", which is not supported: the server has one identity; expected SystemAssigned
        properties.deliveryWithResourceIdentity.destination.properties.azureActiveDirectoryApplicationIdOrUri is missing; it is the application that the access tokens of the identity are for
        properties.deliveryWithResourceIdentity.identity.type cannot be read: unknown variant `Nobody`, expected `SystemAssigned` or `UserAssigned`
        properties.expirationTimeUtc is "tomorrow"; expected a date and time such as 2030-01-31T12:00:00Z
        properties.filter.subjectBeginsWith has 513 characters; expected at most 512
        properties.filter.subjectEndsWith has 513 characters; expected at most 512
        properties.filter.includedEventTypes has 26 entries; expected at most 25
        properties.filter.includedEventTypes[1] is empty; expected the name of an event type, or All
        properties.filter.includedEventTypes[0] has 513 characters; expected at most 512
        properties.filter.includedEventTypes cannot be read: invalid type: string "A", expected an array
        properties.filter.subjectContains cannot be read: unknown field `subjectContains`, expected one of `subjectBeginsWith`, `subjectEndsWith`, `includedEventTypes`, `isSubjectCaseSensitive`, `advancedFilters`, `enableAdvancedFilteringOnArrays`
        properties.retryPolicy.maxDeliveryAttempts is 0; expected 1 to 30
        properties.retryPolicy.maxDeliveryAttempts is 31; expected 1 to 30
        properties.retryPolicy.eventTimeToLiveInMinutes is 0; expected 1 to 1440
        properties.retryPolicy.eventTimeToLiveInMinutes is 1441; expected 1 to 1440
        properties.retryPolicy.eventTimeToLiveInMinutes is 4294967296; expected 1 to 1440
        properties.retryPolicy.eventTimeToLiveInMinutes cannot be read: invalid type: floating point `1.5`, expected a whole number
        properties.retryPolicy.schedule[1] is "2s", and the edition of the topic waits 10s after any failure; expected a wait from 10s to 7d
        properties.labels cannot be read: invalid type: string "l", expected an array
        properties.eventDeliverySchema is "CustomInputSchema"; expected EventGridSchema or CloudEventSchemaV1_0 for a topic whose inputSchema is EventGridSchema
        properties.eventDeliverySchema is "CloudEvents"; expected EventGridSchema or CloudEventSchemaV1_0 for a topic whose inputSchema is EventGridSchema
        properties.eventDeliverySchema is "EventGridSchema"; expected CloudEventSchemaV1_0 for a topic whose inputSchema is CloudEventSchemaV1_0
        properties.eventDeliverySchema is "CustomInputSchema"; expected CloudEventSchemaV1_0 for a topic whose inputSchema is CloudEventSchemaV1_0
        properties.deadLetterDestination.endpointType is "Folder"; expected StorageBlob, others are not supported yet
        properties.deadLetterDestination.properties.resourceId is empty, or has no storage account before the container; expected a resource id or an address of a store
        properties.deadLetterDestination.properties.blobContainerName is "../../etc"; expected 3 to 63 lower-case letters, digits and single hyphens between them
        properties.deadLetterDestination.properties.blobContainerName is "ab"; expected 3 to 63 lower-case letters, digits and single hyphens between them
        properties.deadLetterDestination.properties.blobContainerName is "Abc"; expected 3 to 63 lower-case letters, digits and single hyphens between them
        properties.deadLetterDestination.properties.blobContainerName is "a--b"; expected 3 to 63 lower-case letters, digits and single hyphens between them
        properties.deadLetterInProbation is true without a deadLetterDestination; expected false, or true beside a deadLetterDestination
        properties.onGone is "delete"; expected retry or disable
        properties.ordering.key is "id"; expected subject, topic or data.<path>
        properties.ordering.key is "source"; expected subject, topic or data.<path>
        properties.ordering.key is "type"; expected subject, source, an extension attribute or data.<path>
        properties.ordering.key is "data..a"; expected subject, data.<path> or another path in the event
        properties.ordering.onFailure is "wait"; expected skip or block
        properties.ordering cannot be read: missing field `key`
        properties.transform is empty; expected an expression in body, pathSuffix or headers, or a method
        properties.transform.method is "GET"; expected one of PATCH, POST, PUT"#]].assert_eq(&text);
}

#[test]
fn names_have_three_to_sixty_four_letters() {
    let body = least().to_string();
    let put = |name: &str| {
        read_put(
            &Name::new(name),
            &topic_record(Schema::EventGrid),
            None,
            &ranges(),
            body.as_bytes(),
        )
    };
    put("abc").expect("three");
    put(&"a".repeat(64)).expect("sixty-four");
    for name in ["ab", &"a".repeat(65), "a b c", "a/b/c"] {
        let error = put(name).expect_err(name).to_string();
        assert!(
            error.contains("expected 3 to 64 letters (a to z), digits and hyphens"),
            "{error}"
        );
    }
}

/// The least body with an identity of this type, and an application for which tokens are.
fn identified(kind: &str, has_audience: bool) -> Value {
    let mut destination = least()["properties"]["destination"].take();
    if has_audience {
        destination["properties"]["azureActiveDirectoryApplicationIdOrUri"] = "api://orders".into();
    }
    json!({"properties": {
        "deliveryWithResourceIdentity": {"identity": {"type": kind}, "destination": destination},
        "deadLetterWithResourceIdentity": {"identity": {"type": "UserAssigned", "userAssignedIdentity": "/i"},
            "deadLetterDestination": {"endpointType": "StorageBlob",
                "properties": {"resourceId": "/r", "blobContainerName": "dead-letters"}}},
    }})
}

#[test]
fn identities_are_shown_around_their_destinations_and_kept_by_a_change_of_something_else() {
    let topic = topic_record(Schema::EventGrid);
    let record = take(Schema::EventGrid, &identified("systemassigned", true)).expect("it is taken");
    let shown = |record: &SubscriptionRecord| {
        let view = subscription_view(record, &topic, PathForm::Nested);
        serde_json::to_value(view).expect("JSON")["properties"].take()
    };
    let view = shown(&record);
    let delivery = &view["deliveryWithResourceIdentity"];
    assert_eq!(delivery["identity"], json!({"type": "SystemAssigned"}));
    assert_eq!(
        delivery["destination"]["properties"]["endpointBaseUrl"],
        "http://127.0.0.1:9000/hook"
    );
    let letters = &view["deadLetterWithResourceIdentity"];
    assert_eq!(
        letters["identity"],
        json!({"type": "UserAssigned", "userAssignedIdentity": "/i"})
    );
    assert_eq!(
        letters["deadLetterDestination"]["properties"]["resourceId"],
        "/r"
    );
    assert!(
        view["destination"].is_null() && view["deadLetterDestination"].is_null(),
        "{view}"
    );
    assert!(!view.to_string().contains("secret"), "{view}");
    // The view can be put again, and keeps the secret in the address.
    let body = json!({ "properties": view }).to_string();
    let again = read_put(
        &Name::new("to-shop"),
        &topic,
        Some(&record),
        &ranges(),
        body.as_bytes(),
    )
    .expect("it is taken");
    assert_eq!(pretty(&again), pretty(&record));

    let try_patch =
        |body: Value| read_patch(&record, &topic, &ranges(), body.to_string().as_bytes());
    let patched = |body: Value| try_patch(body).expect("it is taken");
    for (body, problem) in [
        (
            json!({"deliveryWithResourceIdentity": "x"}),
            "is not an object",
        ),
        (json!({"deliveryWithResourceIdentity": null}), "destination"),
        (
            json!({"deadLetterWithResourceIdentity": {"deadLetterDestination": null}}),
            "deadLetterDestination is missing",
        ),
    ] {
        let error = try_patch(body.clone()).expect_err("refused").to_string();
        assert!(error.contains(problem), "{body}: {error}");
    }
    for removed in ["deadLetterWithResourceIdentity", "deadLetterDestination"] {
        let changed = patched(json!({removed: null}));
        assert!(
            changed.dead_letter.is_none() && changed.dead_letter_identity().is_none(),
            "{removed}"
        );
        assert_eq!(
            changed.delivery_identity(),
            record.delivery_identity(),
            "{removed}"
        );
    }
    let plain = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9000/other"}});
    for (body, has_identity) in [
        (json!({"labels": ["x"]}), true),
        (
            json!({"destination": {"properties": {"maxEventsPerBatch": 7}}}),
            true,
        ),
        (
            json!({"deliveryWithResourceIdentity": {"destination": {"properties": {"maxEventsPerBatch": 7}}}}),
            true,
        ),
        (
            json!({"deliveryWithResourceIdentity": {"identity": {"type": "SystemAssigned"}, "destination": plain}}),
            true,
        ),
        (json!({"destination": plain}), false),
    ] {
        let changed = patched(body.clone());
        assert_eq!(
            changed.delivery_identity().is_some(),
            has_identity,
            "{body}"
        );
        assert_eq!(
            changed.dead_letter_identity(),
            record.dead_letter_identity(),
            "{body}"
        );
        assert_eq!(
            shown(&changed)["destination"].is_null(),
            has_identity,
            "{body}"
        );
        assert!(changed.webhook.token_audience.is_some(), "{body}");
    }
}

fn patched(body: Value) -> Result<SubscriptionRecord, String> {
    let existing = take(Schema::EventGrid, &full()).expect("it is taken");
    let body = body.to_string();
    read_patch(
        &existing,
        &topic_record(Schema::EventGrid),
        &ranges(),
        body.as_bytes(),
    )
    .map_err(|error| error.to_string())
}

#[test]
fn a_patch_is_flat_and_changes_what_it_names() {
    let record = patched(json!({
        "labels": ["x"],
        "retryPolicy": {"maxDeliveryAttempts": 3},
        "filter": {"includedEventTypes": null, "subjectEndsWith": ""},
        "destination": {"properties": {"maxEventsPerBatch": 7}},
        "deadLetterDestination": null
    }));
    expect![[r#"
        {
          "number": 0,
          "version": 0,
          "name": "to-shop",
          "webhook": {
            "endpoint_url": "https://example.com:8443/a/b?code=secret&x=1",
            "max_events_per_batch": 7,
            "preferred_batch_size_in_kilobytes": 128
          },
          "filter": {
            "subjectBeginsWith": "/a",
            "isSubjectCaseSensitive": true
          },
          "delivery_schema": "CloudEventSchemaV1_0",
          "retry": {
            "max_delivery_attempts": 3,
            "event_time_to_live_in_minutes": 60
          },
          "dead_letter": null,
          "dead_letter_in_probation": false,
          "on_gone": "retry",
          "labels": [
            "x"
          ]
        }"#]]
    .assert_eq(&pretty(&record.expect("it is taken")));
}

#[test]
fn an_empty_patch_changes_nothing() {
    let existing = take(Schema::EventGrid, &full()).expect("it is taken");
    assert_eq!(
        pretty(&patched(json!({})).expect("it is taken")),
        pretty(&existing)
    );
}

#[test]
fn a_wrong_patch_is_refused_like_a_wrong_put() {
    let lines: Vec<_> = [
        json!({"properties": {"labels": ["x"]}}),
        json!({"colour": "red"}),
        json!({"destination": {"endpointType": "EventHub", "properties": {"resourceId": "/r"}}}),
        json!({"filter": {"advancedFilters": [1]}}),
        json!({"retryPolicy": {"maxDeliveryAttempts": 99}}),
        json!({"destination": null}),
        json!([]),
    ]
    .into_iter()
    .map(|body| patched(body).expect_err("it is refused"))
    .collect();
    expect![[r#"
        properties is not allowed in a PATCH of an event subscription: destination, filter, labels and the others stand at the top
        colour cannot be read: unknown field `colour`, expected one of `destination`, `deliveryWithResourceIdentity`, `filter`, `labels`, `eventDeliverySchema`, `transform`, `retryPolicy`, `deadLetterDestination`, `deadLetterWithResourceIdentity`, `expirationTimeUtc`, `deadLetterInProbation`, `onGone`, `ordering`, `startsFrom`, `topic`, `provisioningState`, `endpointInService`
        destination.properties.resourceId is "/r"; expected an id that ends with /eventhubs/NAME
        filter.advancedFilters[0] is not an object with operatorType and key
        retryPolicy.maxDeliveryAttempts is 99; expected 1 to 30
        the body cannot be read: missing field `destination`
        the body is not a JSON object; expected a JSON object"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_subscription_that_asks_for_more_does_not_fit_a_smaller_edition() {
    let record = take(Schema::EventGrid, &full()).expect("it is taken");
    check_limits(&record, &ranges()).expect("it fits its own");
    let editions = editions();
    let error = check_limits(
        &record,
        editions.edition_ranges("short").expect("it is known"),
    )
    .expect_err("ten are more than five");
    expect![
        "properties.edition does not fit the event subscription to-shop, whose \
         maxDeliveryAttempts is 10; expected 1 to 5"
    ]
    .assert_eq(&error.to_string());
}

#[test]
fn the_view_has_gridhooks_own_properties_where_they_are_set() {
    let mut body = full();
    body["properties"]["deadLetterInProbation"] = json!(true);
    body["properties"]["onGone"] = json!("disable");
    body["properties"]["ordering"] = json!({"key": "data.Order.id"});
    let record = take(Schema::EventGrid, &body).expect("it is taken");
    assert!(record.dead_letter_in_probation && record.on_gone == OnGone::Disable);
    let topic = topic_record(Schema::EventGrid);
    let shown = |record| {
        serde_json::to_value(subscription_view(record, &topic, PathForm::Nested)).expect("JSON")["properties"].clone()
    };
    let used = shown(&record);
    assert_eq!(
        (&used["deadLetterInProbation"], &used["onGone"]),
        (&json!(true), &json!("disable"))
    );
    assert_eq!(
        used["ordering"],
        json!({"key": "data.Order.id", "onFailure": "skip"})
    );
    let without = shown(&take(Schema::EventGrid, &full()).expect("it is taken"));
    assert_eq!(
        (
            without.get("deadLetterInProbation"),
            without.get("onGone"),
            without.get("ordering")
        ),
        (None, None, None)
    );
    let flat = br#"{"onGone": "retry", "deadLetterInProbation": false, "ordering": null}"#;
    let back = read_patch(&record, &topic, &ranges(), flat).expect("it is taken");
    assert!(
        !back.dead_letter_in_probation && back.on_gone == OnGone::Retry && back.order_key.is_none()
    );
}
