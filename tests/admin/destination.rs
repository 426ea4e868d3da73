//! Batches and dead-letter destinations of event subscriptions, and properties that exclude each
//! other.

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use gridhook::admin::model::subscription::subscription_view;
use gridhook::{
    admin::model::{
        EditionRanges, ValueRange,
        subscription::{PathForm, read_patch, read_put},
    },
    config::Editions,
    deliver::AddressRules,
    event::{Event, EventRanges, Name, Schema, Seq, TextRange, Timestamp},
    policy::{batch::BatchLimits, dead_letter_store::NamedStores},
    record::subscription::SubscriptionRecord,
    subscription::{DeliveryContext, DeliveryPlan},
};
use serde_json::{Value, json};
use url::Url;

use super::{
    pretty, ranges,
    subscription::{take, webhook, with},
    topic_record,
};
use crate::spec::fact;

const URL: &str = "https://example.com/api/updates";

fn with_batch(settings: &Value) -> Value {
    let mut properties = settings.clone();
    properties["endpointUrl"] = URL.into();
    webhook(properties)
}

fn batch(record: &SubscriptionRecord) -> (u32, u32) {
    (
        record.webhook.max_events_per_batch,
        record.webhook.preferred_batch_size_in_kilobytes,
    )
}

/// As a client sees it, with the address put back.
fn as_client_sees(record: &SubscriptionRecord) -> Value {
    let view = subscription_view(record, &topic_record(Schema::EventGrid), PathForm::Nested);
    let mut view = serde_json::to_value(view).expect("it is JSON");
    view["properties"]["destination"]["properties"]["endpointUrl"] =
        record.webhook.endpoint_url.as_str().into();
    view
}

fn patched(existing: &SubscriptionRecord, body: &Value) -> Result<SubscriptionRecord, String> {
    let body = body.to_string();
    read_patch(
        existing,
        &topic_record(Schema::EventGrid),
        &ranges(),
        body.as_bytes(),
    )
    .map_err(|error| error.to_string())
}

#[test]
fn either_setting_alone_turns_batching_on_and_the_other_has_its_default() {
    let _rows = crate::spec::shows(&[
        "S000-077: Setting either one of the two batching settings in the event subscription JSON \
         turns batching on.",
        "S000-078: It is not required to give both batching settings when an event subscription is \
         created.",
        "S000-079: If only one batching setting is given, Event Grid uses a default value for the \
         other.",
        "S000-088, S003-025: An event subscription may be created with 1000 events per batch \
         together with a preferred batch size of 512 kilobytes.",
    ]);
    for (given, expected) in [
        (json!({}), (1, 64)),
        (
            json!({"maxEventsPerBatch": null, "preferredBatchSizeInKilobytes": null}),
            (1, 64),
        ),
        (json!({"maxEventsPerBatch": 10}), (10, 64)),
        (json!({"preferredBatchSizeInKilobytes": 512}), (5000, 512)),
        (json!({"preferredBatchSizeInKilobytes": 64}), (5000, 64)),
        (
            json!({"maxEventsPerBatch": 1000, "preferredBatchSizeInKilobytes": 512}),
            (1000, 512),
        ),
        (
            json!({"maxEventsPerBatch": 1, "preferredBatchSizeInKilobytes": 512}),
            (1, 512),
        ),
    ] {
        let record = take(Schema::EventGrid, &with_batch(&given)).expect("it is taken");
        assert_eq!(batch(&record), expected, "{given}");
        let again = take(Schema::EventGrid, &as_client_sees(&record))
            .expect("the response is accepted again");
        assert_eq!(pretty(&again), pretty(&record), "{given}");
        let url = as_client_sees(&record)["properties"]["destination"]["properties"]["endpointUrl"]
            .clone();
        assert_eq!(url, URL);
        let url: Url = URL.parse().expect("a URL");
        fact(
            "S000-086",
            &json!({"scheme": url.scheme(), "path": url.path()}),
        );
    }
}

