//! Bodies and views of topics and domains.

pub(super) mod ingress;
mod view;

use crate::model::refuse_value;
use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use self::ingress::settle_ingress;
pub use self::view::topic_view;
use super::{
    CheckResult, Editions, InvalidRequest, UnsupportedProperty, check_name, check_same_name,
    check_tags, drop_read_only, merge_resource, namespace, parse_body, read, refuse_unsupported,
    tolerance::{FORMER_CLOUD_EVENTS, clear_empty},
    value_of,
};
use gridhook_api::{
    duration::format_duration,
    topic::{MappingBody, MappingType, RegenerateKey, Topic, TopicProperties},
};
use gridhook_event::{Name, Schema};
use gridhook_record::{
    namespace::NamespaceRecord,
    topic::{
        AccessKeys, ArmScope, DomainTopics, NamespaceMembership, StoredTopicProperties, TopicKind,
        TopicRecord,
    },
};

pub(super) const LOCATION: &str = "local";

/// Maximum length of a segment of a dead letter's path.
const SCOPE_PART_BYTES_MAX: usize = 200;

const SCHEMAS: [Schema; 3] = [Schema::EventGrid, Schema::CloudEvents, Schema::Custom];

/// Read-only properties, and a name that Azure ignores.
const READ_ONLY: [&str; 3] = [
    "identity.principalId",
    "identity.tenantId",
    "properties.name",
];

const UNSUPPORTED: [UnsupportedProperty; 3] = [
    UnsupportedProperty {
        at: "properties.privateEndpointConnections",
        harmless: &["[]"],
        because: "the address that the server listens on decides who reaches it",
    },
    UnsupportedProperty {
        at: "properties.encryption",
        harmless: &[],
        because: "encrypt the disk of the data folder",
    },
    UnsupportedProperty {
        at: "properties.platformCapabilities",
        harmless: &[r#"{"confidentialCompute":{"mode":"Disabled"}}"#],
        because: "there is no confidential computing",
    },
];

/// Optional properties for which empty text means no value.
const EMPTY: [&str; 8] = [
    "location",
    "kind",
    "properties.inputSchema",
    "properties.publicNetworkAccess",
    "properties.dataResidencyBoundary",
    "properties.minimumTlsVersionAllowed",
    "properties.duplicateDetectionHistoryTimeWindow",
    "properties.edition",
];

/// The specification of a topic, a domain or a namespace topic from a body. Defaults depend on
/// whether the topic exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    kind: TopicKind,
    location: Option<String>,
    tags: BTreeMap<String, String>,
    input_schema: Option<Schema>,
    properties: TopicProperties,
    azure_properties: StoredTopicProperties,
    /// `eventRetentionInDays` of a namespace topic.
    retention_days: u32,
}

impl TopicSpec {
    /// Reads the body of a PUT of the topic `name`.
    pub fn from_put(kind: TopicKind, name: &str, body: &[u8]) -> CheckResult<Self> {
        Self::from_value(kind, name, parse_body(body)?)
    }

    /// Reads the body of a PATCH of `record`.
    pub fn from_patch(record: &TopicRecord, body: &[u8]) -> CheckResult<Self> {
        let mut whole = settable_json(record);
        merge_resource(&mut whole, parse_body(body)?);
        let mut spec = Self::from_value(record.kind(), record.name.as_str(), whole)?;
        if record.kind() == TopicKind::NamespaceTopic {
            // They are resources of their own, and no property of the topic.
            spec.keep_event_types(record);
        }
        Ok(spec)
    }

    /// A topic of a namespace, which has only these properties.
    pub(super) fn in_namespace(properties: TopicProperties, retention_days: u32) -> Self {
        Self {
            kind: TopicKind::NamespaceTopic,
            location: None,
            tags: BTreeMap::new(),
            input_schema: Some(Schema::CloudEvents),
            properties,
            azure_properties: StoredTopicProperties::default(),
            retention_days,
        }
    }

