//! The properties of an event subscription, from flags to the control plane's JSON.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::{ClientError, ClientResult, ResourceNameKind, read_body, set_value},
    time::{parse_future, parse_past},
    value::{parse_minutes, parse_seconds, whole_number},
};
use gridhook_api::subscription::namespace::{PUSH, QUEUE, translate_path};

const ENDPOINT_TYPE: &str = "destination.endpointType";
const SUBJECT_BEGINS_WITH: &str = "filter.subjectBeginsWith";
const SUBJECT_ENDS_WITH: &str = "filter.subjectEndsWith";
const TIME_TO_LIVE: &str = "retryPolicy.eventTimeToLiveInMinutes";

#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct SubscriptionSpecArgs {
    /// URL of the endpoint
    #[arg(long, value_name = "URL")]
    pub(super) endpoint: Option<String>,
    /// Deliver only events of this type; repeatable
    #[arg(long = "event-type", value_name = "TYPE")]
    event_types: Vec<String>,
    /// Deliver only events whose subject begins with this text
    #[arg(long, value_name = "TEXT")]
    subject_begins_with: Option<String>,
    /// Deliver only events whose subject ends with this text
    #[arg(long, value_name = "TEXT")]
    subject_ends_with: Option<String>,
    /// Use pull delivery: clients receive the events (namespaces only)
    #[arg(long, conflicts_with = "endpoint")]
    pull: bool,
    /// Lock duration of received events, such as 60s (with --pull)
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    lock: Option<u64>,
    /// Delivery schema, such as CloudEventSchemaV1_0
    #[arg(long, value_name = "SCHEMA")]
    delivery_schema: Option<String>,
    /// Maximum delivery attempts of an event
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..))]
    max_attempts: Option<u32>,
    /// Time to live of an event, in whole minutes, such as 90m or 24h
    #[arg(long, value_name = "DURATION", value_parser = parse_minutes)]
    time_to_live: Option<u64>,
    /// Maximum events in one request
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..))]
    batch_events: Option<u32>,
    /// Preferred kilobytes in one request
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..))]
    batch_kilobytes: Option<u32>,
    /// JMESPath expression of the body that is delivered instead of an event
    #[arg(long, value_name = "EXPRESSION")]
    transform: Option<String>,
    /// Maximum requests per second
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..))]
    max_requests_per_second: Option<u32>,
    /// Time within which the endpoint must begin its response, in whole seconds, such as 5s
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    response_timeout: Option<u64>,
    /// Egress proxy: the name of a table of delivery.resources, or none for a direct connection
    #[arg(long, value_name = "NAME")]
    proxy: Option<String>,
    /// Key of the order: events with the same value are delivered one after the other, such as
    /// subject or data.order.id
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// What an event that is given up means for the later ones of its order key: skip (go on) or
    /// block (wait for unblock)
    #[arg(long, value_name = "ACTION")]
    on_failure: Option<String>,
    /// Dead-letter destination: resource id of a storage account, or a URL such as
    /// s3://bucket/prefix
    #[arg(long, value_name = "ID_OR_URL")]
    dead_letters: Option<String>,
    /// Blob container of the dead-letter destination
    #[arg(long, value_name = "NAME", requires = "dead_letters")]
    container: Option<String>,
    /// Label; repeatable
    #[arg(long = "label", value_name = "TEXT")]
    labels: Vec<String>,
    /// Expiration time, such as 2040-01-01T00:00:00Z or 30d; the event subscription is then deleted
    #[arg(long, value_name = "TIME", value_parser = parse_future)]
    expires: Option<String>,
    /// Start with events published at or after this time, such as 2h (new event subscriptions only)
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    starts_from: Option<String>,
    /// File with the ARM JSON for all other properties; - is standard input; flags take precedence
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
}

impl SubscriptionSpecArgs {
    pub(super) fn put_body(&self, kind: ResourceNameKind) -> ClientResult<Value> {
        let body = read_body(self.body.as_deref())?;
        let has_destination = ["destination", "deliveryWithResourceIdentity"]
            .iter()
            .any(|key| !body["properties"][key].is_null());
        let body = self.with_flags(body, kind, None)?;
        let is_in_namespace = kind == ResourceNameKind::NamespaceTopic;
        if !is_in_namespace && self.endpoint.is_none() && !has_destination {
            let text = "no endpoint; name it with --endpoint URL";
            return Err(ClientError::Input(text.to_owned()));
        }
        Ok(body)
    }

