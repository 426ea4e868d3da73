//! gridhook's own file format: a table for each topic, with the keys of the control plane.
//!
//! ```toml
//! [topics.orders]
//! inputSchema = "EventGridSchema"
//!
//! [topics.orders.eventSubscriptions.billing]
//! endpointUrl = "https://example.com/hook"
//! filter = { includedEventTypes = ["Order.Placed"] }
//! ```

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use super::{DeclarationError, DeclaredResource, ResourceGroup};
use gridhook_api::{
    resource::property_keys,
    subscription::{
        SubscriptionProperties, WebhookProperties, namespace::NamespaceSubscriptionProperties,
    },
};
use gridhook_policy::filter::number;

/// The keys of ARM bodies; every other key is a property.
const BODY_KEYS: [&str; 7] = [
    "location",
    "tags",
    "sku",
    "kind",
    "extendedLocation",
    "identity",
    "properties",
];

/// The properties of an event subscription of a topic or of a namespace topic.
struct SubscriptionKeys {
    /// Properties of a webhook, which a file may have in the table of the event subscription.
    webhook: Vec<String>,
    settable: Vec<String>,
    /// Properties that only responses have: a file may be made from a response.
    read_only: Vec<String>,
}

static KEYS: LazyLock<SubscriptionKeys> = LazyLock::new(|| {
    let (webhook, _) = property_keys::<WebhookProperties>();
    let (mut settable, mut read_only) = property_keys::<SubscriptionProperties>();
    let (in_namespace, read_only_in_namespace) = property_keys::<NamespaceSubscriptionProperties>();
    settable.extend(in_namespace);
    read_only.extend(read_only_in_namespace);
    settable.sort();
    settable.dedup();
    SubscriptionKeys {
        webhook,
        settable,
        read_only,
    }
});

type Table = Map<String, Value>;

/// Reads TOML as JSON. A number that would be rounded is an error, because the result would differ
/// from the file.
pub(super) fn read_toml(text: &str) -> Result<Value, DeclarationError> {
    // The parser's values keep the digits; the typed values are rounded.
    let document = DeTable::parse(text)?;
    if let Some(problem) = document
        .get_ref()
        .iter()
        .find_map(|(key, value)| find_rounded_number(key.get_ref(), value.get_ref()))
    {
        return Err(DeclarationError::Number(problem));
    }
    Ok(toml_to_json(text.parse::<toml::Table>()?.into()))
}

/// The error of the first number in `value` that would be rounded. `at` is the path of `value`.
fn find_rounded_number(at: &str, value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Float(float) => {
            let digits = float.as_str().trim_start_matches('+');
            let is_number = digits.bytes().any(|byte| byte.is_ascii_digit());
            let problem = if is_number {
                number::rounding_problem(digits)?
            } else {
                format!("is {digits}; expected a number")
            };
            Some(format!("{at} {problem}"))
        }
        // The typed values hold no larger integers.
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .err()
            .map(|_| {
                format!(
                    "{at} is {integer}; expected an integer from {} to {}",
                    i64::MIN,
                    i64::MAX
                )
            }),
        DeValue::Array(list) => list.iter().enumerate().find_map(|(index, value)| {
            find_rounded_number(&format!("{at}[{index}]"), value.get_ref())
        }),
        DeValue::Table(table) => table.iter().find_map(|(key, value)| {
            find_rounded_number(&format!("{at}.{}", key.get_ref()), value.get_ref())
        }),
        DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => None,
    }
}

/// TOML as JSON; a date becomes a string.
fn toml_to_json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(at) => at.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(toml_to_json).collect(),
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(key, value)| (key, toml_to_json(value)))
            .collect(),
    }
}

/// The resources of a file, and its default resource group.
pub(super) fn read(
    value: Value,
    group: &ResourceGroup,
) -> Result<(Vec<DeclaredResource>, ResourceGroup), DeclarationError> {
    let mut file = expect_table("the file", value)?;
    let mut group = group.clone();
    for (key, into) in [
        ("subscription", &mut group.subscription),
        ("resourceGroup", &mut group.resource_group),
    ] {
        match file.remove(key) {
            Some(Value::String(name)) if !name.is_empty() => *into = name,
            Some(_) => return Err(DeclarationError::NoName(key)),
            None => {}
        }
    }
    let mut all = Vec::new();
    for (name, topic) in take_tables(&mut file, "topics")? {
        add_topic(&mut all, &group, &["topics", &name], topic)?;
    }
    for (name, mut domain) in take_tables(&mut file, "domains")? {
        for (topic_name, mut topic) in take_tables(&mut domain, "topics")? {
            let names = ["domains", &name, "topics", &topic_name];
            add_subscriptions(&mut all, &group, &names, &mut topic)?;
            all.push(DeclaredResource::new(&group, &names, table_to_body(topic))?);
        }
        add_topic(&mut all, &group, &["domains", &name], domain)?;
    }
    for (name, mut namespace) in take_tables(&mut file, "namespaces")? {
        for (topic_name, topic) in take_tables(&mut namespace, "topics")? {
            add_topic(
                &mut all,
                &group,
                &["namespaces", &name, "topics", &topic_name],
                topic,
            )?;
        }
        all.push(DeclaredResource::new(
            &group,
            &["namespaces", &name],
            table_to_body(namespace),
        )?);
    }
    match file.keys().next() {
        Some(key) => Err(DeclarationError::FileKey(key.clone())),
        None => Ok((all, group)),
    }
}

