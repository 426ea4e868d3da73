//! Bodies and views of namespace topics.

use crate::model::refuse_value;
use serde_json::Value;

use crate::model::system_data::system_data_view;
use crate::model::{
    Editions, InvalidRequest, ValueRange, check_name, check_same_name, drop_read_only, merge_patch,
    parse_body, read,
    tolerance::clear_empty,
    topic::{
        check_duplicate_window, check_partition_count, ingress::duplicate_window, is_schema,
        schema_name,
    },
    value_of,
};
use gridhook_api::{
    duration::format_duration,
    namespace::{NamespaceTopic, NamespaceTopicProperties},
    resource::ReadOnly,
};
use gridhook_event::{Name, Schema};
use gridhook_record::{
    ingress::{IngressSettings, SchemaValidation},
    namespace::NamespaceRecord,
    subscription::SubscriptionRecord,
    topic::{AccessKeys, NamespaceMembership, StoredTopicProperties, TopicKind, TopicRecord},
};

/// Default edition of a new topic.
const EDITION: &str = "namespace";

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
) -> Result<(), InvalidRequest> {
    match given.filter(|given| !is_only(given)) {
        Some(other) => Err(InvalidRequest::unexpected(at, other, only)),
        None => Ok(()),
    }
}

/// The specification of a namespace topic from a body. Defaults depend on whether the topic exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceTopicSpec {
    retention_days: u32,
    duplicate_window_s: Option<u32>,
    schema_validation: SchemaValidation,
    partition_count: Option<u32>,
    edition: Option<String>,
}

impl NamespaceTopicSpec {
    /// Reads the body of a PUT of the topic `name`.
    pub fn from_put(name: &str, body: &[u8]) -> Result<Self, InvalidRequest> {
        Self::from_value(name, parse_body(body)?)
    }

    /// Reads the body of a PATCH of `record`.
    pub fn from_patch(record: &TopicRecord, body: &[u8]) -> Result<Self, InvalidRequest> {
        let mut whole = settable_json(record);
        merge_patch(&mut whole, parse_body(body)?);
        Self::from_value(record.name.as_str(), whole)
    }

    fn from_value(name: &str, mut value: Value) -> Result<Self, InvalidRequest> {
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
        let duplicate_window_s = window.map(|given| duplicate_window(&given)).transpose()?;
        let schema_validation = properties.schema_validation.unwrap_or_default();
        let partition_count = properties.partition_count;
        let edition = properties.edition;
        Ok(Self {
            retention_days,
            duplicate_window_s,
            schema_validation,
            partition_count,
            edition,
        })
    }

    /// Checks the partition count on a server with this number of shards.
    pub fn check_partition_count(
        &self,
        shards: u32,
        existing: Option<&TopicRecord>,
    ) -> Result<(), InvalidRequest> {
        check_partition_count(
            TopicKind::NamespaceTopic,
            self.partition_count,
            shards,
            existing,
        )
    }

    /// A new topic of `namespace`.
    pub fn create_record(
        self,
        name: &str,
        namespace: &NamespaceRecord,
        keys: AccessKeys,
        editions: &Editions,
    ) -> Result<TopicRecord, InvalidRequest> {
        check_name("the topic's name", name, 50)?;
        let edition = self.edition.clone().unwrap_or_else(|| EDITION.to_owned());
        editions.edition_ranges(&edition)?;
        check_duplicate_window(TopicRecord {
            name: Name::new(name),
            scope: namespace.scope.clone(),
            partitions: Vec::new(),
            input_schema: Schema::CloudEvents,
            keys,
            ingress: self.ingress_settings(IngressSettings::default()),
            edition,
            location: namespace.location.clone(),
            tags: Default::default(),
            domain: None,
            namespace: Some(NamespaceMembership {
                name: namespace.name.clone(),
                retention_days: self.retention_days,
            }),
            partition_count: self.partition_count.unwrap_or(1),
            metric_resource_id: String::new(),
            azure_properties: StoredTopicProperties::default(),
            system_data: None,
        })
    }

    fn ingress_settings(&self, of: IngressSettings) -> IngressSettings {
        let Self {
            duplicate_window_s,
            schema_validation,
            ..
        } = *self;
        IngressSettings {
            duplicate_window_s,
            schema_validation,
            ..of
        }
    }

    /// `existing` with the changes of retention, duplicate detection, validation and edition.
    pub fn update_record(
        self,
        existing: &TopicRecord,
        editions: &Editions,
    ) -> Result<TopicRecord, InvalidRequest> {
        let edition = self
            .edition
            .clone()
            .unwrap_or_else(|| existing.edition.clone());
        editions.edition_ranges(&edition)?;
        let namespace = existing.namespace.clone();
        let namespace = namespace.map(|of| NamespaceMembership {
            retention_days: self.retention_days,
            ..of
        });
        let ingress = self.ingress_settings(existing.ingress.clone());
        check_duplicate_window(TopicRecord {
            edition,
            namespace,
            ingress,
            ..existing.clone()
        })
    }
}

/// The settable properties as JSON.
pub(crate) fn settable_json(record: &TopicRecord) -> Value {
    value_of(&settable(record))
}

fn settable(record: &TopicRecord) -> NamespaceTopic {
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
pub fn check_retention(
    subscription: &SubscriptionRecord,
    topic: &TopicRecord,
) -> Result<(), InvalidRequest> {
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
    topic.kind = "Microsoft.EventGrid/namespaces/topics".to_owned().into();
    topic.system_data = system_data_view(record.system_data.as_ref());
    let properties = topic.properties.get_or_insert_default();
    properties.provisioning_state = "Succeeded".to_owned().into();
    topic
}
