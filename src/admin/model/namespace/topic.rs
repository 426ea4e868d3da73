//! Bodies and views of namespace topics.

use serde_json::Value;

use crate::model::{
    CheckResult, InvalidRequest, ValueRange, check_same_name, drop_read_only, read, refuse_value,
    system_data::system_data_view,
    tolerance::clear_empty,
    topic::{TopicSpec, ingress::duplicate_window, is_schema, schema_name},
};
use gridhook_api::{
    duration::format_duration,
    namespace::{NamespaceTopic, NamespaceTopicProperties},
    resource::ReadOnly,
    topic::TopicProperties,
};
use gridhook_event::Schema;
use gridhook_record::{subscription::SubscriptionRecord, topic::TopicRecord};

/// Default edition of a new topic.
pub(in crate::model) const EDITION: &str = "namespace";

/// Allowed values of `eventRetentionInDays`, as in Azure.
const RETENTION_DAYS: ValueRange = ValueRange {
    min: 1,
    max: 7,
    default: 1,
};

/// The only value of `publisherType`, as in Azure.
const CUSTOM: &str = "Custom";

/// A topic has an endpoint in some responses of Azure, which ignores a name.
const READ_ONLY: [&str; 2] = ["properties.endpoint", "properties.name"];

/// Optional properties for which empty text means no value.
const EMPTY: [&str; 4] = [
    "properties.publisherType",
    "properties.inputSchema",
    "properties.duplicateDetectionHistoryTimeWindow",
    "properties.edition",
];

/// Refuses another value than the only one.
fn check_only(
    at: &str,
    given: Option<&str>,
    only: &str,
    is_only: impl Fn(&str) -> bool,
) -> CheckResult {
    match given.filter(|given| !is_only(given)) {
        Some(other) => Err(InvalidRequest::unexpected(at, other, only)),
        None => Ok(()),
    }
}

/// Reads the body of a namespace topic.
pub(in crate::model) fn read_spec(name: &str, mut value: Value) -> CheckResult<TopicSpec> {
    drop_read_only(&mut value, &READ_ONLY);
    clear_empty(&mut value, &EMPTY);
    let body: NamespaceTopic = read(value)?;
    check_same_name(body.name.as_deref(), name)?;
    let properties = body.properties.unwrap_or_default();
    let is_custom = |given: &str| given.eq_ignore_ascii_case(CUSTOM);
    let publisher = properties.publisher_type.as_deref();
    check_only("properties.publisherType", publisher, CUSTOM, is_custom)?;
    let is_cloud_events = |given: &str| is_schema(Schema::CloudEvents, given);
    let schema = properties.input_schema.as_deref();
    let only = schema_name(Schema::CloudEvents);
    check_only("properties.inputSchema", schema, only, is_cloud_events)?;
    let at = "properties.eventRetentionInDays";
    let retention_days = RETENTION_DAYS.check_value(at, properties.event_retention_in_days)?;
    let window = properties.duplicate_detection_history_time_window;
    window.as_deref().map(duplicate_window).transpose()?;
    let properties = TopicProperties {
        duplicate_detection_history_time_window: window,
        schema_validation: properties.schema_validation,
        partition_count: properties.partition_count,
        edition: properties.edition,
        ..TopicProperties::default()
    };
    Ok(TopicSpec::in_namespace(properties, retention_days))
}

/// The settable properties of a record.
pub(in crate::model) fn settable(record: &TopicRecord) -> NamespaceTopic {
    let window = record.ingress.duplicate_window_s;
    NamespaceTopic {
        properties: Some(NamespaceTopicProperties {
            publisher_type: Some(CUSTOM.to_owned()),
            input_schema: Some(schema_name(record.input_schema).to_owned()),
            event_retention_in_days: Some(retention_days(record).into()),
            duplicate_detection_history_time_window: window.map(format_duration),
            schema_validation: record.ingress.declared_schema_validation(),
            partition_count: record.declared_partition_count(),
            edition: Some(record.edition.clone()),
            provisioning_state: ReadOnly::default(),
        }),
        ..NamespaceTopic::default()
    }
}

/// Retention of the events of a topic.
pub fn retention_days(topic: &TopicRecord) -> u32 {
    topic
        .namespace
        .as_ref()
        .map_or(RETENTION_DAYS.default, |namespace| namespace.retention_days)
}

/// Maximum time to live of an event subscription, in minutes.
pub fn minutes_max(topic: &TopicRecord) -> u32 {
    retention_days(topic) * 24 * 60
}

/// Checks that the time to live of an event subscription fits a new retention of its topic.
pub fn check_retention(subscription: &SubscriptionRecord, topic: &TopicRecord) -> CheckResult {
    let asked = subscription.retry.event_time_to_live_in_minutes;
    let most = minutes_max(topic);
    if asked <= most {
        return Ok(());
    }
    let days = retention_days(topic);
    let name = &subscription.name;
    let problem = format!(
        "is {days}; the eventTimeToLive of the event subscription {name} is {asked} minutes, and \
         expected {most}"
    );
    refuse_value("properties.eventRetentionInDays", problem)
}

pub fn namespace_topic_view(record: &TopicRecord) -> NamespaceTopic {
    let mut topic = settable(record);
    topic.id = record.resource_id().into();
    topic.name = Some(record.name.to_string());
    topic.kind = record.kind().resource_type().to_owned().into();
    topic.system_data = system_data_view(record.system_data.as_ref());
    let properties = topic.properties.get_or_insert_default();
    properties.provisioning_state = "Succeeded".to_owned().into();
    topic
}