    fn from_value(kind: TopicKind, name: &str, mut value: Value) -> CheckResult<Self> {
        if kind == TopicKind::NamespaceTopic {
            return namespace::topic::read_spec(name, value);
        }
        drop_read_only(&mut value, &READ_ONLY);
        clear_empty(&mut value, &EMPTY);
        refuse_unsupported(&mut value, &UNSUPPORTED)?;
        let body: Topic = read(value)?;
        check_same_name(body.name.as_deref(), name)?;
        let mut properties = body.properties.unwrap_or_default();
        for (key, given) in [
            (
                "properties.autoCreateTopicWithFirstSubscription",
                properties.auto_create_topic_with_first_subscription,
            ),
            (
                "properties.autoDeleteTopicWithLastSubscription",
                properties.auto_delete_topic_with_last_subscription,
            ),
        ] {
            if kind == TopicKind::Topic && given.is_some() {
                return refuse_value(
                    key,
                    "applies only to domains, and this is a topic; leave it out",
                );
            }
        }
        let tags = body.tags.unwrap_or_default();
        check_tags(&tags)?;
        Ok(Self {
            kind,
            location: body.location,
            tags,
            input_schema: properties
                .input_schema
                .as_deref()
                .map(schema_of)
                .transpose()?,
            azure_properties: StoredTopicProperties {
                sku: body.sku,
                kind: body.kind,
                extended_location: body.extended_location,
                identity: body.identity,
                data_residency_boundary: properties.data_residency_boundary,
                minimum_tls_version_allowed: properties.minimum_tls_version_allowed,
                event_type_info: properties.event_type_info.take(),
            },
            properties,
            retention_days: 0,
        })
    }

    /// Keeps the event types of `existing`, if the body omits them: they may have been put one by
    /// one.
    pub fn keep_event_types(&mut self, existing: &TopicRecord) {
        if self.azure_properties.event_type_info.is_none() {
            self.azure_properties
                .event_type_info
                .clone_from(&existing.azure_properties.event_type_info);
        }
    }

    /// Checks `partitionCount` on a server with this number of shards. The count of an existing
    /// topic never changes.
    pub fn check_partition_count(
        &self,
        shards: u32,
        existing: Option<&TopicRecord>,
    ) -> CheckResult {
        check_partition_count(self.kind, self.properties.partition_count, shards, existing)
    }

    /// A new topic or domain.
    pub fn create_record(
        self,
        name: &str,
        scope: ArmScope,
        keys: AccessKeys,
        editions: &Editions,
    ) -> CheckResult<TopicRecord> {
        let what = match self.kind {
            TopicKind::Topic | TopicKind::NamespaceTopic => "the topic's name",
            TopicKind::Domain => "the domain's name",
        };
        check_top_name(what, name)?;
        check_scope_part("the subscription in the path", &scope.subscription)?;
        check_scope_part("the resource group in the path", &scope.resource_group)?;
        self.new_record(name, scope, keys, &editions.default, editions, LOCATION)
    }

    /// A new topic of `namespace`.
    pub fn create_in_namespace(
        self,
        name: &str,
        namespace: &NamespaceRecord,
        keys: AccessKeys,
        editions: &Editions,
    ) -> CheckResult<TopicRecord> {
        check_name("the topic's name", name, 50)?;
        let membership = NamespaceMembership {
            name: namespace.name.clone(),
            retention_days: self.retention_days,
        };
        let scope = namespace.scope.clone();
        let edition = namespace::topic::EDITION;
        let location = &namespace.location;
        let record = self.new_record(name, scope, keys, edition, editions, location)?;
        Ok(TopicRecord {
            namespace: Some(membership),
            ..record
        })
    }

    /// The record of a new topic, with this edition and location if the body has none.
    fn new_record(
        self,
        name: &str,
        scope: ArmScope,
        keys: AccessKeys,
        default_edition: &str,
        editions: &Editions,
        location: &str,
    ) -> CheckResult<TopicRecord> {
        let domain = self.domain_topics(Some(DomainTopics {
            auto_create: true,
            auto_delete: true,
        }));
        let edition = self.properties.edition.clone();
        let edition = edition.unwrap_or_else(|| default_edition.to_owned());
        editions.edition_ranges(&edition)?;
        let input_schema = self.input_schema.unwrap_or_default();
        let record = TopicRecord {
            name: Name::new(name),
            scope,
            partitions: Vec::new(),
            input_schema,
            keys,
            partition_count: self.properties.partition_count.unwrap_or(1),
            ingress: settle_ingress(self.properties, self.kind, input_schema, None)?,
            edition,
            location: self.location.unwrap_or_else(|| location.to_owned()),
            tags: self.tags,
            domain,
            namespace: None,
            metric_resource_id: String::new(),
            azure_properties: self.azure_properties,
            system_data: None,
        };
        check_duplicate_window(record)
    }