    /// Sets the properties that flags name. `existing` is the current resource, if an update has
    /// read it.
    fn with_flags(
        &self,
        mut body: Value,
        kind: ResourceNameKind,
        existing: Option<&Value>,
    ) -> ClientResult<Value> {
        let is_pulled = if kind == ResourceNameKind::NamespaceTopic {
            self.is_pulled(&body, existing)?
        } else {
            self.check_for_topic()?;
            false
        };
        let translate = |path: &str| match kind {
            ResourceNameKind::NamespaceTopic => translate_path(path, is_pulled),
            _ => path.to_owned(),
        };
        let PropertyList(mut properties) = self.list_properties();
        if kind == ResourceNameKind::NamespaceTopic {
            self.use_namespace_form(&mut properties, &body, existing, is_pulled);
        }
        // With the type, the server replaces a destination together with its identity.
        let is_webhook = ["destination", "deliveryWithResourceIdentity.destination"]
            .map(|path| translate(&format!("{path}.endpointType")))
            .iter()
            .any(|path| existing.is_some_and(|all| *property(all, path) == "WebHook"));
        properties.retain(|(path, _)| *path != ENDPOINT_TYPE || !is_webhook);
        for (path, value) in properties {
            let path = translate(path);
            let path: Vec<&str> = std::iter::once("properties")
                .chain(path.split('.'))
                .collect();
            set_value(&mut body, &path, value)?;
        }
        Ok(body)
    }

    /// The properties that flags name, with their paths in the form of topics.
    fn list_properties(&self) -> PropertyList {
        let webhook_type = self.endpoint.as_ref().map(|_| "WebHook");
        let blob_type = self.dead_letters.as_ref().map(|_| "StorageBlob");
        let mut list = PropertyList::default();
        list.set(ENDPOINT_TYPE, &webhook_type);
        list.set("destination.properties.endpointUrl", &self.endpoint);
        list.set(
            "destination.properties.maxEventsPerBatch",
            &self.batch_events,
        );
        list.set(
            "destination.properties.preferredBatchSizeInKilobytes",
            &self.batch_kilobytes,
        );
        list.set(
            "destination.properties.maxRequestsPerSecond",
            &self.max_requests_per_second,
        );
        list.set(
            "destination.properties.responseTimeoutInSeconds",
            &self.response_timeout,
        );
        list.set("destination.properties.proxy", &self.proxy);
        list.set("filter.includedEventTypes", &some_list(&self.event_types));
        list.set(SUBJECT_BEGINS_WITH, &self.subject_begins_with);
        list.set(SUBJECT_ENDS_WITH, &self.subject_ends_with);
        list.set("eventDeliverySchema", &self.delivery_schema);
        list.set("transform.body", &self.transform);
        list.set("retryPolicy.maxDeliveryAttempts", &self.max_attempts);
        list.set(TIME_TO_LIVE, &self.time_to_live);
        list.set("deadLetterDestination.endpointType", &blob_type);
        list.set(
            "deadLetterDestination.properties.resourceId",
            &self.dead_letters,
        );
        list.set(
            "deadLetterDestination.properties.blobContainerName",
            &self.container,
        );
        list.set("labels", &some_list(&self.labels));
        list.set("expirationTimeUtc", &self.expires);
        list.set("ordering.key", &self.ordering_key);
        list.set("ordering.onFailure", &self.on_failure);
        list.set("startsFrom", &self.starts_from);
        list.set("queue.receiveLockDurationInSeconds", &self.lock);
        list
    }

    /// Checks the flags for an event subscription of a topic or a domain.
    fn check_for_topic(&self) -> ClientResult<()> {
        if self.pull || self.lock.is_some() {
            let text = "--pull and --lock are allowed only for topics of namespaces \
                (namespaces/NAME/topics/NAME)";
            return Err(ClientError::Input(text.to_owned()));
        }
        Ok(())
    }

    /// Whether clients pull from the event subscription of a namespace topic. Checks the flags for
    /// one.
    fn is_pulled(&self, body: &Value, existing: Option<&Value>) -> ClientResult<bool> {
        let mode = delivery_mode(body).or_else(|| existing.and_then(delivery_mode));
        let is_pulled = match (self.pull, &self.endpoint, mode) {
            (true, ..) => true,
            (false, Some(_), _) => false,
            (false, None, Some(mode)) => mode.eq_ignore_ascii_case(QUEUE),
            (false, None, None) => {
                let text = "no delivery mode; use --endpoint URL for push delivery or --pull for \
                    pull delivery";
                return Err(ClientError::Input(text.to_owned()));
            }
        };
        let is_destination = |(path, _): &(&str, Value)| path.starts_with("destination.");
        let problem = if is_pulled && self.transform.is_some() {
            "--transform is not allowed with pull delivery"
        } else if is_pulled && self.list_properties().0.iter().any(is_destination) {
            "--batch-events, --batch-kilobytes, --max-requests-per-second, --response-timeout and \
             --proxy are not allowed with pull delivery; each receive request sets its batch size \
             and waiting time"
        } else if !is_pulled && self.lock.is_some() {
            "--lock is allowed only with pull delivery (--pull)"
        } else {
            return Ok(is_pulled);
        };
        Err(ClientError::Input(problem.to_owned()))
    }