/// The result that the core receives for the batch, and the media type of a request with one event.
fn served(given: &Value) -> (BatchLimits, String) {
    let mut body = with_batch(given);
    body["properties"]["eventDeliverySchema"] = "CloudEventSchemaV1_0".into();
    let record = take(Schema::CloudEvents, &body).expect("it is taken");
    let delivery = DeliveryContext {
        addresses: AddressRules::loopback(),
        response_timeout: Duration::from_secs(30),
        late_timeout: Duration::from_secs(180),
        hold_after_failing: None,
        reconnect_interval: Duration::ZERO,
        concurrency_max: 1,
        leases_max: 100,
        ordered_events_max: 100_000,
        connections: gridhook::deliver::resource::Connections::default(),
        client_certificates: gridhook::deliver::ClientCertificates::default(),
        named_stores: NamedStores::default(),
        waits: Arc::default(),
    };
    let edition = Editions::load(None, None)
        .expect("they are sound")
        .get("current")
        .expect("it has this one");
    let plan = DeliveryPlan::new(Arc::new(record), Schema::CloudEvents, edition, &delivery)
        .expect("it can be served");
    let wire = r#"{"specversion":"1.0","id":"a","source":"/s","type":"T"}"#;
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    let event = Event::new(
        Seq(1),
        Timestamp(0),
        Schema::CloudEvents,
        wire.into(),
        whole,
        EventRanges::default(),
    );
    let request = gridhook::deliver::build(plan.webhook().expect("a webhook"), &[event], 0)
        .expect("it can be made");
    let kind = request
        .lines
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    (plan.settings.batch, kind.expect("there is one").to_owned())
}

#[test]
fn a_batch_is_sent_as_one_in_the_sizes_that_were_asked_for_and_without_batching_there_is_none() {
    let _rows = crate::spec::shows(&[
        "S000-064, S003-015: Preferred batch size in kilobytes is the target size of a batch, in \
         kilobytes.",
        "S000-077: Setting either one of the two batching settings in the event subscription JSON \
         turns batching on.",
        "S000-088, S003-025: An event subscription may be created with 1000 events per batch \
         together with a preferred batch size of 512 kilobytes.",
    ]);
    let one = "application/cloudevents+json";
    let batch = "application/cloudevents-batch+json";
    for (given, events_max, kilobytes, kind) in [
        (json!({}), 1, 64, one),
        (
            json!({"maxEventsPerBatch": 1, "preferredBatchSizeInKilobytes": 64}),
            1,
            64,
            one,
        ),
        (
            json!({"maxEventsPerBatch": 1000, "preferredBatchSizeInKilobytes": 512}),
            1000,
            512,
            batch,
        ),
        (json!({"preferredBatchSizeInKilobytes": 4}), 5000, 4, batch),
        (json!({"maxEventsPerBatch": 2}), 2, 64, batch),
    ] {
        let (limits, view) = served(&given);
        assert_eq!(
            limits,
            BatchLimits {
                events_max,
                bytes_preferred: kilobytes * 1024,
                schema: Schema::CloudEvents
            },
            "{given}"
        );
        assert_eq!(view, format!("{kind}; charset=utf-8"), "{given}");
    }
}

#[test]
fn the_defaults_of_batching_are_settings() {
    let _rows = crate::spec::shows(&[
        "S000-080: The default values of the batching settings are configurable and can be \
         overridden.",
    ]);
    let ranges = EditionRanges {
        events_where_only_kilobytes: 20,
        kilobytes_per_batch: ValueRange {
            min: 1,
            max: 1024,
            default: 128,
        },
        ..ranges()
    };
    let batch_of = |given: Value| {
        let body = with_batch(&given).to_string();
        let record = read_put(
            &Name::new("to-shop"),
            &topic_record(Schema::EventGrid),
            None,
            &ranges,
            body.as_bytes(),
        );
        batch(&record.expect("it is taken"))
    };
    assert_eq!(
        batch_of(json!({"preferredBatchSizeInKilobytes": 5})),
        (20, 5)
    );
    assert_eq!(batch_of(json!({"maxEventsPerBatch": 5})), (5, 128));
    assert_eq!(batch_of(json!({})), (1, 128));
}

#[test]
fn a_patch_with_a_size_turns_batching_on_and_changes_no_count_that_was_asked_for() {
    let patch_of = |given: Value, patch: Value| {
        let existing = take(Schema::EventGrid, &with_batch(&given)).expect("it is taken");
        batch(
            &patched(&existing, &json!({"destination": {"properties": patch}}))
                .expect("it is taken"),
        )
    };
    let size = || json!({"preferredBatchSizeInKilobytes": 7});
    assert_eq!(patch_of(json!({}), size()), (5000, 7));
    assert_eq!(patch_of(json!({"maxEventsPerBatch": 10}), size()), (10, 7));
    assert_eq!(
        patch_of(
            json!({}),
            json!({"maxEventsPerBatch": 1, "preferredBatchSizeInKilobytes": 7})
        ),
        (1, 7)
    );
    assert_eq!(
        patch_of(json!({}), json!({"maxEventsPerBatch": 10})),
        (10, 64)
    );
    assert_eq!(patch_of(size(), json!({"maxEventsPerBatch": 10})), (10, 7));
    assert_eq!(patch_of(size(), json!({})), (5000, 7));
}