/// Adds a topic or a domain with its event subscriptions.
fn add_topic(
    all: &mut Vec<DeclaredResource>,
    group: &ResourceGroup,
    names: &[&str],
    mut topic: Table,
) -> Result<(), DeclarationError> {
    add_subscriptions(all, group, names, &mut topic)?;
    all.push(DeclaredResource::new(group, names, table_to_body(topic))?);
    Ok(())
}

fn add_subscriptions(
    all: &mut Vec<DeclaredResource>,
    group: &ResourceGroup,
    topic_names: &[&str],
    topic: &mut Table,
) -> Result<(), DeclarationError> {
    for (name, subscription) in take_tables(topic, "eventSubscriptions")? {
        let names = [topic_names, &["eventSubscriptions", &name]].concat();
        let body = subscription_body(subscription)
            .map_err(|error| error.with_location(names.join(".")))?;
        all.push(DeclaredResource::new(group, &names, body)?);
    }
    Ok(())
}

/// Moves the webhook's properties to where ARM has them.
fn subscription_body(mut subscription: Table) -> Result<Value, DeclarationError> {
    if let Some(key) = subscription.keys().find(|key| !is_subscription_key(key)) {
        return Err(unknown_subscription_key(key));
    }
    let webhook: Table = KEYS
        .webhook
        .iter()
        .filter_map(|key| Some((key.clone(), subscription.remove(key)?)))
        .collect();
    if let Some(key) = webhook.keys().next() {
        if subscription.contains_key("destination") {
            return Err(DeclarationError::TwoDestinations(key.clone()));
        }
        let destination = json!({"endpointType": "WebHook", "properties": webhook});
        subscription.insert("destination".to_owned(), destination);
    }
    Ok(table_to_body(subscription))
}

fn is_subscription_key(key: &str) -> bool {
    let SubscriptionKeys {
        webhook,
        settable,
        read_only,
    } = &*KEYS;
    let mut known = [webhook, settable, read_only].into_iter().flatten();
    known.any(|known| known == key) || BODY_KEYS.contains(&key)
}

fn unknown_subscription_key(key: &str) -> DeclarationError {
    let keys = KEYS.webhook.iter().chain(&KEYS.settable);
    let keys = keys.map(String::as_str);
    let part = key.to_lowercase();
    let similar = keys
        .clone()
        .find(|known| known.to_lowercase().contains(&part));
    let key = key.to_owned();
    match similar {
        Some(similar) => DeclarationError::SimilarKey { key, similar },
        None => DeclarationError::Key {
            key,
            allowed: keys.collect(),
        },
    }
}

fn table_to_body(all: Table) -> Value {
    let (body_entries, properties): (Table, Table) = all
        .into_iter()
        .partition(|(key, _)| BODY_KEYS.contains(&key.as_str()));
    let mut body = Value::Object(body_entries);
    for (key, value) in properties {
        // `properties` may be given. A value that is not a table is reported by the reader of the
        // body.
        if body["properties"].is_null() || body["properties"].is_object() {
            body["properties"][key] = value;
        }
    }
    body
}

/// Takes the tables below `key` out of a table, by name.
fn take_tables(table: &mut Table, key: &str) -> Result<Vec<(String, Table)>, DeclarationError> {
    let Some(value) = table.remove(key) else {
        return Ok(Vec::new());
    };
    let tables = expect_table(key, value)?.into_iter();
    tables
        .map(|(name, value)| Ok((name.clone(), expect_table(&format!("{key}.{name}"), value)?)))
        .collect()
}

fn expect_table(what: &str, value: Value) -> Result<Table, DeclarationError> {
    match value {
        Value::Object(table) => Ok(table),
        _ => Err(DeclarationError::NoTable(what.to_owned())),
    }
}