    /// `existing` with the changes. Keys, name and scope never change. Schema, mapping, edition,
    /// location and the automatic domain topics are kept if the body omits them: Azure's clients do
    /// not know the edition and must not reset it.
    pub fn update_record(
        self,
        existing: &TopicRecord,
        editions: &Editions,
    ) -> CheckResult<TopicRecord> {
        if let Some(requested) = self
            .input_schema
            .filter(|requested| *requested != existing.input_schema)
        {
            let requested = schema_name(requested);
            let is = schema_name(existing.input_schema);
            return refuse_value(
                "properties.inputSchema",
                format!("is {requested}; the schema of a topic cannot be changed from {is}"),
            );
        }
        let domain = self.domain_topics(existing.domain);
        let namespace = existing.namespace.clone().map(|of| NamespaceMembership {
            retention_days: self.retention_days,
            ..of
        });
        let edition = self.properties.edition.clone();
        let edition = edition.unwrap_or_else(|| existing.edition.clone());
        editions.edition_ranges(&edition)?;
        check_duplicate_window(TopicRecord {
            edition,
            ingress: settle_ingress(
                self.properties,
                self.kind,
                existing.input_schema,
                existing.ingress.mapping.as_ref(),
            )?,
            location: self.location.unwrap_or_else(|| existing.location.clone()),
            tags: self.tags,
            domain,
            namespace,
            azure_properties: self.azure_properties,
            ..existing.clone()
        })
    }

    fn domain_topics(&self, otherwise: Option<DomainTopics>) -> Option<DomainTopics> {
        let otherwise = otherwise.filter(|_| self.kind == TopicKind::Domain)?;
        Some(DomainTopics {
            auto_create: self
                .properties
                .auto_create_topic_with_first_subscription
                .unwrap_or(otherwise.auto_create),
            auto_delete: self
                .properties
                .auto_delete_topic_with_last_subscription
                .unwrap_or(otherwise.auto_delete),
        })
    }
}

/// Checks the requested partition count of a new topic of this kind, or of an existing topic.
fn check_partition_count(
    kind: TopicKind,
    requested: Option<u32>,
    shards: u32,
    existing: Option<&TopicRecord>,
) -> CheckResult {
    let Some(given) = requested else {
        return Ok(());
    };
    let refuse = |problem: String| refuse_value("properties.partitionCount", problem);
    match existing.map(|existing| existing.partition_count) {
        Some(is) if is != given => refuse(format!(
            "is {given}; the partition count of a topic cannot be changed from {is}"
        )),
        Some(_) => Ok(()),
        None if given == 1 || (given == shards && kind != TopicKind::Domain) => Ok(()),
        None if kind == TopicKind::Domain => refuse(format!("is {given}; expected 1 for a domain")),
        None if shards == 1 => refuse(format!(
            "is {given}; expected 1 on a server without several shards (cluster.shards)"
        )),
        None => refuse(format!(
            "is {given}; expected 1 or {shards}, the number of shards (cluster.shards)"
        )),
    }
}

/// Refuses duplicate detection for a spread topic: each shard would only know the ids of its own
/// part.
fn check_duplicate_window(record: TopicRecord) -> CheckResult<TopicRecord> {
    if record.is_spread() && record.ingress.duplicate_window_s.is_some() {
        return refuse_value(
            "properties.duplicateDetectionHistoryTimeWindow",
            "is given; a spread topic has no duplicate detection; leave it out, or create a topic \
             with \"partitionCount\": 1",
        );
    }
    Ok(record)
}

/// Checks the name of a topic, domain or namespace; some names are reserved by Event Grid.
pub(super) fn check_top_name(what: &str, name: &str) -> CheckResult {
    check_name(what, name, 50)?;
    let lower = name.to_ascii_lowercase();
    match ["microsoft", "eventgrid", "system"]
        .iter()
        .find(|taken| lower.starts_with(**taken))
    {
        Some(taken) => {
            let problem = format!(
                "is \"{name}\"; names that begin with \"{taken}\" are reserved by Event Grid"
            );
            refuse_value(what, problem)
        }
        None => Ok(()),
    }
}