const ACCOUNT: &str =
    "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/store";

fn place(properties: &Value) -> Value {
    json!({"endpointType": "StorageBlob", "properties": properties})
}

fn whole(container: &str) -> String {
    format!("{ACCOUNT}/blobServices/default/containers/{container}")
}

#[test]
fn the_container_of_dead_letters_may_be_named_in_the_resource_id() {
    let _rows = crate::spec::shows(&[
        "S000-113, S002-049, S003-090: The dead-letter container endpoint has the format \
         /subscriptions/<subscription-id>/resourceGroups/<resource-group-name>/providers/\
         Microsoft.Storage/storageAccounts/<storage-name>/blobServices/default/containers/\
         <container-name>.",
    ]);
    let lower = whole("letters").replace("blobServices", "blobservices");
    for properties in [
        json!({"resourceId": ACCOUNT, "blobContainerName": "letters"}),
        json!({"resourceId": whole("letters")}),
        json!({"resourceId": lower}),
        json!({"resourceId": whole("letters"), "blobContainerName": "letters"}),
    ] {
        let record = take(
            Schema::EventGrid,
            &with("deadLetterDestination", place(&properties)),
        )
        .expect("it is taken");
        let destination = record.dead_letter.as_ref().expect("there is one");
        assert_eq!(
            (
                destination.resource_id.as_str(),
                destination.container.as_str()
            ),
            (ACCOUNT, "letters")
        );
        let view = as_client_sees(&record);
        let expected = json!({"resourceId": ACCOUNT, "blobContainerName": "letters"});
        assert_eq!(
            view["properties"]["deadLetterDestination"],
            place(&expected),
            "in the two fields of the resource"
        );
        assert_eq!(
            pretty(&take(Schema::EventGrid, &view).expect("it is taken back")),
            pretty(&record)
        );
    }
}

#[test]
fn a_patch_may_name_another_container_in_the_resource_id() {
    let set = json!({"resourceId": ACCOUNT, "blobContainerName": "letters"});
    let existing = take(
        Schema::EventGrid,
        &with("deadLetterDestination", place(&set)),
    )
    .expect("it is taken");
    let container = |properties: Value| {
        let record = patched(
            &existing,
            &json!({"deadLetterDestination": place(&properties)}),
        );
        record.map(|record| record.dead_letter.expect("there is one").container)
    };
    assert_eq!(
        container(json!({"resourceId": whole("others")})).as_deref(),
        Ok("others")
    );
    assert_eq!(
        container(json!({"blobContainerName": "others"})).as_deref(),
        Ok("others")
    );
    assert_eq!(
        container(json!({"resourceId": "/another"})).as_deref(),
        Ok("letters")
    );
}

#[test]
fn a_container_that_is_named_twice_or_not_at_all_or_wrongly_is_refused() {
    let refusals: Vec<String> = [
        json!({"resourceId": whole("letters"), "blobContainerName": "others"}),
        json!({"resourceId": ACCOUNT}),
        json!({"resourceId": whole("")}),
        json!({"resourceId": whole("letters/../../etc")}),
        json!({"resourceId": "/blobServices/default/containers/letters"}),
        json!({"blobContainerName": "letters"}),
    ]
    .map(|properties| {
        take(
            Schema::EventGrid,
            &with("deadLetterDestination", place(&properties)),
        )
        .expect_err("it is refused")
    })
    .into();
    expect![[r#"
        properties.deadLetterDestination.properties.blobContainerName is "others", but resourceId ends with the container "letters"; expected one
        properties.deadLetterDestination.properties.blobContainerName is missing; expected a name here, or a resourceId that ends with /blobServices/default/containers/NAME
        properties.deadLetterDestination.properties.resourceId names the container ""; expected 3 to 63 lower-case letters, digits and single hyphens between them
        properties.deadLetterDestination.properties.resourceId names the container "letters/../../etc"; expected 3 to 63 lower-case letters, digits and single hyphens between them
        properties.deadLetterDestination.properties.resourceId is empty, or has no storage account before the container; expected a resource id or an address of a store
        properties.deadLetterDestination.properties cannot be read: missing field `resourceId`"#]]
    .assert_eq(&refusals.join("\n"));
}
