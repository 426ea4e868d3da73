//! Topics, as the control plane speaks of them.

mod ingress;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Editions, Invalid, Unsupported, check_name, check_same_name, drop_read_only, merge, parse, read,
    refuse_unsupported, value_of,
};
use crate::{
    event::{Name, Schema},
    topic::{
        ingress::{IpRule, PublicNetworkAccess},
        record::{Keys, Scope, TopicRecord},
    },
};

/// `type` of a topic.
const TYPE: &str = "Microsoft.EventGrid/topics";

/// The location of a topic whose client names none.
const LOCATION: &str = "local";

/// All `inputSchema`s.
const SCHEMAS: [Schema; 3] = [Schema::EventGrid, Schema::CloudEvents, Schema::Custom];

const READ_ONLY: [&str; 6] =
    ["id", "type", "systemData", "properties.provisioningState", "properties.endpoint", "properties.metricResourceId"];

const UNSUPPORTED: [Unsupported; 8] = [
    Unsupported { at: "sku", harmless: &[r#"{"name":"Basic"}"#], because: "there is one tier of topics" },
    Unsupported { at: "kind", harmless: &[r#""Azure""#], because: "there is one kind of topics" },
    Unsupported { at: "extendedLocation", harmless: &[], because: "a topic lives in this server" },
    Unsupported { at: "identity", harmless: &[r#"{"type":"None"}"#], because: "there are no managed identities" },
    Unsupported {
        at: "properties.dataResidencyBoundary",
        harmless: &[r#""WithinGeopair""#],
        because: "events stay in the data folder",
    },
    Unsupported {
        at: "properties.minimumTlsVersionAllowed",
        harmless: &[],
        because: "TLS towards publishers is the affair of the proxy in front",
    },
    Unsupported { at: "properties.eventTypeInfo", harmless: &[], because: "event types are not declared" },
    Unsupported {
        at: "properties.privateEndpointConnections",
        harmless: &["[]"],
        because: "the address that the server listens on decides who reaches it",
    },
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    name: Option<String>,
    location: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    properties: Option<Properties>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Properties {
    input_schema: Option<String>,
    edition: Option<String>,
    disable_local_auth: Option<bool>,
    public_network_access: Option<PublicNetworkAccess>,
    inbound_ip_rules: Option<Vec<IpRule>>,
    input_schema_mapping: Option<ingress::MappingBody>,
}

/// What a client asks of a topic, checked by itself; what it leaves open depends on whether the topic exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    location: Option<String>,
    tags: BTreeMap<String, String>,
    input_schema: Option<Schema>,
    edition: Option<String>,
    ingress: ingress::Body,
}

impl Wish {
    /// Reads the body of a PUT of the topic `name`.
    pub fn put(name: &str, body: &[u8]) -> Result<Self, Invalid> {
        Self::of(name, parse(body)?)
    }

    /// Reads the body of a PATCH of `record`.
    pub fn patch(record: &TopicRecord, body: &[u8]) -> Result<Self, Invalid> {
        let mut whole = value_of(&Settable {
            location: &record.location,
            tags: &record.tags,
            properties: SettableProperties {
                input_schema: schema_name(record.input_schema),
                edition: &record.edition,
                ingress: ingress::Body::of(&record.ingress),
            },
        });
        merge(&mut whole, parse(body)?);
        Self::of(record.name.as_str(), whole)
    }

    fn of(name: &str, mut value: Value) -> Result<Self, Invalid> {
        drop_read_only(&mut value, &READ_ONLY);
        refuse_unsupported(&mut value, &UNSUPPORTED)?;
        let body: Body = read(value)?;
        check_same_name(body.name.as_deref(), name)?;
        let properties = body.properties.unwrap_or_default();
        let input_schema = properties.input_schema.map(|given| schema_of(&given)).transpose()?;
        let ingress = ingress::Body {
            disable_local_auth: properties.disable_local_auth,
            public_network_access: properties.public_network_access,
            inbound_ip_rules: properties.inbound_ip_rules,
            input_schema_mapping: properties.input_schema_mapping,
        };
        let (location, tags) = (body.location, body.tags.unwrap_or_default());
        Ok(Self { location, tags, input_schema, edition: properties.edition, ingress })
    }

    /// A new topic.
    pub fn create(self, name: &str, scope: Scope, keys: Keys, editions: &Editions) -> Result<TopicRecord, Invalid> {
        check_name("the topic's name", name, 50)?;
        let lower = name.to_ascii_lowercase();
        if let Some(taken) = ["microsoft", "eventgrid", "system"].iter().find(|taken| lower.starts_with(**taken)) {
            return Err(Invalid::new(
                "the topic's name",
                format!("is \"{name}\"; names that begin with \"{taken}\" are Event Grid's own"),
            ));
        }
        check_place("the subscription in the path", &scope.subscription)?;
        check_place("the resource group in the path", &scope.resource_group)?;
        let edition = self.edition.unwrap_or_else(|| editions.default.clone());
        editions.ranges(&edition)?;
        let input_schema = self.input_schema.unwrap_or_default();
        Ok(TopicRecord {
            name: Name::new(name),
            scope,
            partitions: Vec::new(),
            input_schema,
            keys,
            ingress: self.ingress.settle(input_schema, None)?,
            edition,
            location: self.location.unwrap_or_else(|| LOCATION.to_owned()),
            tags: self.tags,
        })
    }

    /// `existing`, changed. Keys, name and scope stay; so do schema, mapping, edition and location where none is named: a
    /// client of Azure's own knows no edition and must not undo an operator's choice.
    pub fn update(self, existing: &TopicRecord, editions: &Editions) -> Result<TopicRecord, Invalid> {
        if let Some(wished) = self.input_schema.filter(|wished| *wished != existing.input_schema) {
            let (wished, is) = (schema_name(wished), schema_name(existing.input_schema));
            return Err(Invalid::new(
                "properties.inputSchema",
                format!("is {wished}; the schema of a topic stays what it was made with: {is}"),
            ));
        }
        let edition = self.edition.unwrap_or_else(|| existing.edition.clone());
        editions.ranges(&edition)?;
        Ok(TopicRecord {
            edition,
            ingress: self.ingress.settle(existing.input_schema, existing.ingress.mapping.as_ref())?,
            location: self.location.unwrap_or_else(|| existing.location.clone()),
            tags: self.tags,
            ..existing.clone()
        })
    }
}

/// Ids of subscriptions and names of resource groups end up in every event's `topic`: any that need no escaping there.
fn check_place(what: &str, given: &str) -> Result<(), Invalid> {
    let legal = (1..=90).contains(&given.chars().count())
        && given.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')'));
    if legal {
        return Ok(());
    }
    Err(Invalid::new(what, format!("is \"{}\"; allowed are 1 to 90 letters, digits and -_.()", given.escape_debug())))
}

fn schema_of(given: &str) -> Result<Schema, Invalid> {
    SCHEMAS.into_iter().find(|schema| schema_name(*schema) == given).ok_or_else(|| {
        let allowed = SCHEMAS.map(schema_name).join(", ");
        Invalid::new("properties.inputSchema", format!("is \"{given}\"; allowed are {allowed}"))
    })
}

/// The word for an input schema.
pub(super) fn schema_name(schema: Schema) -> &'static str {
    match schema {
        Schema::EventGrid => "EventGridSchema",
        Schema::CloudEvents => "CloudEventSchemaV1_0",
        Schema::Custom => "CustomEventSchema",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Settable<'a> {
    location: &'a str,
    tags: &'a BTreeMap<String, String>,
    properties: SettableProperties<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SettableProperties<'a> {
    input_schema: &'static str,
    edition: &'a str,
    #[serde(flatten)]
    ingress: ingress::Body,
}

/// A topic as it is told: without its keys.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind_of_resource: &'static str,
    location: String,
    tags: BTreeMap<String, String>,
    sku: Sku,
    kind: &'static str,
    properties: ViewProperties,
}

#[derive(Clone, Debug, Serialize)]
struct Sku {
    name: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ViewProperties {
    provisioning_state: &'static str,
    endpoint: String,
    input_schema: &'static str,
    #[serde(flatten)]
    ingress: ingress::Body,
    data_residency_boundary: &'static str,
    edition: String,
}

impl View {
    /// What a client is told of `record` by the server that is reached at `public_url`.
    pub fn new(record: &TopicRecord, public_url: &str) -> Self {
        Self {
            id: record.resource_id(),
            name: record.name.to_string(),
            kind_of_resource: TYPE,
            location: record.location.clone(),
            tags: record.tags.clone(),
            sku: Sku { name: "Basic" },
            kind: "Azure",
            properties: ViewProperties {
                provisioning_state: "Succeeded",
                endpoint: format!("{}/topics/{}/api/events", public_url.trim_end_matches('/'), record.name),
                input_schema: schema_name(record.input_schema),
                ingress: ingress::Body::of(&record.ingress),
                data_residency_boundary: "WithinGeopair",
                edition: record.edition.clone(),
            },
        }
    }
}

/// Which of a topic's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The first.
    Key1,
    /// The second.
    Key2,
}

impl Key {
    /// Reads the body of `regenerateKey`.
    pub fn read(body: &[u8]) -> Result<Self, Invalid> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Body {
            key_name: String,
        }
        match read::<Body>(parse(body)?)?.key_name.as_str() {
            "key1" => Ok(Self::Key1),
            "key2" => Ok(Self::Key2),
            other => Err(Invalid::new("keyName", format!("is \"{other}\"; allowed are key1 and key2"))),
        }
    }
}