/// Checks the id of an Azure subscription or the name of a resource group. Both are part of every
/// event's `topic`, and a resource group can be a folder of dead letters. So they need no escaping,
/// and do not end with a dot, which not every store accepts and Azure refuses too.
pub(super) fn check_scope_part(what: &str, given: &str) -> CheckResult {
    let legal = (1..=90).contains(&given.chars().count())
        && given.len() <= SCOPE_PART_BYTES_MAX
        && given
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')'))
        && !given.ends_with('.');
    if legal {
        return Ok(());
    }
    let expected = format!(
        "1 to 90 letters, digits and -_.() of {SCOPE_PART_BYTES_MAX} bytes in all, \
         without a . at the end"
    );
    Err(InvalidRequest::unexpected(what, given, expected))
}

fn schema_of(given: &str) -> CheckResult<Schema> {
    SCHEMAS
        .into_iter()
        .find(|schema| is_schema(*schema, given))
        .ok_or_else(|| {
            let allowed = SCHEMAS.map(schema_name).join(", ");
            InvalidRequest::unexpected("properties.inputSchema", given, allowed)
        })
}

/// Whether a text is the name of a schema, perhaps a former one.
pub(super) fn is_schema(schema: Schema, given: &str) -> bool {
    let is_former = given.eq_ignore_ascii_case(FORMER_CLOUD_EVENTS);
    schema_name(schema).eq_ignore_ascii_case(given) || is_former && schema == Schema::CloudEvents
}

/// The name of an input schema.
pub(crate) fn schema_name(schema: Schema) -> &'static str {
    match schema {
        Schema::EventGrid => "EventGridSchema",
        Schema::CloudEvents => "CloudEventSchemaV1_0",
        Schema::Custom => "CustomEventSchema",
    }
}

/// The settable properties as JSON.
pub(crate) fn settable_json(record: &TopicRecord) -> Value {
    match record.namespace {
        Some(_) => value_of(&namespace::topic::settable(record)),
        None => value_of(&settable_body(record)),
    }
}

/// The settable properties of a record.
fn settable_body(record: &TopicRecord) -> Topic {
    let StoredTopicProperties {
        sku,
        kind,
        extended_location,
        identity,
        data_residency_boundary,
        minimum_tls_version_allowed,
        event_type_info,
    } = record.azure_properties.clone();
    let ingress = &record.ingress;
    let mapping = ingress.mapping.clone();
    let domain = record.domain;
    Topic {
        location: Some(record.location.clone()),
        tags: Some(record.tags.clone()),
        sku,
        kind,
        extended_location,
        identity,
        properties: Some(TopicProperties {
            input_schema: Some(schema_name(record.input_schema).to_owned()),
            edition: Some(record.edition.clone()),
            disable_local_auth: Some(ingress.disable_local_auth),
            public_network_access: Some(ingress.public_network_access),
            inbound_ip_rules: Some(ingress.inbound_ip_rules.clone()),
            input_schema_mapping: mapping.map(|properties| MappingBody {
                input_schema_mapping_type: MappingType::Json,
                properties,
            }),
            duplicate_detection_history_time_window: ingress
                .duplicate_window_s
                .map(format_duration),
            schema_validation: ingress.declared_schema_validation(),
            partition_count: record.declared_partition_count(),
            data_residency_boundary,
            minimum_tls_version_allowed,
            event_type_info,
            auto_create_topic_with_first_subscription: domain.map(|topics| topics.auto_create),
            auto_delete_topic_with_last_subscription: domain.map(|topics| topics.auto_delete),
            ..TopicProperties::default()
        }),
        ..Topic::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyName {
    Key1,
    Key2,
}

impl KeyName {
    /// Reads the body of `regenerateKey`.
    pub fn read(body: &[u8]) -> CheckResult<Self> {
        match read::<RegenerateKey>(parse_body(body)?)?.key_name {
            name if name.eq_ignore_ascii_case("key1") => Ok(Self::Key1),
            name if name.eq_ignore_ascii_case("key2") => Ok(Self::Key2),
            other => Err(InvalidRequest::unexpected(
                "keyName",
                &other,
                "key1 or key2",
            )),
        }
    }
}