    /// Changes the properties to those of a namespace, which have other values.
    fn use_namespace_form(
        &self,
        properties: &mut Vec<(&'static str, Value)>,
        body: &Value,
        existing: Option<&Value>,
        is_pulled: bool,
    ) {
        let mode = if is_pulled { QUEUE } else { PUSH };
        let is_new_mode = existing
            .and_then(delivery_mode)
            .is_none_or(|known| !known.eq_ignore_ascii_case(mode));
        if is_new_mode && (self.pull || self.endpoint.is_some()) {
            properties.push(("deliveryConfiguration.deliveryMode", mode.into()));
        }
        for (path, value) in &mut *properties {
            if *path == TIME_TO_LIVE {
                *value = format!("PT{value}M").into();
            }
        }
        let is_filter = |path: &str| [SUBJECT_BEGINS_WITH, SUBJECT_ENDS_WITH].contains(&path);
        properties.retain(|(path, _)| !is_filter(path));
        let filters = self.namespace_filters(body, existing);
        properties.extend(filters.map(|filters| ("filter.advancedFilters", filters)));
    }

    /// The filters of an event subscription of a namespace topic, if a flag sets one. They are one
    /// list, of which a flag replaces its own: the others of the file, or else of the current
    /// resource, stay.
    fn namespace_filters(&self, body: &Value, existing: Option<&Value>) -> Option<Value> {
        let flags = [
            ("StringBeginsWith", &self.subject_begins_with),
            ("StringEndsWith", &self.subject_ends_with),
        ];
        let flag_filters: Vec<(&str, &String)> = flags
            .into_iter()
            .filter_map(|(operator, text)| Some((operator, text.as_ref()?)))
            .collect();
        if flag_filters.is_empty() {
            return None;
        }
        const FILTERS: &str = "filtersConfiguration.filters";
        let current = |resource: &Value| property(resource, FILTERS).as_array().cloned();
        let mut filters = current(body)
            .or_else(|| existing.and_then(current))
            .unwrap_or_default();
        for (operator, text) in flag_filters {
            let is_operator = |name: &str| name.eq_ignore_ascii_case(operator);
            let is_same = |filter: &Value| filter["operatorType"].as_str().is_some_and(is_operator);
            filters.retain(|filter| filter["key"] != "subject" || !is_same(filter));
            filters.push(json!({"operatorType": operator, "key": "subject", "values": [text]}));
        }
        Some(filters.into())
    }

    /// The body of a PATCH. Only for namespace topics it is wrapped in `properties`; a file may
    /// have either form.
    pub(super) fn patch_body(
        &self,
        kind: ResourceNameKind,
        existing: Option<&Value>,
    ) -> ClientResult<Value> {
        let mut body = read_body(self.body.as_deref())?;
        let mut properties = body.get_mut("properties").map_or(Value::Null, Value::take);
        for (key, value) in body
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "properties")
        {
            set_value(&mut properties, &[key], value.clone())?;
        }
        let mut change = self.with_flags(json!({ "properties": properties }), kind, existing)?;
        let properties = change["properties"].take();
        if properties.is_null() {
            return Err(ClientError::Input(
                "no properties to change; --help lists them".to_owned(),
            ));
        }
        let is_wrapped = kind == ResourceNameKind::NamespaceTopic;
        Ok(if is_wrapped {
            json!({ "properties": properties })
        } else {
            properties
        })
    }
}

/// The property of a resource at a path of keys joined by dots.
fn property<'a>(resource: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .fold(&resource["properties"], |value, key| &value[key])
}

/// The `deliveryMode` of a resource, or of a file without `properties`.
fn delivery_mode(resource: &Value) -> Option<&str> {
    let properties = resource.get("properties").unwrap_or(resource);
    properties["deliveryConfiguration"]["deliveryMode"].as_str()
}

/// A list that a flag sets, unless it is empty.
fn some_list(texts: &[String]) -> Option<Vec<String>> {
    (!texts.is_empty()).then(|| texts.to_vec())
}

/// Properties with their paths.
#[derive(Default)]
struct PropertyList(Vec<(&'static str, Value)>);

impl PropertyList {
    /// Adds a property that a flag sets.
    fn set<T: Clone + Into<Value>>(&mut self, path: &'static str, value: &Option<T>) {
        if let Some(value) = value {
            self.0.push((path, value.clone().into()));
        }
    }
}
