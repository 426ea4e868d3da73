//! Bodies and views of namespaces; those of their topics are in [`topic`].

pub mod topic;
mod view;

use std::collections::BTreeMap;

use serde_json::Value;

pub use self::view::namespace_view;
use super::{
    CheckResult, InvalidRequest, UnsupportedProperty, check_same_name, check_tags, drop_read_only,
    merge_resource, parse_body, read, refuse_unsupported,
    tolerance::clear_empty,
    topic::{LOCATION, check_scope_part, check_top_name},
    value_of,
};
use crate::model::topic::settle_ingress;
use gridhook_api::{
    namespace::{Namespace, NamespaceProperties},
    topic::TopicProperties,
};
use gridhook_event::{Name, Schema};
use gridhook_record::{
    ingress::IngressSettings,
    namespace::{NamespaceRecord, StoredNamespaceProperties},
    topic::{AccessKeys, ArmScope, TopicKind},
};

/// Allowed throughput units, as in Azure.
const UNITS: std::ops::RangeInclusive<u32> = 1..=40;

/// Read-only properties, and a name that Azure ignores.
const READ_ONLY: [&str; 4] = [
    "properties.name",
    "identity.principalId",
    "identity.tenantId",
    "properties.topicsConfiguration.hostname",
];

const UNSUPPORTED: [UnsupportedProperty; 4] = [
    UnsupportedProperty {
        at: "properties.privateEndpointConnections",
        harmless: &["[]"],
        because: "the address that the server listens on decides who reaches it",
    },
    UnsupportedProperty {
        at: "properties.topicsConfiguration.customDomains",
        harmless: &["[]"],
        because: "the server accepts every host name",
    },
    UnsupportedProperty {
        at: "properties.topicsConfiguration",
        harmless: &["{}"],
        because: "it has only the read-only hostname",
    },
    UnsupportedProperty {
        at: "properties.topicSpacesConfiguration",
        harmless: &["{}", r#"{"state":"Disabled"}"#],
        because: "there is no MQTT broker",
    },
];

/// Optional properties for which empty text means no value.
const EMPTY: [&str; 3] = [
    "location",
    "properties.publicNetworkAccess",
    "properties.minimumTlsVersionAllowed",
];

fn check_units(at: &str, given: u32) -> CheckResult {
    if UNITS.contains(&given) {
        return Ok(());
    }
    let least = UNITS.start();
    let most = UNITS.end();
    let problem = format!("is {given}; expected {least} to {most}");
    Err(InvalidRequest::new(at, problem))
}

/// The specification of a namespace from a body. Defaults depend on whether the namespace exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    location: Option<String>,
    tags: BTreeMap<String, String>,
    ingress: IngressSettings,
    azure_properties: StoredNamespaceProperties,
}

impl NamespaceSpec {
    /// Reads the body of a PUT of the namespace `name`.
    pub fn from_put(name: &str, body: &[u8]) -> CheckResult<Self> {
        Self::from_value(name, parse_body(body)?)
    }

    /// Reads the body of a PATCH of `record`.
    pub fn from_patch(record: &NamespaceRecord, body: &[u8]) -> CheckResult<Self> {
        let mut whole = value_of(&settable_body(record));
        merge_resource(&mut whole, parse_body(body)?);
        Self::from_value(record.name.as_str(), whole)
    }

    fn from_value(name: &str, mut value: Value) -> CheckResult<Self> {
        drop_read_only(&mut value, &READ_ONLY);
        clear_empty(&mut value, &EMPTY);
        refuse_unsupported(&mut value, &UNSUPPORTED)?;
        let body: Namespace = read(value)?;
        check_same_name(body.name.as_deref(), name)?;
        let properties = body.properties.unwrap_or_default();
        let sku = body.sku.unwrap_or_default();
        check_units("sku.capacity", sku.capacity)?;
        if let Some(scaling) = &properties.auto_scale_configuration {
            let least = scaling.minimum_throughput_units.unwrap_or(*UNITS.start());
            let most = scaling.maximum_throughput_units.unwrap_or(*UNITS.end());
            let at = "properties.autoScaleConfiguration";
            check_units(&format!("{at}.minimumThroughputUnits"), least)?;
            check_units(&format!("{at}.maximumThroughputUnits"), most)?;
        }
        let ingress = TopicProperties {
            public_network_access: properties.public_network_access,
            inbound_ip_rules: properties.inbound_ip_rules,
            ..TopicProperties::default()
        };
        let tags = body.tags.unwrap_or_default();
        check_tags(&tags)?;
        Ok(Self {
            location: body.location,
            tags,
            ingress: settle_ingress(
                ingress,
                TopicKind::NamespaceTopic,
                Schema::CloudEvents,
                None,
            )?,
            azure_properties: StoredNamespaceProperties {
                sku,
                identity: body.identity,
                is_zone_redundant: properties.is_zone_redundant,
                minimum_tls_version_allowed: properties.minimum_tls_version_allowed,
                auto_scale_configuration: properties.auto_scale_configuration,
            },
        })
    }

    pub fn create_record(
        self,
        name: &str,
        scope: ArmScope,
        keys: AccessKeys,
    ) -> CheckResult<NamespaceRecord> {
        check_top_name("the namespace's name", name)?;
        check_scope_part("the subscription in the path", &scope.subscription)?;
        check_scope_part("the resource group in the path", &scope.resource_group)?;
        let Self {
            location,
            tags,
            ingress,
            azure_properties,
        } = self;
        let location = location.unwrap_or_else(|| LOCATION.to_owned());
        Ok(NamespaceRecord {
            name: Name::new(name),
            scope,
            keys,
            ingress,
            location,
            tags,
            azure_properties,
            system_data: None,
        })
    }

    /// `existing` with the changes. Keys, name and scope never change; the location is kept if the
    /// body omits it.
    pub fn update_record(self, existing: &NamespaceRecord) -> NamespaceRecord {
        let Self {
            location,
            tags,
            ingress,
            azure_properties,
        } = self;
        let location = location.unwrap_or_else(|| existing.location.clone());
        NamespaceRecord {
            ingress,
            location,
            tags,
            azure_properties,
            ..existing.clone()
        }
    }
}

/// The settable properties as JSON.
pub(crate) fn settable_json(record: &NamespaceRecord) -> Value {
    value_of(&settable_body(record))
}

/// The settable properties of a record.
fn settable_body(record: &NamespaceRecord) -> Namespace {
    let StoredNamespaceProperties {
        sku,
        identity,
        is_zone_redundant,
        minimum_tls_version_allowed,
        auto_scale_configuration,
    } = record.azure_properties.clone();
    Namespace {
        location: Some(record.location.clone()),
        tags: Some(record.tags.clone()),
        sku: Some(sku),
        identity,
        properties: Some(NamespaceProperties {
            public_network_access: Some(record.ingress.public_network_access),
            inbound_ip_rules: Some(record.ingress.inbound_ip_rules.clone()),
            is_zone_redundant,
            minimum_tls_version_allowed,
            auto_scale_configuration,
            ..NamespaceProperties::default()
        }),
        ..Namespace::default()
    }
}
